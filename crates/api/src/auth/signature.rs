//! A signed request, read and checked. Pure: who the key belongs to and whether the nonce is new is asked elsewhere.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, VerifyingKey};
use mutirao_core::Timestamp;
use mutirao_core::auth::{SIGNATURE_SCHEME, SIGNATURE_WINDOW_S, signed_bytes};

const FIELD_CHARS_MAX: usize = 128;

/// What the header says; nothing of it is proved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// A worker's id, or that of a resource manager's key.
    pub key: String,
    pub time: Timestamp,
    pub nonce: String,
    signature: [u8; 64],
}

impl Claim {
    /// Reads `Mutirao-Ed25519 key=…,time=…,nonce=…,sig=…`; each field once, in any order.
    pub fn read(header: &str) -> Option<Self> {
        let (scheme, fields) = header.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case(SIGNATURE_SCHEME) {
            return None;
        }
        let (mut key, mut time, mut nonce, mut sig) = (None, None, None, None);
        for field in fields.split(',') {
            let (name, value) = field.trim().split_once('=')?;
            let slot = match name {
                "key" => &mut key,
                "time" => &mut time,
                "nonce" => &mut nonce,
                "sig" => &mut sig,
                _ => return None,
            };
            if value.is_empty() || value.len() > FIELD_CHARS_MAX || slot.replace(value).is_some() {
                return None;
            }
        }
        Some(Self {
            key: key?.to_owned(),
            time: Timestamp(time?.parse().ok()?),
            nonce: nonce?.to_owned(),
            signature: STANDARD.decode(sig?).ok()?.try_into().ok()?,
        })
    }

    pub fn is_timely(&self, now: Timestamp) -> bool {
        let window = Duration::from_secs(SIGNATURE_WINDOW_S as u64);
        // One of the two is zero; `since` never goes below.
        now.since(self.time) <= window && self.time.since(now) <= window
    }

    pub fn is_signed_by(&self, key: &[u8; 32], method: &str, path_and_query: &str, body: &[u8]) -> bool {
        let Ok(key) = VerifyingKey::from_bytes(key) else { return false };
        let bytes = signed_bytes(method, path_and_query, body, self.time, &self.nonce);
        key.verify_strict(&bytes, &Signature::from_bytes(&self.signature)).is_ok()
    }
}

/// Reads a public key as it comes with an enrolment. Weak keys, under which one signature fits many messages, are none.
pub fn read_public_key(text: &str) -> Option<[u8; 32]> {
    let bytes: [u8; 32] = STANDARD.decode(text.trim()).ok()?.try_into().ok()?;
    let key = VerifyingKey::from_bytes(&bytes).ok()?;
    (!key.is_weak()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signer, SigningKey};

    fn header(key: &SigningKey, time: i64) -> String {
        let signature = key.sign(&signed_bytes("GET", "/v1/link", b"", Timestamp(time), "n"));
        format!("{SIGNATURE_SCHEME} key=w1,time={time},nonce=n,sig={}", STANDARD.encode(signature.to_bytes()))
    }

    #[test]
    fn a_signature_covers_method_path_and_body() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let public = key.verifying_key().to_bytes();
        let claim = Claim::read(&header(&key, 5)).unwrap();
        assert!(claim.is_signed_by(&public, "GET", "/v1/link", b""));
        assert!(!claim.is_signed_by(&public, "PUT", "/v1/link", b""));
        assert!(!claim.is_signed_by(&public, "GET", "/v1/link?x", b""));
        assert!(!claim.is_signed_by(&public, "GET", "/v1/link", b"x"));
        assert!(!claim.is_signed_by(
            &SigningKey::from_bytes(&[8; 32]).verifying_key().to_bytes(),
            "GET",
            "/v1/link",
            b""
        ));
    }

    #[test]
    fn the_window_is_a_minute_to_either_side() {
        let claim = Claim::read(&header(&SigningKey::from_bytes(&[7; 32]), 100_000)).unwrap();
        for (now, timely) in [(100_000, true), (160_000, true), (160_001, false), (40_000, true), (39_999, false)] {
            assert_eq!(claim.is_timely(Timestamp(now)), timely, "{now}");
        }
        let far = Claim { time: Timestamp(i64::MIN), ..claim };
        assert!(!far.is_timely(Timestamp(i64::MAX)));
    }

    #[test]
    fn rubbish_is_no_claim() {
        let good = header(&SigningKey::from_bytes(&[7; 32]), 1);
        assert!(Claim::read(&good).is_some());
        for bad in [
            "",
            "Bearer x",
            SIGNATURE_SCHEME,
            &good.replace("nonce=n,", ""),
            &format!("{good},nonce=m"),
            &good.replace("time=1", "time=x"),
        ] {
            assert!(Claim::read(bad).is_none(), "{bad}");
        }
        assert!(read_public_key(&STANDARD.encode([0u8; 32])).is_none(), "the weakest key");
    }
}
