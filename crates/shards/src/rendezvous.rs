//! Who should own a shard: of all members that live, the one whose name, hashed together with the shard's, is highest.
//! Everybody who sees the same members says the same, without asking; and a member that comes or goes moves only the
//! shards that it gets or had, since the order among the others does not change.

use std::collections::BTreeSet;

use mutirao_core::shard::hash;

use mutirao_core::shard::{MemberId, ShardId};

/// The members that live, ready to be asked about many shards.
pub struct Rendezvous<'a>(Vec<(u64, &'a MemberId)>);

impl<'a> Rendezvous<'a> {
    pub fn of(group: &str, alive: &'a BTreeSet<MemberId>) -> Self {
        Self(alive.iter().map(|member| (hash(&[group.as_bytes(), member.0.as_bytes()]), member)).collect())
    }

    /// None when nobody is alive.
    pub fn owner(&self, shard: ShardId) -> Option<&'a MemberId> {
        let highest = self.0.iter().max_by_key(|(seed, member)| (mix(seed ^ mix(u64::from(shard.0))), *member));
        highest.map(|(_, member)| *member)
    }
}

/// SplitMix64's finaliser: every bit of the input moves half of the output. The costly hash is taken once a member, and
/// this once a member and shard.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(names: &BTreeSet<u16>) -> BTreeSet<MemberId> {
        names.iter().map(|n| MemberId(format!("m{n}"))).collect()
    }

    fn owners(alive: &BTreeSet<MemberId>) -> Vec<Option<&MemberId>> {
        let rendezvous = Rendezvous::of("jobs", alive);
        (0..64).map(|shard| rendezvous.owner(ShardId(shard))).collect()
    }

    proptest! {
        #[test]
        fn one_member_more_or_less_moves_only_its_own_shards(names: BTreeSet<u16>, joins: u16) {
            let before = members(&names.iter().copied().filter(|n| *n != joins).collect());
            let joins = MemberId(format!("m{joins}"));
            let mut after = before.clone();
            after.insert(joins.clone());
            for (old, new) in owners(&before).into_iter().zip(owners(&after)) {
                prop_assert!(new == old || new == Some(&joins));
            }
        }
    }

    #[test]
    fn every_member_of_a_few_gets_a_fair_part() {
        let alive = members(&(0..4).collect());
        let rendezvous = Rendezvous::of("jobs", &alive);
        let owners: Vec<_> = (0..256).map(|shard| rendezvous.owner(ShardId(shard))).collect();
        for member in &alive {
            let n = owners.iter().filter(|owner| **owner == Some(member)).count();
            assert!((40..=90).contains(&n), "{member} has {n} of 256");
        }
    }

    #[test]
    fn groups_are_spread_independently() {
        let alive = members(&(0..2).collect());
        let (jobs, flows) = (Rendezvous::of("jobs", &alive), Rendezvous::of("flows", &alive));
        assert!((0..64).map(ShardId).any(|shard| jobs.owner(shard) != flows.owner(shard)));
    }
}
