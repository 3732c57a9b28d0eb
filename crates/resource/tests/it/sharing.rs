//! Several queues and little room: whoever has work is not kept waiting by those who have none, and nobody goes back and forth.

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::{Dice, QueueName, Timestamp};
use mutirao_elastic::Elastic;
use mutirao_elastic::fleet::Life;
use mutirao_elastic::policy::{NForN, Policy};

use super::world::{Faults, Inner, World, n_for_n};

/// A queue with tasks waiting has a worker on its way within this, once there is room or somebody idle: a moment of idleness,
/// a pass to tell it, one to see it gone, one to ask.
const SERVED_WITHIN: Duration = Duration::from_secs(8);

fn name(n: usize) -> QueueName {
    format!("q{n}").parse().expect("a name")
}

/// Idle ones are kept for an hour.
fn kept(min: u32, max: u32) -> Elastic {
    let policy = Policy::NForN(NForN { idle_wait: mutirao_core::quantity::Span::secs(3_600), tasks_per_worker: 1 });
    Elastic { min, max, stale_after: mutirao_core::quantity::Span::secs(60), policy }
}

fn submit(world: &World, n: usize, tasks: &[u64]) {
    world.0.lock().lines.get_mut(&name(n)).expect("a queue").ready.extend(tasks);
}

fn done(world: &World, n: usize) -> u64 {
    world.0.lock().lines[&name(n)].done
}

fn there(world: &World, n: usize) -> usize {
    world.0.lock().processes.values().filter(|process| process.queue == name(n)).count()
}

#[tokio::test]
async fn a_queue_with_work_has_the_room_of_an_idle_floor_and_gives_it_back_after_its_wait() {
    let queues = [(name(0), kept(2, 2)), (name(1), n_for_n(0, 2))];
    let world = World::of(&queues, &[("a", 2)], Faults::default(), 1);
    let mut active = None;
    world.live(&mut active, 20).await;
    assert_eq!((there(&world, 0), there(&world, 1)), (2, 0), "the floor has all the room");
    submit(&world, 1, &[3, 3, 3]);
    world.live(&mut active, 40).await;
    assert_eq!(done(&world, 1), 3);
    assert!(there(&world, 0) >= 1, "one of the floor was enough");
    world.live(&mut active, 60).await;
    assert_eq!((there(&world, 0), there(&world, 1)), (2, 0), "the floor is back");
}

#[tokio::test]
async fn workers_kept_in_case_go_for_tasks_that_wait_and_busy_ones_stay() {
    let queues = [(name(0), kept(0, 3)), (name(1), n_for_n(0, 3))];
    let world = World::of(&queues, &[("a", 3)], Faults::default(), 1);
    let mut active = None;
    submit(&world, 0, &[2, 2, 200]);
    world.live(&mut active, 30).await;
    assert_eq!((there(&world, 0), done(&world, 0)), (3, 2));
    submit(&world, 1, &[30; 9]);
    world.live(&mut active, 40).await;
    assert_eq!((there(&world, 0), there(&world, 1)), (1, 2), "all that is idle, and nobody at work");
    world.live(&mut active, 300).await;
    assert_eq!((done(&world, 0), done(&world, 1)), (3, 9));
}

/// Since when each queue has had tasks waiting and no worker, while somebody could have made room.
#[derive(Default)]
struct Starved(BTreeMap<QueueName, Timestamp>);

impl Starved {
    fn look(&mut self, inner: &Inner, how: &str) {
        let now = inner.now();
        let slots: u64 = inner.nodes.values().map(|node| node.capacity.get("cpu_milli") / 1_000).sum();
        let taken: usize = inner.lines.values().map(|line| line.members.len()).sum();
        let somebody_idle = inner.lines.iter().any(|(name, line)| {
            line.ready.is_empty()
                && inner.processes.iter().any(|(worker, p)| {
                    p.queue == *name
                        && p.task_left_s.is_none()
                        && line.members.get(worker).is_some_and(|member| member.life == Life::Reported)
                })
        });
        let could = somebody_idle || (taken as u64) < slots;
        for (name, line) in &inner.lines {
            let has_some = line.members.values().any(|member| member.life <= Life::Reported);
            if line.ready.is_empty() || has_some || !could {
                self.0.remove(name);
                continue;
            }
            let since = *self.0.entry(name.clone()).or_insert(now);
            assert!(now.since(since) <= SERVED_WITHIN, "{how}: {name} has waited for its first worker since {since}");
        }
    }
}

#[tokio::test]
async fn whatever_comes_no_queue_with_work_is_starved_and_nobody_goes_back_and_forth() {
    let mut launched = 0;
    for seed in 0..40 {
        let how = format!("seed {seed}");
        let dice = Dice::seeded(seed);
        let queues: Vec<_> = (0..4).map(|n| (name(n), kept(dice.below(3) as u32, 3))).collect();
        let world = World::of(&queues, &[("a", 2), ("b", 1)], Faults::default(), seed);
        let (mut active, mut starved, mut bursts) = (None, Starved::default(), 0);
        for second in 0..400 {
            if second < 300 && dice.below(12) == 0 {
                let tasks = vec![1 + dice.below(6); 1 + dice.below(3) as usize];
                submit(&world, dice.below(4) as usize, &tasks);
                bursts += 1;
            }
            world.live(&mut active, 1).await;
            starved.look(&world.0.lock(), &how);
        }
        let inner = world.0.lock();
        let left: usize = inner.lines.values().map(|line| line.ready.len()).sum();
        assert_eq!(left, 0, "{how}: all were done");
        let floors: u64 = queues.iter().map(|(_, elastic)| u64::from(elastic.min)).sum();
        // Each time tasks come, as many as there is room for may change places, and once more when they have gone.
        assert!(inner.launched <= floors + 3 * bursts, "{how}: {} launched for {bursts} bursts", inner.launched);
        launched += inner.launched;
    }
    assert!(launched > 400, "{launched} launches prove little");
}
