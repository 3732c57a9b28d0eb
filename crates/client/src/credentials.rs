//! How a caller proves who it is: a bearer token for people, an Ed25519 key for workers. The check is the server's.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signer as _, SigningKey};

use mutirao_core::auth::{SIGNATURE_SCHEME, signed_bytes};
use mutirao_core::dice::os_random;
use mutirao_core::{Clock, WorkerId};

const NONCE_BYTES: usize = 16;

#[derive(Clone)]
pub enum Credentials {
    Token(String),
    Key(Signer),
    /// For what anybody may ask: health, and enrolment with a one-time token.
    None,
}

/// A worker's secret key. Kept as base64 text in a file that only its owner can read.
#[derive(Clone)]
pub struct WorkerKey(Arc<SigningKey>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an Ed25519 key in base64")]
pub struct BadKey;

impl WorkerKey {
    pub fn generate() -> Self {
        let mut secret = [0u8; 32];
        os_random(&mut secret);
        Self(Arc::new(SigningKey::from_bytes(&secret)))
    }

    pub fn from_base64(text: &str) -> Result<Self, BadKey> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| BadKey)?;
        let secret: [u8; 32] = bytes.try_into().map_err(|_| BadKey)?;
        Ok(Self(Arc::new(SigningKey::from_bytes(&secret))))
    }

    /// The secret half. For the identity file and nothing else.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0.to_bytes())
    }

    /// The half that enrolment gives away.
    pub fn public_base64(&self) -> String {
        STANDARD.encode(self.0.verifying_key().as_bytes())
    }

    /// A signature in base64, of what is no request.
    pub fn sign(&self, bytes: &[u8]) -> String {
        STANDARD.encode(self.0.sign(bytes).to_bytes())
    }
}

/// Signs requests in the name of an enrolled worker.
#[derive(Clone)]
pub struct Signer {
    worker: WorkerId,
    key: WorkerKey,
    clock: Arc<dyn Clock>,
}

impl Signer {
    pub fn new(worker: WorkerId, key: WorkerKey, clock: Arc<dyn Clock>) -> Self {
        Self { worker, key, clock }
    }

    pub fn worker(&self) -> &WorkerId {
        &self.worker
    }

    /// The `Authorization` header of one request, good for one use within a minute of now.
    pub fn authorize(&self, method: &str, path_and_query: &str, body: &[u8]) -> String {
        let mut nonce = [0u8; NONCE_BYTES];
        os_random(&mut nonce);
        let nonce: String = nonce.iter().map(|b| format!("{b:02x}")).collect();
        let time = self.clock.now();
        let signature = self.key.0.sign(&signed_bytes(method, path_and_query, body, time, &nonce));
        let sig = STANDARD.encode(signature.to_bytes());
        format!("{SIGNATURE_SCHEME} key={},time={},nonce={nonce},sig={sig}", self.worker, time.0)
    }
}

impl Credentials {
    pub(crate) fn authorize(&self, method: &str, path_and_query: &str, body: &[u8]) -> Option<String> {
        match self {
            Credentials::Token(token) => Some(format!("Bearer {token}")),
            Credentials::Key(signer) => Some(signer.authorize(method, path_and_query, body)),
            Credentials::None => None,
        }
    }
}

// Written by hand so that no secret can slip into a log.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Credentials::Token(_) => "Token(…)",
            Credentials::Key(_) => "Key(…)",
            Credentials::None => "None",
        })
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signature, Verifier};
    use mutirao_core::Timestamp;
    use mutirao_core::clock::ManualClock;

    use super::*;

    #[test]
    fn the_signature_verifies_for_this_request_and_no_other() {
        let key = WorkerKey::from_base64(&WorkerKey::generate().to_base64()).unwrap();
        let signer = Signer::new(WorkerId("w1".into()), key.clone(), ManualClock::starting_at(Timestamp(7_000)));
        let header = signer.authorize("PUT", "/v1/blobs/x?offset=0", b"hello");

        let fields = header.strip_prefix("Mutirao-Ed25519 ").unwrap();
        let field = |name: &str| {
            fields.split(',').find_map(|f| f.strip_prefix(name)?.strip_prefix('=')).unwrap_or_else(|| panic!("{name}"))
        };
        assert_eq!((field("key"), field("time")), ("w1", "7000"));
        let signature = Signature::from_slice(&STANDARD.decode(field("sig")).unwrap()).unwrap();
        let verify = |path: &str| {
            let bytes = signed_bytes("PUT", path, b"hello", Timestamp(7_000), field("nonce"));
            key.0.verifying_key().verify(&bytes, &signature)
        };
        assert!(verify("/v1/blobs/x?offset=0").is_ok());
        assert!(verify("/v1/blobs/x?offset=1").is_err());
    }

    #[test]
    fn no_secret_is_printed() {
        assert_eq!(format!("{:?}", Credentials::Token("mut_1_secret".into())), "Token(…)");
    }
}
