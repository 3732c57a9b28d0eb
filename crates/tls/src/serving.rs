//! What a server shows: a certificate with its chain, and the key to it. Read once; a new certificate needs a restart.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use mutirao_core::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::{Error, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::certificate::{EXPIRES_SOON, days_left, fits_a_server, until};
use crate::{ALPN, TlsError, files, provider};

#[derive(Clone)]
pub struct Serving {
    config: Arc<ServerConfig>,
    own: CertificateDer<'static>,
    until: Timestamp,
    cert_file: PathBuf,
    key_file: PathBuf,
}

impl Serving {
    /// Reads both files and checks that they belong together.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let unusable = |error: Error| TlsError::Unusable { path: cert.into(), why: error.to_string() };
        let chain = files::certificates(cert)?;
        let secret = files::private_key(key)?;
        let own = chain[0].clone();
        let until = until(&own).map_err(unusable)?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|error| match error {
                Error::InconsistentKeys(_) => TlsError::Mismatch { cert: cert.into(), key: key.into() },
                error => TlsError::Unusable { path: key.into(), why: error.to_string() },
            })?;
        config.alpn_protocols = vec![ALPN.into()];
        let (cert_file, key_file) = (cert.to_owned(), key.to_owned());
        Ok(Self { config: Arc::new(config), own, until, cert_file, key_file })
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        self.config.clone().into()
    }

    /// To speak something else than HTTP; `None` when it has no name (ALPN), and then every name is taken.
    pub fn acceptor_for(&self, protocol: Option<&[u8]>) -> TlsAcceptor {
        let mut config = (*self.config).clone();
        config.alpn_protocols = protocol.map(Into::into).into_iter().collect();
        Arc::new(config).into()
    }

    /// When the certificate ends.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// The server's own certificate in PEM, for those who shall believe exactly this one. Never the key, which may
    /// well be in the same file.
    pub fn pem(&self) -> String {
        let text = STANDARD.encode(&self.own);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }

    /// What will do harm, now or soon, and is no reason not to start. One line each.
    pub fn warnings(&self, now: Timestamp) -> Vec<String> {
        let (cert, key) = (self.cert_file.display(), self.key_file.display());
        let mut warnings = Vec::new();
        if self.until < now {
            warnings.push(format!("the certificate in {cert} expired on {}; clients elsewhere refuse it", self.until));
        } else if self.until.since(now) < EXPIRES_SOON {
            let days = days_left(self.until, now);
            warnings.push(format!("the certificate in {cert} ends in {days} days, on {}; renew it", self.until));
        }
        if !fits_a_server(&self.own) {
            warnings.push(format!(
                "the certificate in {cert} is not made for a server (may it sign others?); clients elsewhere take it \
                 only when it is their tls.ca"
            ));
        }
        let mode = std::fs::metadata(&self.key_file).map_or(0, |meta| meta.permissions().mode() & 0o777);
        if mode & 0o077 != 0 {
            warnings.push(format!("the key in {key} is open to others ({mode:o}); chmod 600 {key}"));
        }
        warnings
    }
}

// Written by hand so that no key can slip into a log.
impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Serving({})", self.cert_file.display())
    }
}
