//! Whether the way to the server is encrypted, and whom to believe then: `sslmode` and `sslrootcert` of the address.
//!
//! Either plain, or encrypted with the server's certificate and name checked. libpq's halves in between (encrypt if the
//! server happens to offer it; encrypt and believe anybody) look safe and are not, so they are refused by name.

use std::path::PathBuf;

use mutirao_tls::{Believe, Trust};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// What libpq since 17 offers, and what a server of that version insists on.
const ALPN: &[u8] = b"postgresql";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub mode: SslMode,
    ca: Option<PathBuf>,
}

impl Wanted {
    /// Takes what is about TLS out of the address, since the client knows only a part of it, and returns the rest.
    pub fn take_from(url: &str) -> Result<(Wanted, String), String> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut wanted = Wanted { mode: SslMode::Disable, ca: None };
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", "disable")) => wanted.mode = SslMode::Disable,
                Some(("sslmode", "require" | "verify-ca" | "verify-full")) => wanted.mode = SslMode::Require,
                Some(("sslmode", _)) => return Err("write sslmode=disable or sslmode=require in it".into()),
                Some(("sslrootcert", path)) => wanted.ca = Some(path.replace("%2F", "/").replace("%2f", "/").into()),
                _ => rest.push(pair),
            }
        }
        let rest = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        Ok((wanted, rest))
    }

    pub fn connector(&self) -> Result<MakeRustlsConnect, String> {
        let believe = Believe { ca: self.ca.clone(), pin: None };
        // The scheme says whether certificates of authorities are worth reading.
        let scheme = if self.mode == SslMode::Require { "https:" } else { "http:" };
        let trust = Trust::for_url(scheme, &believe).map_err(|error| error.to_string())?;
        Ok(MakeRustlsConnect::new((*trust.config_for(Some(ALPN))).clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_tls_is_taken_out_and_the_rest_stays() {
        let (wanted, rest) =
            Wanted::take_from("postgres://u@h/d?a=1&sslmode=verify-full&sslrootcert=%2Fca.pem&b=2").unwrap();
        assert_eq!(rest, "postgres://u@h/d?a=1&b=2");
        assert_eq!(wanted, Wanted { mode: SslMode::Require, ca: Some("/ca.pem".into()) });
        let (plain, rest) = Wanted::take_from("postgres://u@h/d?sslmode=disable").unwrap();
        assert_eq!((plain.mode, rest.as_str()), (SslMode::Disable, "postgres://u@h/d"));
    }

    #[test]
    fn half_a_protection_is_refused_by_name() {
        for half in ["prefer", "allow", "sure"] {
            let why = Wanted::take_from(&format!("postgres://u@h/d?sslmode={half}")).unwrap_err();
            assert!(why.contains("sslmode=require"), "{why}");
        }
    }
}
