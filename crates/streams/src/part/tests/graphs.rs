//! What is run. `{…}` is replaced by what each world chooses.

/// Of the first so many, everything comes from one file, and nothing comes together again.
pub const LINES: usize = 3;

pub const GRAPHS: [(&str, &str); 7] = [
    (
        "by time",
        "\
kind: Stream
name: line
schema: { k: int, s: text, at: time, x: float, n: int }
replicas: 2
sources:
  - name: one
    file: { path: one.jsonl, start: beginning }
operators:
  - name: some
    from: one
    filter: n % 7 != 3
  - name: more
    from: some
    add: { y: x * 2.0, s: \"s + '!'\" }
  - name: keyed
    from: more
    key_by: [ k, s ]
  - name: windows
    from: keyed
    window: {window}
    aggregate: { events: count(), y: sum(y), mean: mean(y), least: min(n), last: last(n), half: 'percentile(y, 0.5)', different: distinct(n) }
  - name: said
    from: windows
    filter: events > 0
sinks:
  - name: out
    from: said
    mqtt: { topic: 'out/{k}' }
  - name: late
    from: windows.late
    kv: { key: 'late/{n}', value: y }
  - name: unfit
    from: one.unfit
    stdout: {}
",
    ),
    (
        "by count",
        "\
kind: Stream
name: counts
schema: { k: int, s: text, at: time, x: float, n: int }
sources:
  - name: one
    file: { path: one.jsonl, start: beginning }
operators:
  - name: keyed
    from: one
    key_by: s
  - name: counts
    from: keyed
    window: { slide: 5 events, every: {every} events }
    aggregate: { x: variance(x), n: max(n), top: 'frequent(k, 2)' }
    replicas: 3
  - name: sums
    from: counts
    window: { jump: 3 events }
    aggregate: { n: sum(n), x: first(x) }
    replicas: 2
sinks:
  - name: out
    from: sums
    stdout: {}
  - name: between
    from: counts
    stdout: {}
",
    ),
    (
        "windows of windows",
        "\
kind: Stream
name: twice
schema: { k: int, s: text, at: time, x: float, n: int }
replicas: 2
sources:
  - name: one
    file: { path: one.jsonl, start: beginning }
operators:
  - name: keyed
    from: one
    key_by: k
  - name: short
    from: keyed
    window: {window}
    aggregate: { x: sum(x), n: count() }
  - name: by_all
    from: short
    key_by: []
  - name: long
    from: by_all
    window: { slide: 90ms, every: 30ms, by: end }
    aggregate: { n: sum(n), keys: distinct(k), x: max(x) }
sinks:
  - name: out
    from: long
    stdout: {}
  - name: late
    from: short.late
    stdout: {}
  - name: later
    from: long.late
    stdout: {}
",
    ),
    (
        "two sources",
        "\
kind: Stream
name: both
schema: { k: int, s: text, at: time, x: float, n: int }
replicas: 2
sources:
  - name: one
    file: { path: one.jsonl, start: beginning }
  - name: other
    http: {}
operators:
  - name: all
    union: [ one, other ]
  - name: some
    from: all
    filter: x > -50
  - name: keyed
    from: some
    key_by: k
  - name: windows
    from: keyed
    window: {window}
    aggregate: { events: count(), x: mean(x), first: first(n), s: max(s) }
sinks:
  - name: out
    from: windows
    stdout: {}
  - name: late
    from: windows.late
    stdout: {}
  - name: raw
    from: other
    stdout: {}
",
    ),
    (
        "a source of epochs",
        "\
kind: Stream
name: epochs
schema: { k: int, s: text, at: time, x: float, n: int }
sources:
  - name: one
    mqtt: { topic: 'a/#' }
operators:
  - name: keyed
    from: one
    key_by: k
  - name: windows
    from: keyed
    window: {window}
    aggregate: { events: count(), x: sum(x), last: last(s) }
    replicas: 2
  - name: counts
    from: one
    window: { jump: 4 events }
    aggregate: { n: sum(n) }
    replicas: 2
sinks:
  - name: out
    from: windows
    stdout: {}
  - name: counted
    from: counts
    stdout: {}
  - name: unfit
    from: one.unfit
    stdout: {}
",
    ),
    (
        "a diamond",
        "\
kind: Stream
name: diamond
schema: { k: int, s: text, at: time, x: float, n: int }
replicas: 2
sources:
  - name: one
    file: { path: one.jsonl, start: beginning }
operators:
  - name: left
    from: one
    filter: n % 2 == 0
  - name: right
    from: one
    map: { k: k + 1, s: s, at: at, x: x / 2, n: n }
  - name: both
    union: [ left, right ]
  - name: windows
    from: both
    window: {window}
    aggregate: { events: count(), x: sum(x), all: 'distinct(n)' }
  - name: counts
    from: both
    window: { slide: 6 events, every: 2 events }
    aggregate: { first: first(n), last: last(n), x: sum(x) }
    replicas: 3
sinks:
  - name: out
    from: windows
    stdout: {}
  - name: counted
    from: counts
    stdout: {}
",
    ),
    (
        "late events go on",
        "\
kind: Stream
name: later
schema: { k: int, s: text, at: time, x: float, n: int }
replicas: 2
sources:
  - name: one
    file: { path: one.jsonl, start: beginning }
  - name: two
    mqtt: { topic: two }
operators:
  - name: first
    from: one
    window: {window}
    aggregate: { events: count(), x: sum(x) }
  - name: again
    from: first.late
    map: { n: n, why: \"'late'\" }
  - name: plain
    from: two
    map: { n: n, why: s }
  - name: all
    union: [ again, plain ]
  - name: counts
    from: all
    window: { jump: 3 events }
    aggregate: { n: sum(n), why: min(why) }
sinks:
  - name: out
    from: first
    stdout: {}
  - name: said
    from: counts
    stdout: {}
",
    ),
];
