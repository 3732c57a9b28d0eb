//! Time does not go on by the clock while a source has something to say and cannot, nor because somebody set the clock.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mutirao_broker::Limits;
use mutirao_core::clock::Sleep;
use mutirao_core::{Clock, Mono, SystemClock, Timestamp};
use mutirao_streams::wire::{Part, What};

use crate::world::{LIMITS, World, grid, pause};

#[tokio::test(flavor = "multi_thread")]
async fn while_the_broker_is_away_for_longer_than_idle_no_time_goes_on() {
    let text = grid(14, 2_000, "1s").replace("    time: at\n", "    time: at\n    idle: 1s\n");
    let mut world = World::of(&text);
    ["a", "b"].iter().for_each(|name| world.start(name));
    world.chief.place_all(&["a", "b"]);
    world.until_lines("out.jsonl", 100, 30).await;
    for _ in 0..2 {
        ["a", "b"].iter().for_each(|name| world.cut_off(name));
        pause(3_000).await;
        ["a", "b"].iter().for_each(|name| world.heal(name));
        pause(1_500).await;
    }
    world.until_ended(60).await;
    world.check("out.jsonl");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_one_of_two_readers_holds_a_source_back_its_time_does_not_go_on_for_the_other() {
    let text = format!(
        "\
kind: Stream
name: held
sources:
  - name: made
    generator: {{ rate: [ {{ for: 12s, rate: 3000 }} ], fields: {{ n: n, at: time(n * 1000), long: \"'{}' + text(n)\" }} }}
    time: at
    idle: 2s
operators:
  - name: sums
    from: made
    window: {{ jump: 500ms, by: at }}
    aggregate: {{ events: count(), n: sum(n) }}
    snapshot: 1s
sinks:
  - name: out
    from: sums
    file: {{ path: out.jsonl }}
  - name: keys
    from: made
    kv: {{ key: 'k', value: n }}
",
        "x".repeat(1_500)
    );
    let limits = Limits { log_bytes_max: 64 << 20, segment_bytes: 4 << 20, ..LIMITS };
    let mut world = World::with(&text, limits);
    world.start("a");
    world.chief.place_all(&["a"]);
    world.until("the first rows", 30, |world| !world.chief.items().is_empty()).await;
    world.chief.away(true);
    let source = world.chief.part(What::Source(0), 0);
    let is_held =
        |world: &World, part: &Part| world.chief.report(part).is_some_and(|report| report.measures.held_back > 0.9);
    world.until("the source to be held back", 30, |world| is_held(world, &source)).await;
    pause(6_000).await;
    world.chief.away(false);
    world
        .until("the window to have read all", 90, |world| {
            let ended =
                |what| world.chief.state_of(&world.chief.part(what, 0)) == Some(mutirao_streams::wire::State::Ended);
            ended(What::Stage(0)) && ended(What::Sink(0))
        })
        .await;
    world.check("out.jsonl");
}

/// A clock of the machine that somebody sets.
#[derive(Default)]
struct Set {
    off_ms: AtomicI64,
}

impl Clock for Set {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.off_ms.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Mono {
        SystemClock.monotonic()
    }

    fn sleep(&self, for_: Duration) -> Sleep<'_> {
        Box::pin(SystemClock.sleep(for_))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_makes_no_event_late_and_keeps_no_window_waiting() {
    let text = "\
kind: Stream
name: set
schema: { n: int, at: time }
sources:
  - { name: lines, file: { path: in.jsonl, start: beginning }, time: at, idle: 1s }
operators:
  - { name: sums, from: lines, window: { jump: 1s, by: at }, aggregate: { n: sum(n) } }
sinks:
  - { name: out, from: sums, file: { path: out.jsonl } }
  - { name: late, from: sums.late, file: { path: late.jsonl } }
";
    let (mut world, clock) = (World::of(text), Arc::new(Set::default()));
    world.clock = clock.clone();
    world.start("a");
    world.chief.place_all(&["a"]);
    let mut file = std::fs::File::create(world.file("in.jsonl")).unwrap();
    for n in 0..6_usize {
        // So far apart that a slow machine, where the silence between two of them counts, makes none late.
        writeln!(file, "{{\"n\": {n}, \"at\": {}}}", 1_700_000_000_000_000_i64 + n as i64 * 60_000_000).unwrap();
        world.until_lines("out.jsonl", n, 30).await;
        pause(400).await;
        match n {
            1 => clock.off_ms.store(3_600_000, Ordering::Relaxed),
            3 => clock.off_ms.store(-3_600_000, Ordering::Relaxed),
            _ => {}
        }
        pause(400).await;
    }
    world.until_lines("out.jsonl", 6, 30).await;
    assert_eq!(String::from_utf8(world.read("late.jsonl")).unwrap(), "");
}
