//! Arrebol's way: n workers for n tasks, none removed that works, none left when there is nothing to do. The whole engine:
//! decisions, fleet, provider.

use mutirao_elastic::{Elastic, Preset};

use super::world::{Faults, Landing, Want, World, seeds};

const MAX: u32 = 20;

fn batch(seed: u64, faults: Faults) -> World {
    let elastic = Elastic { max: MAX, ..Preset::Arrebol.elastic() };
    let mut world = World::new(Want::Policy(elastic), MAX, faults, seed);
    for _ in 0..60 {
        let length_s = 20 + world.dice.below(20);
        world.ready.push_back(length_s);
    }
    world
}

fn finish(mut world: World, how: &str) -> World {
    let fail = |why: String| -> ! { panic!("{how}: {why}") };
    world.run_until(300).unwrap_or_else(|why| fail(why));
    // A few more, while the last are idle or already leaving.
    world.ready.extend([30, 30, 30, 30, 30]);
    world.run_until(800).unwrap_or_else(|why| fail(why));
    assert_eq!(world.done, 65, "{how}");
    world.is_settled(0).unwrap_or_else(|why| fail(why));
    world
}

#[test]
fn a_batch_gets_its_workers_at_once_and_loses_them_when_they_are_idle() {
    for seed in seeds(20) {
        let world = finish(batch(seed, Faults::default()), &format!("seed {seed}"));
        assert_eq!(world.peak, MAX as usize, "seed {seed}");
        let counts: Vec<u32> = world.history.iter().map(|change| change.to).collect();
        assert_eq!(counts.first(), Some(&MAX), "seed {seed}: {counts:?}");
        assert_eq!(counts.last(), Some(&0), "seed {seed}: {counts:?}");
    }
}

#[test]
fn a_batch_ends_also_while_the_provider_fails_and_the_resource_manager_dies() {
    for seed in seeds(40) {
        let mut world = batch(seed, Faults { fails_each: Some(3), landing: Landing::Late, ..Faults::default() });
        world.faults.dies_at = (0..12).map(|i| 1 + i * 90 + world.dice.below(90)).collect();
        let world = finish(world, &format!("seed {seed}"));
        assert!(
            world.deaths >= 10 && world.errors > 5,
            "seed {seed}: {} deaths, {} errors",
            world.deaths,
            world.errors
        );
    }
}
