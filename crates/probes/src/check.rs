//! What is asked of a service, as people write it: one key for each kind.
//!
//! ```yaml
//! http: { url: https://shop.example.org/health, headers: { accept: application/json }, redirects: 2 }
//! tcp: { address: "db.example.org:5432" }
//! tls: { address: "shop.example.org:443" }
//! dns: { name: shop.example.org, record: AAAA, server: "192.0.2.53:53" }
//! icmp: { host: gateway.example.org }
//! exec: { command: [ /usr/lib/nagios/plugins/check_load, -w, "4", -c, "8" ] }
//! ```

use std::collections::BTreeMap;

use mutirao_core::Problem;
use mutirao_core::check::CheckKind;
use mutirao_core::quantity::Bytes;
use serde::{Deserialize, Serialize};

/// Of an answer's body no more is read than this, whatever a check asks for.
pub const BODY_MAX: u64 = 16 << 20;
/// Redirects that may be followed.
pub const REDIRECTS_MAX: u8 = 20;
const HEADERS_MAX: usize = 64;
const TEXT_CHARS_MAX: usize = 8_192;
const HOST_CHARS_MAX: usize = 253;
const COMMAND_BYTES_MAX: usize = 64 << 10;
/// What a request may carry.
const SENT_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    Http(Http),
    Tcp(Tcp),
    Tls(Tls),
    Dns(Dns),
    Icmp(Icmp),
    Exec(Exec),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    pub url: String,
    #[serde(default = "Http::get", skip_serializing_if = "Http::is_get")]
    pub method: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// How many redirects are followed; then the redirect itself is the answer.
    #[serde(default)]
    pub redirects: u8,
    /// How much of the answer is read. What is longer is cut, and counts as read.
    #[serde(default = "Http::body_max")]
    pub body_max: Bytes,
    #[serde(default)]
    pub version: Version,
    /// Asks over a connection of an earlier check, if there is one. It hides what a new visitor meets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reuse: bool,
}

impl Http {
    /// Asks for a page, as a browser would that was given nothing else.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            method: Self::get(),
            headers: BTreeMap::new(),
            body: String::new(),
            redirects: 0,
            body_max: Self::body_max(),
            version: Version::default(),
            reuse: false,
        }
    }

    fn get() -> String {
        "GET".into()
    }

    fn is_get(method: &String) -> bool {
        method == "GET"
    }

    fn body_max() -> Bytes {
        Bytes(1 << 20)
    }
}

/// Which HTTP is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Version {
    /// The best that both know.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "1.1")]
    One,
    /// Without TLS, from the first byte on.
    #[serde(rename = "2")]
    Two,
}

/// Opens a connection, and closes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// `host:port`
    pub address: String,
}

/// Looks at a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// `host:port`
    pub address: String,
    /// The name to ask for and to check, when it is not the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Asks a name server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dns {
    pub name: String,
    #[serde(default)]
    pub record: RecordKind,
    /// `address:port`; without it, the system's name servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RecordKind {
    #[default]
    A,
    Aaaa,
    Cname,
    Mx,
    Ns,
    Ptr,
    Soa,
    Srv,
    Txt,
}

/// Sends one echo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Icmp {
    pub host: String,
}

/// Runs a program on the worker, by the convention of Nagios plugins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    pub command: Vec<String>,
    /// All that it finds in its environment, besides a plain `PATH`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

impl Check {
    pub fn kind(&self) -> CheckKind {
        match self {
            Check::Http(_) => CheckKind::Http,
            Check::Tcp(_) => CheckKind::Tcp,
            Check::Tls(_) => CheckKind::Tls,
            Check::Dns(_) => CheckKind::Dns,
            Check::Icmp(_) => CheckKind::Icmp,
            Check::Exec(_) => CheckKind::Exec,
        }
    }

