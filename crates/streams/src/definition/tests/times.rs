use std::time::Duration;

use super::{FINE, broken, graph, said};
use crate::definition::check;

fn time_of(text: &str) -> Option<String> {
    graph(text).sources[0].time.as_ref().map(|time| time.text().to_owned())
}

const HEAD: &str = "\
kind: Stream
name: times
schema: { k: int, at: time, seen: time, ms: int }
sources:
  - name: one
    http: {}
";

const TAIL: &str = "\
sinks:
  - name: said
    from: last
    stdout: {}
";

#[test]
fn a_source_has_the_time_that_all_windows_behind_it_go_by() {
    assert_eq!(time_of(FINE).as_deref(), Some("at"));
    let source = &graph(FINE).sources[0];
    assert_eq!((source.pace, source.ahead), (Duration::from_secs(1), Duration::from_secs(3_600)));
    assert_eq!(source.idle, Some(Duration::from_secs(30)));
    // Renamed on the way, and behind a window time is the window's.
    let text = format!(
        "{HEAD}operators:
  - name: renamed
    from: one
    map: {{ k: k, when: at }}
  - name: first
    from: renamed
    window: {{ jump: 100ms, by: when }}
    aggregate: {{ n: count() }}
  - name: last
    from: first
    window: {{ jump: 1m, by: end }}
    aggregate: {{ n: sum(n) }}
{TAIL}"
    );
    assert_eq!(time_of(&text).as_deref(), Some("at"));
    assert_eq!(graph(&text).sources[0].pace, Duration::from_millis(10));
}

#[test]
fn a_source_may_say_its_time_and_how_it_goes() {
    let text = FINE
        .replace("- name: meters\n", "- name: meters\n    time: truncate(at, 1s)\n    ahead: 5m\n    idle: never\n");
    let source = &graph(&text).sources[0];
    assert_eq!(source.time.as_ref().map(|time| time.text()), Some("truncate(at, 1s)"));
    assert_eq!((source.ahead, source.idle), (Duration::from_secs(300), None));
    let none = FINE.replace("slide: 1m, every: 10s, by: at, lateness: 2s", "jump: 10 events");
    assert_eq!(graph(&none).sources[0].time, None);
}

#[test]
fn a_time_that_nobody_can_tell_is_asked_for() {
    let window = |before: &str, by: &str| {
        let text = format!(
            "{HEAD}operators:
{before}  - name: last
    from: before
    window: {{ jump: 1m, by: {by} }}
    aggregate: {{ n: count() }}
{TAIL}"
        );
        said(&check(&text).unwrap_err())
    };
    let made = window("  - name: before\n    from: one\n    add: { made: time(ms * 1000) }\n", "made");
    let wanted = "5:11: nothing says which time the events of \"one\" have, and \"last\" waits for it; give the source time: time(ms * 1000)";
    assert_eq!(made, [wanted]);
    let counted = window(
        "  - name: before\n    from: one\n    window: { jump: 5 events }\n    aggregate: { last: last(at) }\n",
        "last",
    );
    assert!(counted[0].ends_with("give the source time: at or time: seen"), "{counted:?}");
    let two = FINE
        .replace("at: time }", "at: time, seen: time }")
        .replace("sinks:", "  - name: other\n    from: by_meter\n    window: { jump: 1m, by: seen }\n    aggregate: { n: count() }\nsinks:\n  - name: used\n    from: other\n    stdout: {}");
    let two = said(&check(&two).unwrap_err());
    assert!(two.iter().any(|one| one.ends_with("give the source time: at or time: seen")), "{two:?}");
}

#[test]
fn what_cannot_be_a_time_is_told() {
    let clock = |by: &str| broken("- name: meters\n", &format!("- name: meters\n    {by}\n"));
    for (by, fault) in [
        ("time: volts", "6:11: an event's time is of kind time, and this is float; write a field of kind time"),
        ("time: meter", "6:11: an event's time is of kind time, and this is text; write time(meter, time(0))"),
        ("time: att", "6:11: there is no field \"att\"; did you mean \"at\"?"),
        ("idle: 10ms", "6:11: idle is at least 1s, and at most a year"),
        ("ahead: 5", "6:12: 5 of what?; write 5s or 5ms"),
    ] {
        let faults = clock(by);
        assert!(faults.iter().any(|one| one == fault), "{by} gave\n{}\nand not\n{fault}", faults.join("\n"));
    }
    let none = FINE
        .replace("slide: 1m, every: 10s, by: at, lateness: 2s", "jump: 10 events")
        .replace("- name: meters\n", "- name: meters\n    idle: 5s\n");
    let faults = said(&check(&none).unwrap_err());
    assert_eq!(
        faults,
        [
            "6:11: idle is about an event's time, and nothing waits for that; write time: and a field of kind time, or leave it out"
        ]
    );
}

#[test]
fn a_window_by_time_needs_a_time_that_goes_on() {
    let text = FINE.replace(
        "sinks:\n",
        "  - name: again
    from: means.late
    window: { jump: 1m, by: at }
    aggregate: { n: count() }
sinks:
  - name: counted
    from: again
    stdout: {}
",
    );
    let faults = said(&check(&text).unwrap_err());
    assert_eq!(
        faults,
        [
            "28:29: a window by time cannot be behind \"means.late\", which has no time that goes on; have a window by count: jump: 100 events"
        ]
    );
}
