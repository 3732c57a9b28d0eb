//! Reading PEM files, and saying in one line what is wrong with them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Certificates of every authority in the world are a quarter of this; past it somebody named the wrong file.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error("there is no file {}", path.display())]
    Missing { path: PathBuf },
    #[error("{} cannot be read: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("{} holds no certificate in PEM: it must have a line -----BEGIN CERTIFICATE-----", path.display())]
    NoCertificate { path: PathBuf },
    #[error("{} holds no private key in PEM, or one that is locked by a password: unlock it first", path.display())]
    NoKey { path: PathBuf },
    #[error("the key in {} does not belong to the certificate in {}", key.display(), cert.display())]
    Mismatch { cert: PathBuf, key: PathBuf },
    #[error("{} cannot be used: {why}", path.display())]
    Unusable { path: PathBuf, why: String },
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let none = || TlsError::NoCertificate { path: path.into() };
    let text = read(path)?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().map_err(|_| none())?;
    if all.is_empty() { Err(none()) } else { Ok(all) }
}

pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|_| TlsError::NoKey { path: path.into() })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |why: String| TlsError::Unreadable { path: path.into(), why };
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => TlsError::Missing { path: path.into() },
        ErrorKind::PermissionDenied => unreadable("you may not".into()),
        _ => unreadable(error.to_string()),
    };
    let meta = std::fs::metadata(path).map_err(failed)?;
    if !meta.is_file() {
        return Err(unreadable("it is not a file".into()));
    }
    if meta.len() > FILE_BYTES_MAX {
        return Err(unreadable(format!("it has {} bytes, the most is {FILE_BYTES_MAX}", meta.len())));
    }
    std::fs::read(path).map_err(failed)
}
