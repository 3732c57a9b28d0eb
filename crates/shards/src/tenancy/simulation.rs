//! Several members and one store in a world that goes wrong, under one seed: questions and answers lost, late and out of
//! order; members killed, frozen, cut off, leaving and joining; a store that is away; clocks of different rates. The
//! members are the real [`Tenancy`], the store is the [`Ledger`] that passes the same suite as the real ones.
//!
//! At every instant: no shard has two owners, and whoever believes to own one would pass the fence. Once it calms down:
//! every shard is where it should be.
//!
//! `SHARDS_SEEDS=20000 cargo test -p mutirao-shards simulation` looks harder; a failure names its seed.
//!
//! [`Ledger`]: crate::store::memory::Ledger
//! [`Tenancy`]: super::Tenancy

mod process;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use mutirao_core::shard::{MemberId, ShardId};
use world::{LEASE_MS, Luck, World};

/// Rates of clocks that the margin of a fifth allows for: the fastest is 17 % ahead of the slowest.
const HONEST: Range<f64> = 0.92..1.08;
/// Rates that no margin of a fifth can allow for.
const WILD: Range<f64> = 0.5..2.0;

fn seeds(default: u64) -> Range<u64> {
    let seeds = std::env::var("SHARDS_SEEDS").ok().and_then(|n| n.parse().ok());
    0..seeds.unwrap_or(default)
}

fn chaos(seed: u64, rates: Range<f64>) -> Result<World, String> {
    let mut world = World::new(seed, rates, Luck::Bad);
    for _ in 0..3 {
        world.join();
    }
    world.run(40 * LEASE_MS)?;
    Ok(world)
}

#[test]
fn no_shard_ever_has_two_owners_and_all_are_owned_once_it_calms_down() {
    let mut takeovers = 0;
    for seed in seeds(150) {
        let fail = |why: String| -> ! { panic!("seed {seed}: {why}") };
        let mut world = chaos(seed, HONEST).unwrap_or_else(|why| fail(why));
        world.calm_down();
        world.run(12 * LEASE_MS).unwrap_or_else(|why| fail(why));
        world.is_settled().unwrap_or_else(|why| fail(why));
        takeovers += world.takeovers();
    }
    assert!(takeovers > 0, "nothing was ever taken from a silent owner, so nothing was proved");
}

#[test]
fn clocks_beyond_the_margin_are_noticed_by_this_simulation() {
    let overlaps = (0..100).filter(|seed| chaos(*seed, WILD).is_err()).count();
    assert!(overlaps > 0, "the simulation would not see two owners if there were any");
}

fn settled(seed: u64, members: usize) -> World {
    let mut world = World::new(seed, HONEST, Luck::Good);
    for _ in 0..members {
        world.join();
    }
    world.run(5 * LEASE_MS).unwrap();
    world.is_settled().unwrap();
    world
}

type Owners = BTreeMap<ShardId, (MemberId, u64)>;

fn moved(before: &Owners, after: &Owners) -> BTreeSet<ShardId> {
    before.keys().filter(|shard| before.get(shard) != after.get(shard)).copied().collect()
}

fn owned_by(owners: &Owners, member: &MemberId) -> BTreeSet<ShardId> {
    owners.iter().filter(|(_, (owner, _))| owner == member).map(|(shard, _)| *shard).collect()
}

#[test]
fn a_killed_member_moves_only_its_own_shards() {
    for seed in seeds(20) {
        let mut world = settled(seed, 4);
        let before = world.owners();
        let killed = world.kill(1);
        world.run(5 * LEASE_MS).unwrap();
        world.is_settled().unwrap();
        assert_eq!(moved(&before, &world.owners()), owned_by(&before, &killed), "seed {seed}");
    }
}

#[test]
fn a_joining_member_moves_only_the_shards_it_gets_and_they_are_hardly_without_an_owner() {
    for seed in seeds(20) {
        let mut world = settled(seed, 3);
        let before = world.owners();
        let joined = world.join();
        world.forget_gaps();
        world.run(5 * LEASE_MS).unwrap();
        world.is_settled().unwrap();
        let after = world.owners();
        assert_eq!(moved(&before, &after), owned_by(&after, &joined), "seed {seed}");
        let gap_ms = world.longest_gap_ms();
        assert!(gap_ms <= LEASE_MS / 4, "seed {seed}: a shard was without an owner for {gap_ms} ms");
    }
}

#[test]
fn a_leaving_member_hands_over_without_waiting_for_its_leases() {
    for seed in seeds(20) {
        let mut world = settled(seed, 3);
        let before = world.owners();
        let left = world.leave(0);
        world.forget_gaps();
        world.run(5 * LEASE_MS).unwrap();
        world.is_settled().unwrap();
        assert_eq!(moved(&before, &world.owners()), owned_by(&before, &left), "seed {seed}");
        let gap_ms = world.longest_gap_ms();
        assert!(gap_ms <= LEASE_MS / 4, "seed {seed}: a shard was without an owner for {gap_ms} ms");
    }
}

#[test]
fn a_frozen_member_wakes_up_owning_nothing() {
    for seed in seeds(20) {
        let mut world = settled(seed, 3);
        let frozen = world.freeze(2, 10 * LEASE_MS);
        assert!(!owned_by(&world.owners(), &frozen).is_empty(), "seed {seed}: the test needs it to own something");
        world.run(2 * LEASE_MS).unwrap();
        assert!(owned_by(&world.owners(), &frozen).is_empty(), "seed {seed}");
        world.run(15 * LEASE_MS).unwrap();
        world.is_settled().unwrap();
    }
}
