//! The lease of the one that acts, kept by the manager. `shards` does the rest: who is next, when a lease has run out, and
//! when to stop believing in one's own.

use std::time::Duration;

use async_trait::async_trait;
use mutirao_elastic::protocol::{LeaseAnswer, LeaseCall};
use mutirao_shards::store::{LeaseRow, Mark, MemberRow};
use mutirao_shards::{MemberId, ShardId, ShardStore};
use mutirao_store::StoreError;

use crate::manager::{ManagerError, Shared};

/// The only shard of the group.
pub const THE_SHARD: ShardId = ShardId(0);
pub const SHARDS: u32 = 1;

/// The manager as a store of leases. There is one group, so its name is not sent.
pub struct Leases(pub Shared);

impl Leases {
    async fn ask(&self, call: LeaseCall) -> Result<LeaseAnswer, StoreError> {
        self.0.lease(&call).await.map_err(|error| match error {
            ManagerError::Refused(why) => StoreError::Unusable { path: "the lease".into(), why },
            error => StoreError::Unreachable { why: error.to_string() },
        })
    }

    async fn tell(&self, call: LeaseCall) -> Result<(), StoreError> {
        self.ask(call).await.map(drop)
    }
}

fn strange<T>() -> Result<T, StoreError> {
    Err(StoreError::Unreachable { why: "the manager answered another question; check both versions".into() })
}

#[async_trait]
impl ShardStore for Leases {
    async fn found(&self, _: &str, count: u32) -> Result<u32, StoreError> {
        match self.ask(LeaseCall::Found { count }).await? {
            LeaseAnswer::Count { count } => Ok(count),
            _ => strange(),
        }
    }

    async fn beat(&self, _: &str, member: &MemberId, address: &str) -> Result<(), StoreError> {
        self.tell(LeaseCall::Beat { member: member.0.clone(), address: address.into() }).await
    }

    async fn forget(&self, _: &str, member: &MemberId, beats: Option<u64>) -> Result<(), StoreError> {
        self.tell(LeaseCall::Forget { member: member.0.clone(), beats }).await
    }

    async fn members(&self, _: &str) -> Result<Vec<MemberRow>, StoreError> {
        let LeaseAnswer::Members { members } = self.ask(LeaseCall::Members).await? else { return strange() };
        let row = |seen: mutirao_elastic::protocol::MemberSeen| MemberRow {
            member: MemberId(seen.member),
            address: seen.address,
            beats: seen.beats,
        };
        Ok(members.into_iter().map(row).collect())
    }

    async fn leases(&self, _: &str) -> Result<Vec<LeaseRow>, StoreError> {
        let LeaseAnswer::Leases { leases } = self.ask(LeaseCall::Leases).await? else { return strange() };
        let row = |seen: mutirao_elastic::protocol::LeaseSeen| LeaseRow {
            shard: ShardId(seen.shard),
            owner: seen.owner.map(MemberId),
            mark: Mark { generation: seen.generation, beats: seen.beats },
            lease: Duration::from_millis(seen.lease_ms),
        };
        Ok(leases.into_iter().map(row).collect())
    }

    async fn claim(
        &self,
        _: &str,
        shard: ShardId,
        seen: Mark,
        member: &MemberId,
        lease: Duration,
    ) -> Result<Option<u64>, StoreError> {
        let call = LeaseCall::Claim {
            shard: shard.0,
            generation: seen.generation,
            beats: seen.beats,
            member: member.0.clone(),
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
        };
        match self.ask(call).await? {
            LeaseAnswer::Claimed { generation } => Ok(generation),
            _ => strange(),
        }
    }

    async fn renew(&self, _: &str, member: &MemberId, held: &[(ShardId, u64)]) -> Result<Vec<ShardId>, StoreError> {
        let held = held.iter().map(|(shard, generation)| (shard.0, *generation)).collect();
        match self.ask(LeaseCall::Renew { member: member.0.clone(), held }).await? {
            LeaseAnswer::Renewed { shards } => Ok(shards.into_iter().map(ShardId).collect()),
            _ => strange(),
        }
    }

    async fn release(&self, _: &str, member: &MemberId, shard: ShardId, generation: u64) -> Result<(), StoreError> {
        self.tell(LeaseCall::Release { member: member.0.clone(), shard: shard.0, generation }).await
    }
}
