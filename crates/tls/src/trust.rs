//! Whom a client believes: the system's authorities, one's own, or exactly one certificate.

use std::path::PathBuf;
use std::sync::Arc;

use mutirao_core::Timestamp;
use rustls::{ClientConfig, RootCertStore};

use crate::verify::Verifier;
use crate::{ALPN, TlsError, files, provider};

/// How the addresses begin of those who speak TLS.
const ENCRYPTED: [&str; 4] = ["https:", "amqps:", "mqtts:", "rediss:"];

/// What a client was told to believe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Believe {
    /// Authorities to believe besides the system's (PEM). A server's own certificate may be among them.
    pub ca: Option<PathBuf>,
    /// The file in which a server of this machine says what it shows. Exactly that is believed, under any name and at
    /// any time: who may write the file is that server. Read again for each connection, since a restart may change it.
    pub pin: Option<PathBuf>,
}

/// A client's side of TLS, to be shared by its connections.
#[derive(Clone)]
pub struct Trust {
    config: Arc<ClientConfig>,
    verifier: Arc<Verifier>,
}

impl Trust {
    /// What is needed to speak with `url`. Plain addresses need nothing, and no file is read for them.
    pub fn for_url(url: &str, believe: &Believe) -> Result<Self, TlsError> {
        if !ENCRYPTED.iter().any(|scheme| url.starts_with(scheme)) {
            return Ok(Self::nobody());
        }
        let mut roots = RootCertStore::empty();
        if believe.pin.is_none() {
            // A system without any is no error: then only one's own count.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let own = believe.ca.as_deref().map_or(Ok(Vec::new()), files::certificates)?;
        for cert in &own {
            roots.add(cert.clone()).map_err(|error| TlsError::Unusable {
                path: believe.ca.clone().unwrap_or_default(),
                why: error.to_string(),
            })?;
        }
        Ok(Self::build(Verifier::new(roots, own, believe.pin.clone())))
    }

    /// For those who speak in the clear: no certificate would be believed.
    pub fn nobody() -> Self {
        Self::build(Verifier::new(RootCertStore::empty(), Vec::new(), None))
    }

    fn build(verifier: Verifier) -> Self {
        let verifier = Arc::new(verifier);
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("our provider speaks TLS 1.2 and 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN.into()];
        Self { config: Arc::new(config), verifier }
    }

    /// To speak HTTP.
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// To speak something else; `None` when it has no name (ALPN).
    pub fn config_for(&self, protocol: Option<&[u8]>) -> Arc<ClientConfig> {
        let mut config = (*self.config).clone();
        config.alpn_protocols = protocol.map(Into::into).into_iter().collect();
        Arc::new(config)
    }

    /// When the certificate ends that was last shown and believed; none before the first connection.
    pub fn certificate_until(&self) -> Option<Timestamp> {
        self.verifier.last_until()
    }
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trust")
    }
}
