//! Clocks that jump, leases that are lost, and passes that change nothing.

use std::sync::Arc;

use mutirao_resource::pass::{Cut, Next};

use super::world::{Faults, World, n_for_n};

#[tokio::test]
async fn a_clock_that_jumps_moves_nothing() {
    let world = World::new(n_for_n(2, 4), &[("a", 4)], Faults::default(), 1);
    let mut active = None;
    world.live(&mut active, 30).await;
    let before: Vec<_> = world.0.lock().processes.keys().cloned().collect();
    for by_ms in [3_600_000, -7_200_000, 86_400_000] {
        let clock = Arc::clone(&world.0.lock().clock);
        clock.step_wall_ms(by_ms);
        for process in world.0.lock().processes.values_mut() {
            // A process knows nothing of the wall.
            process.reports_at = Some(mutirao_core::Timestamp(0));
        }
        world.live(&mut active, 40).await;
        assert_eq!(world.0.lock().processes.keys().cloned().collect::<Vec<_>>(), before, "after {by_ms} ms");
    }
}

#[tokio::test]
async fn one_that_lost_its_lease_does_nothing_more() {
    let world = World::new(n_for_n(2, 4), &[("a", 4)], Faults::default(), 1);
    let mut old = world.successor();
    let _new = world.successor();
    assert_eq!(old.pass().await, Err(Cut::Lost));
    let inner = world.0.lock();
    assert_eq!((inner.issued, inner.launched, inner.records), (0, 0, 0));
}

#[tokio::test]
async fn a_quiet_queue_costs_no_writes() {
    let world = World::new(n_for_n(0, 4), &[("a", 4)], Faults::default(), 1);
    let mut active = Some(world.successor());
    world.live(&mut active, 5).await;
    let before = world.0.lock().records;
    world.live(&mut active, 300).await;
    assert_eq!(world.0.lock().records, before);
    assert_eq!(active.expect("alive").pass().await, Ok(Next::InAWhile));
}

#[tokio::test]
async fn a_queue_that_is_not_elastic_any_more_loses_its_workers_when_they_have_finished() {
    let world = World::new(n_for_n(2, 4), &[("a", 4)], Faults::default(), 1);
    let mut active = None;
    world.live(&mut active, 20).await;
    world.work().ready.extend([15, 15]);
    world.live(&mut active, 3).await;
    world.work().elastic = None;
    world.live(&mut active, 80).await;
    assert_eq!(world.work().done, 2, "what ran was finished");
    world.settled(0, "no policy");
}
