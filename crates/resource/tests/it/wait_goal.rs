//! A goal for the wait through whole passes: what ends is counted, how long workers take to come is seen, and the count
//! follows to nothing.

use mutirao_core::quantity::Span;
use mutirao_elastic::Elastic;
use mutirao_elastic::policy::{Policy, WaitGoal};

use super::world::{Faults, World};

#[tokio::test]
async fn short_tasks_share_few_workers_which_go_when_all_is_done() {
    let policy = Policy::WaitGoal(WaitGoal { task: Span::secs(3), ..WaitGoal::of(Span::secs(90)) });
    let elastic = Elastic { min: 0, max: 100, stale_after: Span::secs(60), policy };
    let world = World::new(elastic, &[("a", 100)], Faults::default(), 1);
    let mut active = None;
    world.live(&mut active, 5).await;
    world.work().ready.extend([3; 100]);
    world.live(&mut active, 90).await;
    let said = world.work().decision.clone().expect("a decision").because.to_string();
    assert_eq!(world.work().done, 100, "{said}");
    assert!(world.0.lock().launched <= 25, "{} were launched: {said}", world.0.lock().launched);
    assert!(!said.contains("take 1m to come"), "how long they take was seen: {said}");
    world.live(&mut active, 150).await;
    world.settled(0, "all is done");
}
