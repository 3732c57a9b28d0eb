//! A replica that does not get on holds nobody back.

use mutirao_broker::Limits;
use mutirao_streams::wire::{State, What};

use crate::reference;
use crate::world::{LIMITS, World};

#[tokio::test(flavor = "multi_thread")]
async fn while_a_replica_and_the_managers_are_away_the_other_goes_on_and_the_log_may_leave_it_behind() {
    let text = format!(
        "\
kind: Stream
name: uneven
sources:
  - name: made
    generator: {{ rate: [ {{ for: 12s, rate: 3000 }} ], fields: {{ n: n, at: time(n * 1000), long: \"'{}' + text(n)\" }} }}
    time: at
operators:
  - name: sums
    from: made
    window: {{ jump: 500ms, by: at }}
    aggregate: {{ events: count(), n: sum(n) }}
    snapshot: 1s
    replicas: 2
sinks:
  - name: out
    from: sums
    file: {{ path: out.jsonl }}
",
        "x".repeat(1_500)
    );
    let limits = Limits { log_bytes_max: 16 << 20, segment_bytes: 1 << 20, ..LIMITS };
    let mut world = World::with(&text, limits);
    ["a", "b"].iter().for_each(|name| world.start(name));
    let chief = world.chief.clone();
    let slow = chief.part(What::Stage(0), 1);
    for part in [chief.part(What::Source(0), 0), chief.part(What::Stage(0), 0), chief.part(What::Sink(0), 0)] {
        chief.place(&part, "a");
    }
    chief.place(&slow, "b");
    world.until_lines("out.jsonl", 2, 30).await;
    world.until("the other to run", 30, |_| chief.state_of(&slow) == Some(State::Running)).await;
    world.cut_off("b");
    chief.deaf_to("a", true);
    let wanted = reference::lines(&chief.graph, None).remove(0);
    let lines = wanted.iter().filter(|byte| **byte == b'\n').count();
    world.until_lines("out.jsonl", lines, 90).await;
    chief.deaf_to("a", false);
    world.heal("b");
    world.until("the other to be there again", 60, |_| chief.state_of(&slow) == Some(State::Ended)).await;
    world.check("out.jsonl");
}
