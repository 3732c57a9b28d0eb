//! Shards: fixed shares of some work, which of them a key falls into, and how they are shown. Here, because whoever sends
//! must know where to, without asking. Not here: who comes to own a shard (the crate `shards`).

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::dice::os_random;

/// Into how many shards the queues are cut, once and for all: the number is in every store and in the names of the
/// broker's queues.
pub const JOBS_SHARDS: u32 = 16;

/// The number of a shard within its group, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
pub struct ShardId(pub u32);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One life of a process that owns shards. Never used again, not even by the same program on the same machine: a process
/// that was killed and started again must not take its predecessor's leases for its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
pub struct MemberId(pub String);

impl MemberId {
    /// A new one. The name, a host's for instance, is for people to read.
    pub fn mint(name: &str) -> Self {
        let mut bytes = [0u8; 8];
        os_random(&mut bytes);
        Self(format!("{name}-{:016x}", u64::from_be_bytes(bytes)))
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who owns a shard, as one member sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ShardView {
    pub group: String,
    pub shard: ShardId,
    /// Nobody when it is between two owners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<MemberId>,
    /// Where its owner answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// How often it has been claimed.
    pub generation: u64,
    /// Since its owner last gave a sign of life, as far as this member has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// When it may be taken over unless its owner gives a sign of life. Zero is overdue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// The shard of a key, the same on every machine and for ever.
///
/// ```
/// use mutirao_core::shard::{ShardId, shard_of};
/// assert_eq!(shard_of("default", 16), ShardId(12));
/// ```
pub fn shard_of(key: &str, count: u32) -> ShardId {
    ShardId((hash(&[key.as_bytes()]) % u64::from(count.max(1))) as u32)
}

/// A hash that no release, machine or library changes. Parts are told apart by their lengths.
pub fn hash(parts: &[&[u8]]) -> u64 {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let digest = digest.finalize();
    digest.iter().take(8).fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lives_of_one_host_have_different_ids() {
        assert_ne!(MemberId::mint("host"), MemberId::mint("host"));
    }

    #[test]
    fn keys_spread_over_all_shards() {
        let mut shards: Vec<u32> = (0..200).map(|n| shard_of(&format!("queue-{n}"), 16).0).collect();
        shards.sort_unstable();
        shards.dedup();
        assert_eq!(shards, (0..16).collect::<Vec<_>>());
    }
}
