//! Is the request meant for us? A page on the web can make a browser send requests to this machine, under a name of its
//! own that it points at a local address (DNS rebinding). So the name must be one of ours, and a page that asks must be
//! our own page.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use mutirao_core::Problem;

/// The names we go by, besides `localhost` and addresses: an address cannot be rebound.
#[derive(Debug)]
pub struct Names(Vec<String>);

impl Names {
    pub fn new(hosts: &[String]) -> Self {
        Self(hosts.iter().map(|host| host.to_ascii_lowercase()).collect())
    }

    fn has(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is = |name: &str| host.eq_ignore_ascii_case(name);
        let last = host.rsplit_once('.').map_or(host, |(_, last)| last);
        bare.parse::<IpAddr>().is_ok() || last.eq_ignore_ascii_case("localhost") || self.0.iter().any(|name| is(name))
    }

    /// Refuses what is not for us.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = match (uri.authority(), hosts.next(), hosts.next()) {
            (Some(authority), ..) => Some(authority.clone()),
            (None, Some(host), None) => Authority::try_from(host.as_bytes()).ok(),
            _ => None,
        };
        let host = host.ok_or_else(|| Problem::malformed("the request needs one Host header"))?;
        if !self.has(host.host()) {
            return Err(Problem::new(421, "misdirected", "this server is not called that")
                .detail(format!("the request is for \"{}\"", host.host()))
                .remedy("use its address, or add the name to the setting api.hosts"));
        }
        match headers.get(header::ORIGIN) {
            None => Ok(()),
            Some(origin) => {
                let page = origin.to_str().ok().and_then(|text| text.parse::<Uri>().ok()?.into_parts().authority);
                match page {
                    Some(page) if page == host || self.0.iter().any(|name| name == page.host()) => Ok(()),
                    _ => Err(Problem::forbidden("a page of another site asks")
                        .remedy("add its host to the setting api.hosts if it is yours")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn status(host: &str, origin: Option<&str>) -> u16 {
        let names = Names::new(&["Lab.Example".into()]);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        names.check(&Uri::from_static("/v1/jobs"), &headers).map_or_else(|problem| problem.status, |()| 200)
    }

    #[test]
    fn only_our_names_are_answered_to() {
        for ours in [
            "localhost:7070",
            "127.0.0.1:7070",
            "[::1]:7070",
            "10.1.2.3",
            "lab.example",
            "LAB.example:80",
            "a.localhost",
        ] {
            assert_eq!(status(ours, None), 200, "{ours}");
        }
        for other in ["evil.example:7070", "127.0.0.1.evil.example", "localhost.evil.example"] {
            assert_eq!(status(other, None), 421, "{other}");
        }
        assert_eq!(status("", None), 400);
    }

    #[test]
    fn only_our_own_pages_may_ask() {
        assert_eq!(status("localhost:7070", Some("http://localhost:7070")), 200);
        assert_eq!(status("localhost:7070", Some("https://lab.example")), 200);
        for page in ["http://evil.example", "http://localhost:3000", "null", "file://"] {
            assert_eq!(status("localhost:7070", Some(page)), 403, "{page}");
        }
    }
}
