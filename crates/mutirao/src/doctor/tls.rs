//! TLS as far as it can be seen from here: the certificate that was shown to us, and the settings of this machine.

use std::net::IpAddr;

use mutirao_core::Timestamp;
use mutirao_tls::{EXPIRES_SOON, days_left};

use super::Finding;
use crate::config::Settings;
use crate::failure::Failure;
use crate::tls;

const WHAT: &str = "TLS";
const RENEW: &str = "renew it, then start the API again";

/// The files that the settings name.
pub fn files(settings: &Settings, now: Timestamp) -> Vec<Finding> {
    match tls::serving(settings) {
        Ok(serving) => {
            let warnings = tls::warnings(settings, serving.as_ref(), now).into_iter();
            warnings.map(|line| told(line, Finding::warn)).collect()
        }
        Err(Failure::Said { line, .. }) => vec![told(line, Finding::fail)],
        Err(_) => Vec::new(),
    }
}

/// A line carries its own remedy, after the last semicolon.
fn told(line: String, finding: fn(&'static str, String, String) -> Finding) -> Finding {
    match line.rsplit_once("; ") {
        Some((found, remedy)) => finding(WHAT, found.into(), remedy.into()),
        None => finding(WHAT, line, "set tls.cert and tls.key to a certificate and its key in PEM".into()),
    }
}

/// The connection that was made to `url`, with the end of the certificate that was shown.
pub fn connection(url: &str, until: Option<Timestamp>, now: Timestamp) -> Finding {
    match until {
        Some(until) if until < now => Finding::fail(WHAT, format!("the certificate expired on {until}"), RENEW),
        Some(until) => {
            let found = format!("on; the certificate has {} days left", days_left(until, now));
            if until.since(now) < EXPIRES_SOON { Finding::warn(WHAT, found, RENEW) } else { Finding::ok(WHAT, found) }
        }
        None if stays_here(url) => Finding::ok(WHAT, "off; what is said does not leave this machine"),
        None => Finding::warn(WHAT, "off; tokens travel in the clear", "set tls.cert and tls.key where the API runs"),
    }
}

fn stays_here(url: &str) -> bool {
    let authority = url.split("//").nth(1).unwrap_or(url).trim_end_matches('/');
    let host = authority.rsplit_once(':').map_or(authority, |(host, _port)| host);
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::super::Mark;
    use super::*;

    #[test]
    fn the_days_left_decide() {
        let day = 86_400_000;
        let mark = |days: i64| connection("https://h:1", Some(Timestamp(days * day)), Timestamp(100 * day)).mark;
        assert_eq!([mark(99), mark(110), mark(300)], [Mark::Fail, Mark::Warn, Mark::Ok]);
        let left = connection("https://h:1", Some(Timestamp(130 * day)), Timestamp(100 * day));
        assert!(left.found.contains("30 days left"), "{}", left.found);
    }

    #[test]
    fn plain_is_fine_only_at_home() {
        let mark = |url| connection(url, None, Timestamp(0)).mark;
        for home in ["http://127.0.0.1:7070", "http://[::1]:7070/", "http://localhost:1", "http://localhost"] {
            assert_eq!(mark(home), Mark::Ok, "{home}");
        }
        assert_eq!([mark("http://10.0.0.1:1"), mark("http://lab.example:1")], [Mark::Warn, Mark::Warn]);
    }
}
