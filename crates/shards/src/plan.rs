//! What to do about each shard: a function of who is alive, who holds which lease, and who I am. Nothing here waits,
//! writes or remembers; [`tenancy`](crate::tenancy) gives it what it needs and does what it says.

use std::collections::{BTreeMap, BTreeSet};

use crate::rendezvous::Rendezvous;
use mutirao_core::shard::{MemberId, ShardId};

/// A shard's lease, as one member sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Released, or never claimed.
    Free,
    /// Another's, who has been silent for the whole lease.
    RunOut,
    /// Another's.
    Theirs,
    /// Mine, and I believe in it.
    Mine,
    /// In my name, but I do not believe in it any more (or never heard that my claim succeeded, or that my release did).
    Unused,
}

/// What to do about a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    Claim,
    Keep,
    /// It should be with another: settle it, then release it.
    HandOver,
    /// Nobody acts on it here: give it back at once.
    Release,
    /// It should be here and is still with another: look again soon.
    Await,
    /// Nothing of mine.
    LeaveAlone,
}

pub struct Scene<'a> {
    pub group: &'a str,
    pub me: &'a MemberId,
    /// Everybody who is alive and stays, me among them unless I am leaving.
    pub alive: &'a BTreeSet<MemberId>,
    pub shards: &'a BTreeMap<ShardId, Standing>,
}

pub fn plan(scene: &Scene<'_>) -> BTreeMap<ShardId, Move> {
    let rendezvous = Rendezvous::of(scene.group, scene.alive);
    let decide = |(shard, standing): (&ShardId, &Standing)| {
        let here = rendezvous.owner(*shard) == Some(scene.me);
        let step = if here { wanted(*standing) } else { unwanted(*standing) };
        (*shard, if scene.shards.len() == 1 { lone(scene, *standing, step) } else { step })
    };
    scene.shards.iter().map(decide).collect()
}

/// A group of one shard shares nothing out, so it stays with whoever has it: a newcomer waits until that one leaves or dies.
fn lone(scene: &Scene<'_>, standing: Standing, step: Move) -> Move {
    match step {
        Move::HandOver if scene.alive.contains(scene.me) => Move::Keep,
        Move::Await if scene.alive.len() > 1 && standing == Standing::Theirs => Move::LeaveAlone,
        step => step,
    }
}

fn wanted(standing: Standing) -> Move {
    match standing {
        // One that is in my name but unused is claimed afresh: whoever acted under its generation has stopped.
        Standing::Free | Standing::RunOut | Standing::Unused => Move::Claim,
        Standing::Theirs => Move::Await,
        Standing::Mine => Move::Keep,
    }
}

fn unwanted(standing: Standing) -> Move {
    match standing {
        Standing::Mine => Move::HandOver,
        Standing::Unused => Move::Release,
        Standing::Free | Standing::RunOut | Standing::Theirs => Move::LeaveAlone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STANDINGS: [Standing; 5] =
        [Standing::Free, Standing::RunOut, Standing::Theirs, Standing::Mine, Standing::Unused];

    fn member(n: u8) -> MemberId {
        MemberId(format!("m{n}"))
    }

    proptest! {
        #[test]
        fn only_free_run_out_or_own_leases_are_claimed_and_by_one_member_only(
            names in proptest::collection::btree_set(0u8..20, 1..6),
            standings in proptest::collection::vec(0usize..5, 2..40),
        ) {
            let alive: BTreeSet<MemberId> = names.iter().map(|n| member(*n)).collect();
            let shards: BTreeMap<ShardId, Standing> =
                standings.iter().enumerate().map(|(n, s)| (ShardId(n as u32), STANDINGS[*s])).collect();
            let plans: Vec<_> =
                alive.iter().map(|me| plan(&Scene { group: "g", me, alive: &alive, shards: &shards })).collect();
            for (shard, standing) in &shards {
                let here = plans.iter().filter(|plan| {
                    matches!(plan[shard], Move::Claim | Move::Keep | Move::Await)
                });
                prop_assert_eq!(here.count(), 1, "one member wants it");
                for plan in &plans {
                    let claimable = matches!(standing, Standing::Free | Standing::RunOut | Standing::Unused);
                    prop_assert!(plan[shard] != Move::Claim || claimable);
                    prop_assert!(plan[shard] != Move::Release || *standing == Standing::Unused);
                    prop_assert!(plan[shard] != Move::HandOver || *standing == Standing::Mine);
                }
            }
        }
    }

    #[test]
    fn the_only_shard_of_a_group_stays_where_it_is_while_its_owner_does() {
        let both: BTreeSet<MemberId> = [member(1), member(2)].into();
        fn alone(me: &MemberId, alive: &BTreeSet<MemberId>, standing: Standing) -> Move {
            let shards = BTreeMap::from([(ShardId(0), standing)]);
            plan(&Scene { group: "g", me, alive, shards: &shards })[&ShardId(0)]
        }
        for me in &both {
            assert_eq!(alone(me, &both, Standing::Mine), Move::Keep);
            assert_eq!(alone(me, &both, Standing::Theirs), Move::LeaveAlone);
            let (others, mine) = (&both - &[me.clone()].into(), [me.clone()].into());
            assert_eq!(alone(me, &others, Standing::Mine), Move::HandOver, "when it leaves");
            assert_eq!(alone(me, &mine, Standing::Theirs), Move::Await, "when the other leaves");
        }
        let claims = both.iter().filter(|me| alone(me, &both, Standing::RunOut) == Move::Claim);
        assert_eq!(claims.count(), 1);
    }

    #[test]
    fn whoever_leaves_hands_everything_over_and_claims_nothing() {
        let (me, alive) = (member(1), BTreeSet::new());
        let shards = STANDINGS.iter().enumerate().map(|(n, s)| (ShardId(n as u32), *s)).collect();
        let moves = plan(&Scene { group: "g", me: &me, alive: &alive, shards: &shards });
        let moves: Vec<Move> = moves.into_values().collect();
        assert_eq!(moves, [Move::LeaveAlone, Move::LeaveAlone, Move::LeaveAlone, Move::HandOver, Move::Release]);
    }
}
