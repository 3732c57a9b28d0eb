//! Certificates for tests: an authority of one's own, and what it signs. Real ones, in real files.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

/// Whether a certificate is still good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Good {
    ForLong,
    NoLonger,
}

/// A certificate and its key, as PEM files.
#[derive(Clone, Debug)]
pub struct Pair {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// An authority that nobody knows. Its files go with it.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    #[allow(clippy::new_without_default, reason = "each is another; a default would promise the same")]
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (params, key) = (authority_of("Test Authority"), KeyPair::generate().expect("a key"));
        let cert = params.self_signed(&key).expect("a certificate");
        write(&dir, "ca.pem", &cert.pem());
        Self { issuer: Issuer::new(params, key), dir }
    }

    /// Its own certificate: what those who believe it are given.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Signs a certificate for these names and addresses.
    pub fn issue(&self, names: &[&str], good: Good) -> Pair {
        let mut params = CertificateParams::new(texts(names)).expect("names");
        if good == Good::NoLonger {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 3, 4));
        }
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        self.pair(&cert.pem(), &key)
    }

    /// What `openssl req -x509` makes: signed by itself, and fit to sign others. Has nothing to do with the authority.
    pub fn self_signed(&self, name: &str) -> Pair {
        let mut params = authority_of(name);
        params.subject_alt_names = CertificateParams::new(texts(&[name])).expect("a name").subject_alt_names;
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a certificate");
        self.pair(&cert.pem(), &key)
    }

    fn pair(&self, cert: &str, key: &KeyPair) -> Pair {
        let folder = tempfile::tempdir_in(self.dir.path()).expect("a temporary folder");
        let pair =
            Pair { cert: write(&folder, "cert.pem", cert), key: write(&folder, "key.pem", &key.serialize_pem()) };
        // Goes with the authority's.
        let _ = folder.keep();
        pair
    }
}

fn authority_of(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// Readable by its owner only, as a key should be.
fn write(dir: &TempDir, name: &str, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.path().join(name);
    std::fs::write(&path, text).expect("a file in a temporary folder");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("our own file");
    path
}
