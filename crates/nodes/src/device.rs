//! A device that can show no more than a user's name and a password. It gets one of each, made by us: the password is
//! long and random, so a plain digest of it is enough, and it is shown once. What it may do is bound to one node.

use std::sync::Arc;

use mutirao_core::Timestamp;
use mutirao_core::dice::os_random;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::allowance::Warrant;
use crate::names::{BadName, NodeId};
use crate::topics::OwnTopics;

/// 160 bits, as 40 characters: short enough to be typed into a sketch.
const PASSWORD_BYTES: usize = 20;
/// Nobody makes us hash a megabyte.
const PASSWORD_BYTES_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The user's name that it shows.
    pub name: String,
    /// The one node that it speaks for.
    pub node: NodeId,
    pub digest: Digest,
    /// Whether it may ask for Tasks to be run, and hear what came of them.
    pub may_request: bool,
    pub topics: OwnTopics,
    pub warrant: Arc<Warrant>,
    pub created_at: Timestamp,
    pub created_by: String,
}

impl Device {
    /// Takes as long for a wrong password as for the right one.
    pub fn is_opened_by(&self, password: &[u8]) -> bool {
        password.len() <= PASSWORD_BYTES_MAX && self.digest.0.ct_eq(&Digest::of(&self.name, password).0).into()
    }
}

/// Of a name and its password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub fn of(name: &str, password: &[u8]) -> Self {
        let mut digest = Sha256::new();
        digest.update((name.len() as u64).to_be_bytes());
        digest.update(name);
        digest.update(password);
        Self(digest.finalize().into())
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest(…)")
    }
}

/// What a device may be called: what a node may be, for that is what most are called after.
pub fn check_name(name: &str) -> Result<(), BadName> {
    name.parse::<NodeId>().map(drop)
}

pub fn new_password() -> String {
    let mut bytes = [0; PASSWORD_BYTES];
    os_random(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// In place of a digest, for one that has no password yet: nobody knows what it would be of.
pub fn no_password() -> [u8; 32] {
    let mut bytes = [0; 32];
    os_random(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_opens_its_own_device_and_no_other() {
        let password = new_password();
        let device = |name: &str| Device {
            name: name.into(),
            node: "n".parse().unwrap(),
            digest: Digest::of("lamp", password.as_bytes()),
            may_request: false,
            topics: OwnTopics::default(),
            warrant: Arc::default(),
            created_at: Timestamp(0),
            created_by: "t".into(),
        };
        assert!(device("lamp").is_opened_by(password.as_bytes()));
        assert!(!device("lamp2").is_opened_by(password.as_bytes()), "the name is part of it");
        assert!(!device("lamp").is_opened_by(b"") && !device("lamp").is_opened_by(&[b'x'; 1 << 20]));
        assert!(new_password() != password && format!("{:?}", device("lamp")).contains("Digest(…)"));
    }
}
