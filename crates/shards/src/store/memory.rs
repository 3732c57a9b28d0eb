//! Leases in memory, for tests and simulations: [`Ledger`] is the plain rule that every engine must follow, and passes
//! the same behaviour suite.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_store::StoreError;
use parking_lot::Mutex;

use super::{LeaseRow, Mark, MemberRow, ShardStore};
use mutirao_core::shard::{MemberId, ShardId};

/// One group's members and leases.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    count: Option<u32>,
    members: BTreeMap<MemberId, (String, u64)>,
    leases: BTreeMap<ShardId, LeaseRow>,
}

impl Ledger {
    pub fn found(&mut self, count: u32) -> u32 {
        *self.count.get_or_insert(count)
    }

    pub fn beat(&mut self, member: &MemberId, address: &str) {
        let row = self.members.entry(member.clone()).or_default();
        *row = (address.into(), row.1 + 1);
    }

    pub fn forget(&mut self, member: &MemberId, beats: Option<u64>) {
        if beats.is_none_or(|beats| self.members.get(member).is_some_and(|row| row.1 == beats)) {
            self.members.remove(member);
        }
    }

    pub fn members(&self) -> Vec<MemberRow> {
        let row = |(member, (address, beats)): (&MemberId, &(String, u64))| MemberRow {
            member: member.clone(),
            address: address.clone(),
            beats: *beats,
        };
        self.members.iter().map(row).collect()
    }

    pub fn leases(&self) -> Vec<LeaseRow> {
        self.leases.values().cloned().collect()
    }

    pub fn claim(&mut self, shard: ShardId, seen: Mark, member: &MemberId, lease: Duration) -> Option<u64> {
        let mark = self.leases.get(&shard).map(|row| row.mark).unwrap_or_default();
        if mark != seen {
            return None;
        }
        let generation = mark.generation + 1;
        let mark = Mark { generation, beats: 0 };
        self.leases.insert(shard, LeaseRow { shard, owner: Some(member.clone()), mark, lease });
        Some(generation)
    }

    pub fn renew(&mut self, member: &MemberId, held: &[(ShardId, u64)]) -> Vec<ShardId> {
        let mut kept = Vec::new();
        for (shard, generation) in held {
            if let Some(row) = self.held(member, *shard, *generation) {
                row.mark.beats += 1;
                kept.push(*shard);
            }
        }
        kept
    }

    pub fn release(&mut self, member: &MemberId, shard: ShardId, generation: u64) {
        if let Some(row) = self.held(member, shard, generation) {
            row.owner = None;
        }
    }

    /// The fence's rule.
    pub fn is_current(&self, shard: ShardId, generation: u64) -> bool {
        self.leases.get(&shard).is_some_and(|row| row.mark.generation == generation)
    }

    fn held(&mut self, member: &MemberId, shard: ShardId, generation: u64) -> Option<&mut LeaseRow> {
        let row = self.leases.get_mut(&shard)?;
        (row.owner.as_ref() == Some(member) && row.mark.generation == generation).then_some(row)
    }
}

/// A ledger for each group.
#[derive(Debug, Default)]
pub struct MemoryShards(Mutex<BTreeMap<String, Ledger>>);

impl MemoryShards {
    fn with<T>(&self, group: &str, f: impl FnOnce(&mut Ledger) -> T) -> Result<T, StoreError> {
        Ok(f(self.0.lock().entry(group.into()).or_default()))
    }
}

#[async_trait]
impl ShardStore for MemoryShards {
    async fn found(&self, group: &str, count: u32) -> Result<u32, StoreError> {
        self.with(group, |ledger| ledger.found(count))
    }

    async fn beat(&self, group: &str, member: &MemberId, address: &str) -> Result<(), StoreError> {
        self.with(group, |ledger| ledger.beat(member, address))
    }

    async fn forget(&self, group: &str, member: &MemberId, beats: Option<u64>) -> Result<(), StoreError> {
        self.with(group, |ledger| ledger.forget(member, beats))
    }

    async fn members(&self, group: &str) -> Result<Vec<MemberRow>, StoreError> {
        self.with(group, |ledger| ledger.members())
    }

    async fn leases(&self, group: &str) -> Result<Vec<LeaseRow>, StoreError> {
        self.with(group, |ledger| ledger.leases())
    }

    async fn claim(
        &self,
        group: &str,
        shard: ShardId,
        seen: Mark,
        member: &MemberId,
        lease: Duration,
    ) -> Result<Option<u64>, StoreError> {
        self.with(group, |ledger| ledger.claim(shard, seen, member, lease))
    }

    async fn renew(&self, group: &str, member: &MemberId, held: &[(ShardId, u64)]) -> Result<Vec<ShardId>, StoreError> {
        self.with(group, |ledger| ledger.renew(member, held))
    }

    async fn release(&self, group: &str, member: &MemberId, shard: ShardId, generation: u64) -> Result<(), StoreError> {
        self.with(group, |ledger| ledger.release(member, shard, generation))
    }
}
