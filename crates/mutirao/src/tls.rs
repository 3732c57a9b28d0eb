//! TLS as the settings ask for it: what the API shows, whom commands and workers believe. How it is done is the `tls`
//! crate's.

use std::path::{Path, PathBuf};

use mutirao_client::{Believe, Trust};
use mutirao_core::Timestamp;
use mutirao_tls::{Serving, TlsError};

use crate::config::Settings;
use crate::failure::Failure;

/// In the data folder: the certificate that the installation shows, so that what runs on the same machine believes it
/// without being told.
const PIN_FILE: &str = "tls.pem";

/// What the API shows; none when it speaks plain HTTP.
pub fn serving(settings: &Settings) -> Result<Option<Serving>, Failure> {
    match (settings.tls_cert.given(), settings.tls_key.given()) {
        (Some(cert), Some(key)) => {
            let wrong = |error: TlsError| Failure::usage(format!("tls.cert, tls.key: {error}"));
            Serving::load(&cert.0, &key.0).map(Some).map_err(wrong)
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(Failure::usage("tls.cert is set and tls.key is not; set both or neither")),
        (None, Some(_)) => Err(Failure::usage("tls.key is set and tls.cert is not; set both or neither")),
    }
}

/// What a person should know before others connect.
pub fn warnings(settings: &Settings, serving: Option<&Serving>, now: Timestamp) -> Vec<String> {
    match serving {
        Some(serving) => serving.warnings(now),
        None if settings.listen.ip().is_loopback() => Vec::new(),
        None => vec![format!(
            "{} can be reached from other machines, and tokens travel in the clear; set tls.cert and tls.key",
            settings.listen
        )],
    }
}

pub fn pin_file(data: &Path) -> PathBuf {
    data.join(PIN_FILE)
}

/// All of it or nothing: a connection may be made while it is written.
pub fn keep_pin(data: &Path, serving: &Serving) -> std::io::Result<()> {
    let beside = data.join(format!("{PIN_FILE}.new"));
    std::fs::write(&beside, serving.pem())?;
    std::fs::rename(&beside, pin_file(data))
}

/// Whom to believe when speaking with `url`. The pin is for the installation of this machine only.
pub fn trust(settings: &Settings, url: &str, pin: Option<PathBuf>) -> Result<Trust, Failure> {
    let believe = Believe { ca: settings.tls_ca.given().map(|file| file.0.clone()), pin };
    Trust::for_url(url, &believe).map_err(|error| Failure::usage(format!("tls.ca: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, FromFlags, Given};

    fn settings(pairs: &[&str]) -> Settings {
        let given = pairs.iter().map(|pair| Given::pair(pair).unwrap()).collect();
        Config::load(&FromFlags { file: None, given }, []).unwrap().settings
    }

    fn line(result: Result<Option<Serving>, Failure>) -> String {
        match result {
            Err(Failure::Said { code: 2, line }) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn half_a_certificate_is_refused() {
        assert!(serving(&settings(&[])).unwrap().is_none());
        assert!(line(serving(&settings(&["tls.cert=/c"]))).contains("tls.key is not"));
        assert!(line(serving(&settings(&["tls.key=/k"]))).contains("tls.cert is not"));
        assert!(line(serving(&settings(&["tls.cert=/no/c", "tls.key=/no/k"]))).contains("there is no file /no/c"));
    }

    #[test]
    fn only_a_listener_for_others_is_warned_about() {
        let told = |listen: &str| warnings(&settings(&[&format!("listen={listen}")]), None, Timestamp(0)).len();
        assert_eq!([told("127.0.0.1:1"), told("[::1]:1"), told("0.0.0.0:1"), told("10.0.0.1:1")], [0, 0, 1, 1]);
    }
}
