//! Parts against the plain reference: whatever dies, comes back, is slow, said twice or damaged, each log and each sink holds what
//! a single slow reader of it would have said.

mod graphs;
mod oracle;
mod pieces;
mod world;

use proptest::prelude::*;

use graphs::GRAPHS;
use world::{Trouble, World};

/// So many worlds by default; more with `STREAMS_WORLDS=1000`.
fn worlds() -> ProptestConfig {
    let cases = std::env::var("STREAMS_WORLDS").ok().and_then(|count| count.parse().ok()).unwrap_or(48);
    // Another seed is another world: there is nothing to make smaller.
    ProptestConfig { cases, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() }
}

fn lives(graph: usize, seed: u64, trouble: Trouble) -> Result<(), TestCaseError> {
    let mut world = World::of(GRAPHS[graph].1, seed, trouble);
    world.live();
    let wrong = world.wrong();
    prop_assert!(wrong.is_empty(), "graph {} seed {seed}: {}", GRAPHS[graph].0, wrong.join("\n"));
    Ok(())
}

proptest! {
    #![proptest_config(worlds())]

    /// Replicas at different speeds, each cutting records as it likes.
    #[test]
    fn replicas_of_different_speed_say_what_the_reference_says(seed in any::<u64>(), graph in 0..GRAPHS.len()) {
        lives(graph, seed, Trouble { deaths: 0.0, twice: 0.0, ticks: 0.0, damage: 0.0 })?;
    }

    /// Everything dies, now and then, and begins again from some snapshot; records are appended twice; ticks come between.
    #[test]
    fn whatever_dies_and_comes_back_the_same_is_said(seed in any::<u64>(), graph in 0..GRAPHS.len()) {
        lives(graph, seed, Trouble { deaths: 0.03, twice: 0.1, ticks: 0.02, damage: 0.0 })?;
    }

    /// And half of the snapshots are damaged.
    #[test]
    fn damaged_snapshots_cost_time_and_nothing_else(seed in any::<u64>(), graph in 0..GRAPHS.len()) {
        lives(graph, seed, Trouble { deaths: 0.05, twice: 0.05, ticks: 0.01, damage: 0.5 })?;
    }

    /// From a file to the sinks, as if all of it had been in one place.
    #[test]
    fn a_line_of_stages_says_what_one_place_says(seed in any::<u64>(), graph in 0..graphs::LINES) {
        let mut world = World::of(GRAPHS[graph].1, seed, Trouble { deaths: 0.04, twice: 0.1, ticks: 0.0, damage: 0.3 });
        world.live();
        prop_assert_eq!(world.sunk(), world.in_one_place(), "graph {} seed {}", GRAPHS[graph].0, seed);
    }
}
