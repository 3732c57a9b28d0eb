//! Why no TLS came about, out of whatever errors other libraries wrap it in.

use std::error::Error as StdError;
use std::io;

use rustls::{CertificateError, Error};

/// A fault that trying again does not mend: a setting is wrong, on one side or the other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The server's certificate is not believed; why, and what would help.
    #[error("its certificate is not trusted: {0}")]
    Distrusted(String),
    /// Something answered, in another language.
    #[error("it does not speak TLS; write http:// instead of https://, or give the server a certificate (tls.cert)")]
    NotTls,
}

impl Fault {
    /// Looks through an error and its causes.
    pub fn find(error: &(dyn StdError + 'static)) -> Option<Fault> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(fault) = error.downcast_ref().and_then(Self::of) {
                return Some(fault);
            }
            // An I/O error does not count what it carries among its causes.
            if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref)
                && let Some(fault) = Self::find(inner)
            {
                return Some(fault);
            }
            next = error.source();
        }
        None
    }

    fn of(error: &Error) -> Option<Fault> {
        match error {
            Error::InvalidCertificate(CertificateError::Other(why)) => Some(Self::Distrusted(why.0.to_string())),
            Error::InvalidCertificate(why) => Some(Self::Distrusted(why.to_string())),
            Error::InvalidMessage(_) => Some(Self::NotTls),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_found_however_deep() {
        let inner = Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, inner));
        assert_eq!(Fault::find(&wrapped), Some(Fault::NotTls));
        assert_eq!(Fault::find(&io::Error::other("else")), None);
    }
}
