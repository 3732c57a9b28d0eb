//! Is this the server we mean? webpki's answer, plus two things that it does not know: a certificate that is pinned, and
//! one that was named as its own authority although it may sign others (which is what `openssl req -x509` makes).

use std::path::PathBuf;
use std::sync::Arc;

use mutirao_core::Timestamp;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};

use crate::certificate::{stamp, until};
use crate::{files, provider};

/// Why a certificate is not believed, and what would help.
#[derive(Debug, thiserror::Error)]
enum Distrust {
    #[error("no authority that we trust has signed it; name the one that has with tls.ca or MUTIRAO_TLS_CA")]
    Stranger,
    #[error("it expired on {0}; renew it where the server runs")]
    Expired(Timestamp),
    #[error("it is good only from {0} on; are the clocks right?")]
    TooEarly(Timestamp),
    #[error("it is not for {asked}{}; reach the server by a name that it is for", but_for(.names))]
    OtherName { asked: String, names: Vec<String> },
    /// Most likely it may sign others, which a server's own should not.
    #[error("it is not made for a server ({0}); if you know it, name it with tls.ca or MUTIRAO_TLS_CA")]
    Unfit(OtherError),
    #[error("{0}")]
    Other(Error),
}

fn but_for(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(", but for {}", names.join(", ")) }
}

#[derive(Debug)]
pub struct Verifier {
    roots: RootCertStore,
    /// Those among the roots that people named themselves.
    own: Vec<CertificateDer<'static>>,
    pin: Option<PathBuf>,
    algorithms: WebPkiSupportedAlgorithms,
    last: Mutex<Option<Timestamp>>,
}

impl Verifier {
    pub fn new(roots: RootCertStore, own: Vec<CertificateDer<'static>>, pin: Option<PathBuf>) -> Self {
        let algorithms = provider().signature_verification_algorithms;
        Self { roots, own, pin, algorithms, last: Mutex::default() }
    }

    pub fn last_until(&self) -> Option<Timestamp> {
        *self.last.lock()
    }

    fn is_pinned(&self, shown: &CertificateDer<'_>) -> bool {
        // A few kilobytes of a local file, once a connection.
        let pinned = self.pin.as_deref().and_then(|pin| files::certificates(pin).ok());
        pinned.is_some_and(|pinned| pinned.first() == Some(shown))
    }

    fn check(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let cert = ParsedCertificate::try_from(shown)?;
        let signed = verify_server_cert_signed_by_trust_anchor(&cert, &self.roots, chain, now, self.algorithms.all);
        match signed {
            // webpki looks at the dates first, so any other complaint is about what it was made for.
            Err(error) if self.own.iter().any(|own| own == shown) && !is_about_time(&error) => {}
            signed => signed?,
        }
        verify_server_name(&cert, name)
    }
}

fn is_about_time(error: &Error) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let Error::InvalidCertificate(why) = error else { return false };
    matches!(why, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

/// webpki writes `DnsName("lab.example")` and `IpAddress(127.0.0.1)`.
fn plain(name: &str) -> String {
    let inner = name.split_once('(').map_or(name, |(_kind, inner)| inner.trim_end_matches(')'));
    inner.trim_matches('"').into()
}

/// The same error in words, where there are better ones.
fn in_words(error: Error, name: &ServerName<'_>) -> Error {
    let why = match error {
        // The signature is bad when another authority goes by the same name.
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            Distrust::Stranger
        }
        Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
            Distrust::Expired(stamp(not_after))
        }
        Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. }) => {
            Distrust::TooEarly(stamp(not_before))
        }
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) => {
            let names = presented.iter().map(|name| plain(name)).collect();
            Distrust::OtherName { asked: name.to_str().into(), names }
        }
        Error::InvalidCertificate(CertificateError::Other(why)) => Distrust::Unfit(why),
        error => Distrust::Other(error),
    };
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.is_pinned(end_entity) {
            let checked = self.check(end_entity, intermediates, server_name, now);
            checked.map_err(|error| in_words(error, server_name))?;
        }
        *self.last.lock() = until(end_entity).ok();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
