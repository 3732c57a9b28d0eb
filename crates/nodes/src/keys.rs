//! Nodes of this program have keys, so that nobody types a password. Somebody invites a node and hands it a one-time token;
//! with that it gives its public key, once, and the device of its name is its own from then on. At each start it makes a
//! password, and signs what a manager keeps of it: a digest. So the password is with the node alone until it is used, and
//! is worth nothing after the next start.
//!
//! What is signed is counted, and each count is taken once: what was overheard cannot be said again, to any manager, and no
//! clock has to be right.
//!
//! Not here: keeping any of it ([`store`](crate::store)), and letting devices in.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, VerifyingKey};
use mutirao_core::Timestamp;
use mutirao_core::dice::os_random;
use mutirao_core::node::NodePassword;
use sha2::{Digest as _, Sha256};

use crate::allowance::Allowance;
use crate::device::Digest;
use crate::names::NodeId;

/// How long somebody who was invited may take to come.
pub const INVITED_FOR_MS: i64 = 24 * 3_600_000;
const TOKEN_BYTES: usize = 32;
const TOKEN_CHARS_MAX: usize = 128;
const PREFIX: &str = "nod_";

/// A public key, and how often its password was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub public: [u8; 32],
    pub changes: u64,
}

/// What is kept of an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    pub digest: [u8; 32],
    pub node: NodeId,
    pub until: Timestamp,
    pub created_by: String,
    pub allowance: Allowance,
}

/// What came of giving a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enrolling {
    LetIn(NodeId),
    /// There is no such token, or it is spent, or too old.
    Worthless,
    /// A device of this name was let in meanwhile.
    Taken(NodeId),
}

/// A one-time token, and what is kept of it.
pub fn mint() -> (String, [u8; 32]) {
    let mut bytes = [0; TOKEN_BYTES];
    os_random(&mut bytes);
    let text: String = PREFIX.chars().chain(bytes.iter().flat_map(|byte| hex(*byte))).collect();
    let digest = Sha256::digest(&text).into();
    (text, digest)
}

pub fn read_token(text: &str) -> Option<[u8; 32]> {
    (text.len() <= TOKEN_CHARS_MAX && text.starts_with(PREFIX)).then(|| Sha256::digest(text).into())
}

/// Weak keys, under which one signature fits many messages, are none.
pub fn read_public(text: &str) -> Option<[u8; 32]> {
    let bytes: [u8; 32] = STANDARD.decode(text.trim()).ok()?.try_into().ok()?;
    let key = VerifyingKey::from_bytes(&bytes).ok()?;
    (!key.is_weak()).then_some(bytes)
}

/// The digest of a password that the holder of this key chose; none: somebody else did.
pub fn read_password(node: &NodeId, key: &[u8; 32], said: &NodePassword) -> Option<Digest> {
    let digest = unhex(&said.digest)?;
    let signature: [u8; 64] = STANDARD.decode(&said.signature).ok()?.try_into().ok()?;
    let bytes = NodePassword::signed_bytes(node.as_str(), said.change, &said.digest, said.rabbit.as_deref());
    let key = VerifyingKey::from_bytes(key).ok()?;
    key.verify_strict(&bytes, &Signature::from_bytes(&signature)).ok()?;
    Some(Digest(digest))
}

/// What a node says of a password of its own.
pub fn written(node: &NodeId, password: &str) -> String {
    Digest::of(node.as_str(), password.as_bytes()).0.iter().flat_map(|byte| hex(*byte)).collect()
}

/// The same as RabbitMQ keeps it: a salt, and the digest of both, base64.
pub fn written_for_rabbit(password: &str) -> String {
    let mut salt = [0; 4];
    os_random(&mut salt);
    let digest = Sha256::new().chain_update(salt).chain_update(password).finalize();
    STANDARD.encode([&salt[..], &digest[..]].concat())
}

fn hex(byte: u8) -> [char; 2] {
    [byte >> 4, byte & 15].map(|half| char::from_digit(u32::from(half), 16).unwrap_or('0'))
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| (byte << 4) | digit)).collect();
    (digits.len() == 64).then_some(bytes)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;

    fn said(node: &str, key: &SigningKey, change: u64, password: &str) -> NodePassword {
        let digest = written(&node.parse().unwrap(), password);
        let signature = key.sign(&NodePassword::signed_bytes(node, change, &digest, None));
        NodePassword { change, digest, rabbit: None, signature: STANDARD.encode(signature.to_bytes()) }
    }

    #[test]
    fn a_password_is_believed_from_the_holder_of_the_key_for_its_own_node_and_count_only() {
        let (key, other) = (SigningKey::from_bytes(&[7; 32]), SigningKey::from_bytes(&[8; 32]));
        let (node, public): (NodeId, _) = ("n".parse().unwrap(), key.verifying_key().to_bytes());
        let good = said("n", &key, 1, "secret");
        assert_eq!(read_password(&node, &public, &good), Some(Digest::of("n", b"secret")));
        for bad in [
            said("n", &other, 1, "secret"),
            said("m", &key, 1, "secret"),
            NodePassword { change: 2, ..good.clone() },
            NodePassword { digest: written(&node, "other"), ..good.clone() },
            NodePassword { digest: "zz".into(), ..good.clone() },
            NodePassword { rabbit: Some("another's".into()), ..good.clone() },
            NodePassword { signature: "no".into(), ..good },
        ] {
            assert_eq!(read_password(&node, &public, &bad), None, "{bad:?}");
        }
    }

    #[test]
    fn tokens_are_known_by_their_looks_and_weak_keys_are_none() {
        let (text, digest) = mint();
        assert_eq!(read_token(&text), Some(digest));
        assert!(read_token("enr_1").is_none() && read_token(&format!("nod_{}", "x".repeat(1_000))).is_none());
        assert!(read_public(&STANDARD.encode([0; 32])).is_none() && read_public("x").is_none());
        let public = SigningKey::from_bytes(&[7; 32]).verifying_key().to_bytes();
        assert_eq!(read_public(&STANDARD.encode(public)), Some(public));
    }
}
