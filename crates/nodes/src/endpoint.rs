//! Where a node says that it answers HTTP. It says so itself, and whatever it says is asked by us: so no address of the machine's
//! own surroundings is taken, and none of the machine itself, where much lets in whoever comes, unless the node speaks from there
//! or a setting allows it. It is looked at when the node registers, and, since names may lead anywhere, before each request.

use std::net::IpAddr;

use mutirao_probes::reach::{is_loopback, is_stranger};
use reqwest::Url;

/// Whether nodes may be on this very machine though they did not come from there (`nodes.loopback`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loopback {
    #[default]
    Refused,
    Allowed,
}

impl Loopback {
    /// For a node that spoke from this very machine, if that is known.
    pub fn or_near(self, near: bool) -> Self {
        if near { Self::Allowed } else { self }
    }

    /// Why a node is not looked for there, if it is not.
    pub fn forbids(self, ip: IpAddr) -> Option<String> {
        match ip {
            _ if is_stranger(ip) => {
                Some(format!("{ip} is an address of this machine's surroundings or of its cloud, where no node is"))
            }
            _ if is_loopback(ip) && self == Self::Refused => Some(on_this_machine(&ip.to_string())),
            _ => None,
        }
    }
}

fn on_this_machine(host: &str) -> String {
    format!(
        "{host} is an address of the manager's own machine; a node that is there registers by HTTP from there, any other leaves its \
         endpoint empty or gives an address that the manager reaches; nodes.loopback=allowed lets it be"
    )
}

/// What it is, if nodes may be there as far as one sees without looking its name up.
pub fn read(endpoint: &str, loopback: Loopback) -> Result<Url, String> {
    let how = || format!("\"{endpoint}\" is no endpoint: write it like http://192.168.1.20:8080, or leave it empty");
    let url: Url = endpoint.parse().map_err(|_| how())?;
    let plain =
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    let host = url.host_str().filter(|host| !host.is_empty() && plain && matches!(url.scheme(), "http" | "https"));
    let host = host.ok_or_else(how)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let forbidden = match bare.parse::<IpAddr>() {
        Ok(ip) => loopback.forbids(ip),
        Err(_) => (is_localhost(bare) && loopback == Loopback::Refused).then(|| on_this_machine(bare)),
    };
    forbidden.map_or(Ok(url), Err)
}

/// The name that leads nowhere else.
pub fn is_localhost(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_of_another_machine_and_nothing_more() {
        for good in ["http://192.168.1.20:8080", "https://gate.example.org/base/", "http://[2001:db8::1]:80"] {
            assert!(read(good, Loopback::Refused).is_ok(), "{good}");
        }
        for bad in
            ["not a url", "mqtt://host", "http://", "http://a?y=1", "http://a#x", "http://u:p@a", "/base", "host:80"]
        {
            assert!(read(bad, Loopback::Allowed).unwrap_err().contains("is no endpoint: write it like"), "{bad}");
        }
        for own in
            ["127.0.0.1:1", "127.1", "2130706433", "localhost", "a.LOCALHOST.", "[::1]:7070", "[::ffff:127.0.0.1]"]
        {
            let own = format!("http://{own}");
            let line = read(&own, Loopback::Refused).unwrap_err();
            assert!(line.contains("manager's own machine") && line.contains("nodes.loopback=allowed"), "{own}: {line}");
            assert!(read(&own, Loopback::Refused.or_near(true)).is_ok(), "{own}");
        }
        for never in ["169.254.169.254", "[::ffff:169.254.169.254]", "0.0.0.0", "[fe80::1]"] {
            let line = read(&format!("http://{never}"), Loopback::Allowed).unwrap_err();
            assert!(line.contains("where no node is"), "{never}: {line}");
        }
    }
}