    pub fn word(&self) -> &'static str {
        self.kind().as_str()
    }

    /// Who is asked, as it is written: a host's name or address. Of what asks nobody in particular, the kind.
    pub fn host(&self) -> String {
        let of_address = |address: &str| split_address(address).map(|(host, _)| host);
        let host = match self {
            Check::Http(http) => target(&http.url).map(|uri| uri.host().unwrap_or_default().to_owned()),
            Check::Tcp(Tcp { address }) | Check::Tls(Tls { address, .. }) => of_address(address),
            Check::Dns(Dns { server: Some(server), .. }) => of_address(server),
            Check::Icmp(Icmp { host }) => Ok(host.clone()),
            Check::Dns(_) | Check::Exec(_) => Ok(self.word().to_owned()),
        };
        host.unwrap_or_else(|_| self.word().to_owned()).to_ascii_lowercase()
    }

    /// Whether it could work at all. Nothing is asked of anybody.
    pub fn check(&self) -> Result<(), Problem> {
        match self {
            Check::Http(http) => check_http(http),
            Check::Tcp(Tcp { address }) => split_address(address).map(drop).map_err(|why| wrong("tcp.address", why)),
            Check::Dns(dns) => check_dns(dns),
            Check::Icmp(Icmp { host }) if host.is_empty() || host.len() > HOST_CHARS_MAX => {
                Err(wrong("icmp.host", format!("a host's name has 1 to {HOST_CHARS_MAX} characters")))
            }
            Check::Icmp(_) => Ok(()),
            Check::Exec(exec) => check_exec(exec),
            Check::Tls(Tls { address, name }) => {
                split_address(address).map_err(|why| wrong("tls.address", why))?;
                match name {
                    Some(name) if rustls::pki_types::ServerName::try_from(name.as_str()).is_err() => {
                        Err(wrong("tls.name", format!("\"{}\" is not a host's name", short(name))))
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

fn check_dns(Dns { name, server, .. }: &Dns) -> Result<(), Problem> {
    let label = |label: &str| (1..=63).contains(&label.len());
    if name.len() > HOST_CHARS_MAX || !name.trim_end_matches('.').split('.').all(label) {
        return Err(wrong("dns.name", format!("\"{}\" is not a name that a name server could know", short(name))));
    }
    let Some(server) = server else { return Ok(()) };
    let (host, _) = split_address(server).map_err(|why| wrong("dns.server", why))?;
    match host.parse::<std::net::IpAddr>() {
        Ok(_) => Ok(()),
        Err(_) => Err(wrong("dns.server", format!("\"{}\" is a name: a name server has an address", short(&host)))
            .remedy("write it like 192.0.2.53:53")),
    }
}

fn check_exec(Exec { command, env }: &Exec) -> Result<(), Problem> {
    if command.first().is_none_or(String::is_empty) {
        return Err(wrong("exec.command", "there is no program to run").remedy("write it like [ /bin/check, -v ]"));
    }
    let sent: usize =
        command.iter().map(String::len).sum::<usize>() + env.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
    if sent > COMMAND_BYTES_MAX {
        return Err(wrong("exec.command", format!("{sent} bytes are too many, the most is {COMMAND_BYTES_MAX}")));
    }
    let broken = |text: &String| text.contains('\0');
    if command.iter().any(broken) || env.iter().any(|(key, value)| broken(key) || broken(value) || key.contains('=')) {
        return Err(wrong("exec.command", "no argument or variable may have a zero byte, nor a variable's name a ="));
    }
    Ok(())
}

fn check_http(check: &Http) -> Result<(), Problem> {
    let Http { url, method, headers, body, redirects, body_max, .. } = check;
    target(url).map_err(|why| wrong("http.url", why))?;
    http::Method::from_bytes(method.as_bytes())
        .map_err(|_| wrong("http.method", format!("\"{}\" is not a method", short(method))))?;
    if headers.len() > HEADERS_MAX {
        return Err(wrong("http.headers", format!("{} are too many, the most is {HEADERS_MAX}", headers.len())));
    }
    for (name, value) in headers {
        let field = format!("http.headers.{}", short(name));
        http::HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(&field, "this is not a header's name"))?;
        http::HeaderValue::from_str(value).map_err(|_| wrong(&field, "its value has signs that no header may have"))?;
    }
    if body.len() > SENT_BYTES_MAX {
        return Err(wrong("http.body", format!("{} bytes are too many, the most is {SENT_BYTES_MAX}", body.len())));
    }
    if *redirects > REDIRECTS_MAX {
        return Err(wrong("http.redirects", format!("{redirects} are too many, the most is {REDIRECTS_MAX}")));
    }
    if body_max.0 > BODY_MAX {
        return Err(wrong("http.body_max", format!("{body_max} is too much, the most is {}", Bytes(BODY_MAX))));
    }
    Ok(())
}

/// Reads a URL that can be probed.
pub(crate) fn target(url: &str) -> Result<http::Uri, String> {
    let said = short(url);
    let uri: http::Uri = url.parse().map_err(|_| format!("\"{said}\" is not a URL"))?;
    if url.len() > TEXT_CHARS_MAX {
        return Err(format!("it has {} characters, the most is {TEXT_CHARS_MAX}", url.len()));
    }
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(other) => return Err(format!("{other} is not probed, http and https are")),
        None => return Err(format!("\"{said}\" has no http:// or https:// in front")),
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err("it has a user or a password in it: give them as a header".into());
    }
    let Some(host) = uri.host().filter(|host| !host.is_empty()) else {
        return Err(format!("\"{said}\" names no host"));
    };
    // Whoever reads a port that is none takes the usual one, and would probe that.
    match authority.strip_prefix(host).and_then(|rest| rest.strip_prefix(':')) {
        Some(port) if port.parse::<u16>().map_or(true, |port| port == 0) => {
            Err(format!("\"{}\" is not a port, 1 to 65535 are", short(port)))
        }
        _ => Ok(uri),
    }
}

/// `host:port`, also `[::1]:443`.
pub(crate) fn split_address(address: &str) -> Result<(String, u16), String> {
    let wrong = || format!("\"{}\" is not an address: write it like db.example.org:5432", short(address));
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    if host.is_empty()
        || host.len() > HOST_CHARS_MAX
        || (host.contains(':') && host.parse::<std::net::Ipv6Addr>().is_err())
    {
        return Err(wrong());
    }
    Ok((host.to_owned(), port))
}

fn short(text: &str) -> String {
    text.chars().take(100).collect()
}

fn wrong(field: &str, detail: impl Into<String>) -> Problem {
    Problem::invalid(field, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        serde_json::from_str::<Check>(json).unwrap_or_else(|e| panic!("{json}: {e}")).check().expect_err(json).line()
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place() {
        for (json, words) in [
            (r#"{"http": {"url": "shop.example.org/x"}}"#, "http.url: \"shop.example.org/x\" is not a URL"),
            (r#"{"http": {"url": "/health"}}"#, "http.url: \"/health\" has no http:// or https:// in front"),
            (r#"{"http": {"url": "ftp://x/y"}}"#, "http.url: ftp is not probed, http and https are"),
            (r#"{"http": {"url": "http://x:99999/"}}"#, "http.url: \"99999\" is not a port, 1 to 65535 are"),
            (r#"{"http": {"url": "http://[::1]:0/"}}"#, "http.url: \"0\" is not a port, 1 to 65535 are"),
            (r#"{"http": {"url": "https://x:abc/"}}"#, "http.url: \"abc\" is not a port, 1 to 65535 are"),
            (r#"{"http": {"url": "http://ana:pw@x/"}}"#, "http.url: it has a user or a password in it"),
            (r#"{"http": {"url": "http://x", "method": "G ET"}}"#, "http.method: \"G ET\" is not a method"),
            (
                r#"{"http": {"url": "http://x", "headers": {"a b": "c"}}}"#,
                "http.headers.a b: this is not a header's name",
            ),
            (r#"{"http": {"url": "http://x", "redirects": 21}}"#, "http.redirects: 21 are too many, the most is 20"),
            (r#"{"http": {"url": "http://x", "body_max": "1GiB"}}"#, "http.body_max: 1GiB is too much"),
            (r#"{"tcp": {"address": "db.example.org"}}"#, "tcp.address: \"db.example.org\" is not an address"),
            (r#"{"tcp": {"address": "db:0"}}"#, "tcp.address: \"db:0\" is not an address"),
            (r#"{"dns": {"name": "a..b"}}"#, "dns.name: \"a..b\" is not a name"),
            (r#"{"dns": {"name": "a", "server": "ns.example.org:53"}}"#, "dns.server: \"ns.example.org\" is a name"),
            (r#"{"icmp": {"host": ""}}"#, "icmp.host: a host's name has 1 to 253"),
            (r#"{"exec": {"command": []}}"#, "exec.command: there is no program to run"),
            (r#"{"exec": {"command": ["x"], "env": {"a=b": "c"}}}"#, "exec.command: no argument or variable"),
            (r#"{"tls": {"address": "x:443", "name": "a b"}}"#, "tls.name: \"a b\" is not a host's name"),
        ] {
            let line = refusal(json);
            assert!(line.starts_with(words), "{line}");
        }
    }

    #[test]
    fn a_check_says_whom_it_asks() {
        for (json, host) in [
            (r#"{"http": {"url": "https://Shop.example.org:8443/x"}}"#, "shop.example.org"),
            (r#"{"tls": {"address": "[::1]:443"}}"#, "::1"),
            (r#"{"dns": {"name": "a.example.org", "server": "192.0.2.53:53"}}"#, "192.0.2.53"),
            (r#"{"dns": {"name": "a.example.org"}}"#, "dns"),
            (r#"{"icmp": {"host": "gw"}}"#, "gw"),
            (r#"{"exec": {"command": ["x"]}}"#, "exec"),
        ] {
            assert_eq!(serde_json::from_str::<Check>(json).unwrap().host(), host, "{json}");
        }
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        assert_eq!(split_address("[::1]:443"), Ok(("::1".into(), 443)));
        assert_eq!(split_address("db:5432"), Ok(("db".into(), 5432)));
        assert!(split_address("::1:443").is_ok(), "the last part is the port");
        assert!(split_address("a:b:443").is_err());
    }
}
