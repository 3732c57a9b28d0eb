//! A resource manager that dies at every point of creation and removal, alone and twice, with calls that land never, at
//! once and late, beside a provider that is well, fails each third call, or launches processes that never speak.

use super::world::{Faults, Landing, Want, World, seeds};

const MAX: u32 = 4;
const WANTED_AT_THE_END: u32 = 2;
const LAST_CHANGE_S: u64 = 110;
/// After the last change or death, what the provider has is what the store says within this.
const SETTLED_WITHIN_S: u64 = 60;

/// Up to three, down to one, up to the ceiling while the drained are still leaving, down to two.
fn schedule() -> Want {
    Want::Schedule(vec![(0, 3), (25, 1), (50, 4), (80, 0), (95, 4), (LAST_CHANGE_S, WANTED_AT_THE_END)])
}

fn world(seed: u64, faults: Faults) -> World {
    let mut world = World::new(schedule(), MAX, faults, seed);
    world.ready.extend((0..60).map(|i| 1 + i % 9));
    world
}

fn settles(mut world: World, how: &str) -> World {
    let fail = |why: String| -> ! { panic!("{how}: {why}") };
    world.run_until(LAST_CHANGE_S).unwrap_or_else(|why| fail(why));
    let deaths = world.deaths;
    world.run_until(LAST_CHANGE_S + SETTLED_WITHIN_S).unwrap_or_else(|why| fail(why));
    if world.deaths > deaths {
        let again = world.elapsed_s() + SETTLED_WITHIN_S;
        world.run_until(again).unwrap_or_else(|why| fail(why));
    }
    world.is_settled(WANTED_AT_THE_END as usize).unwrap_or_else(|why| fail(why));
    world
}

fn steps_without_a_death() -> u64 {
    settles(world(1, Faults::default()), "nobody dies").steps
}

#[test]
fn whenever_it_dies_nothing_leaks_and_the_ceiling_holds() {
    let steps = steps_without_a_death();
    assert!(steps > 60, "{steps} steps prove little");
    for landing in [Landing::Never, Landing::AtOnce, Landing::Late] {
        for dies_at in 1..=steps {
            let how = format!("dies at step {dies_at} of {steps}, call lands {landing:?}");
            let world = settles(world(1, Faults { dies_at: vec![dies_at], landing, ..Faults::default() }), &how);
            assert_eq!(world.deaths, 1, "{how}");
        }
    }
}

#[test]
fn a_successor_may_die_as_well() {
    let steps = steps_without_a_death();
    for landing in [Landing::AtOnce, Landing::Late] {
        for first in (1..=steps).step_by(2) {
            for then in 1..=8 {
                let how = format!("dies at steps {first} and {}, call lands {landing:?}", first + then);
                settles(world(2, Faults { dies_at: vec![first, first + then], landing, ..Faults::default() }), &how);
            }
        }
    }
}

#[test]
fn a_provider_that_fails_each_third_call_leaks_nothing() {
    for seed in seeds(50) {
        let world = settles(world(seed, Faults { fails_each: Some(3), ..Faults::default() }), &format!("seed {seed}"));
        assert!(world.errors > 3, "seed {seed}: {} failures prove little", world.errors);
        assert_eq!(world.peak, MAX as usize, "seed {seed}");
    }
}

#[test]
fn a_provider_that_fails_and_a_manager_that_dies_leak_nothing_together() {
    for seed in seeds(150) {
        let mut world = world(seed, Faults { fails_each: Some(3), landing: Landing::Late, ..Faults::default() });
        world.faults.dies_at = (0..6).map(|i| 1 + i * 20 + world.dice.below(20)).collect();
        settles(world, &format!("seed {seed}"));
    }
}

#[test]
fn processes_that_never_report_are_given_up_and_replaced() {
    for seed in seeds(20) {
        let mut world = world(seed, Faults { mute_each: Some(3), ..Faults::default() });
        world.run_until(900).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        world.is_settled(WANTED_AT_THE_END as usize).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn a_provider_that_lies_about_what_it_has_breaks_no_ceiling_and_is_got_over() {
    for seed in seeds(50) {
        let faults =
            Faults { hides_percent: 20, ghosts: 3, fails_each: Some(5), landing: Landing::Late, ..Faults::default() };
        let mut world = world(seed, faults);
        world.faults.dies_at = (0..4).map(|i| 1 + i * 30 + world.dice.below(30)).collect();
        settles(world, &format!("seed {seed}"));
    }
}

/// The simulation must be able to fail: forgetting sooner than a call may land breaks the ceiling, and it is seen.
#[test]
fn forgetting_before_a_late_call_lands_is_noticed() {
    let steps = steps_without_a_death();
    let broken = (1..=steps * 3).filter(|run| {
        let mut world =
            world(*run, Faults { dies_at: vec![1 + run % steps], landing: Landing::Late, ..Faults::default() });
        world.want = Want::Schedule(vec![(0, MAX), (4, 0), (7, MAX)]);
        world.terms.missing_for = std::time::Duration::ZERO;
        world.run_until(60).is_err()
    });
    assert!(broken.count() > 0, "the simulation would not see it");
}
