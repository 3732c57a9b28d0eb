//! Single rules of parts, one by one.

use crate::batch::{Batch, Value};
use crate::graph::{Graph, Port};
use crate::mark::{Header, Origin, Place};
use crate::part::{PartCore, PartError, SinkCore, SourceCore, Taken, Ticker, not_silent};
use crate::record::{self, Record, Tick, Times};
use crate::window::watermark::BEGINNING;
use crate::wire::What;

const LINE: &str = "\
kind: Stream
name: line
schema: { n: int, at: time }
sources:
  - name: one
    {source}
operators:
  - name: twice
    from: one
    map: { n: n * 2, at: at }
    replicas: 2
  - name: all
    from: twice
    window: { jump: 1s, by: at }
    aggregate: { n: sum(n) }
sinks:
  - name: out
    from: all
    mqtt: { topic: 'sums/{n}' }
  - name: unfit
    from: one.unfit
    stdout: {}
";

fn graph(source: &str) -> Graph {
    crate::definition::check(&LINE.replace("{source}", source)).unwrap().remove(0)
}

/// Rows of one upstream, as a record.
fn rows(graph: &Graph, port: Port, first: u64, values: &[i64], times: Times) -> Vec<u8> {
    let mut batch = Batch::new(graph.flows(port));
    values.iter().for_each(|n| batch.push_row(&[Value::Int(*n), Value::Time(*n)]).unwrap());
    let rows = values.len() as u32;
    let header = Header { upstream: port.number(), origin: Origin::Fixed, replica: 1, first, rows, watermarks: vec![] };
    record::rows(&header, &times, &batch)
}

/// The rows that a part cut, all together.
fn said(graph: &Graph, part: &mut PartCore) -> Vec<i64> {
    let mut all = Vec::new();
    for said in part.cut(0) {
        if let Ok(Record::Rows(rows)) = record::read(&said.bytes) {
            all.extend_from_slice(rows.events(&graph.flows(said.port)).unwrap().column(0).ints().unwrap());
        }
    }
    all
}

#[test]
fn a_record_says_how_long_whoever_wrote_it_took() {
    let graph = graph("http: {}");
    let mut part = PartCore::of(&graph, 0, 0).unwrap();
    let times = Times { sent_us: 70, arrived_us: 5, caused_us: 10, taken_us: 30 };
    let record = rows(&graph, Port::Source(0), 0, &[1, 2], times);
    let facts = part.hear(0, &record, 100).unwrap().facts.unwrap();
    assert_eq!((facts.from, facts.replica, facts.rows), (Some(What::Source(0)), 1, 2));
    let took = facts.latency(100);
    assert_eq!((took.latency_us, took.wait_us, took.service_us, took.whole_us), (90, 20, 70, 95));
    assert_eq!(facts.latency(0).latency_us, 0, "clocks that differ make nothing negative");
    // And what comes of it says when it was sent, taken in hand, and handed on.
    let said = part.cut(120).remove(0);
    let Ok(Record::Rows(next)) = record::read(&said.bytes) else { panic!("no rows") };
    assert_eq!(next.times, Times { sent_us: 120, arrived_us: 5, caused_us: 70, taken_us: 100 });
    assert_eq!(&*said.to, [What::Stage(1)]);
}

#[test]
fn a_damaged_record_is_passed_over_and_another_copy_fills_the_gap() {
    let graph = graph("http: {}");
    let of = |first, values: &[i64]| rows(&graph, Port::Operator(0), first, values, Times::default());
    let mut broken = of(2, &[3, 4]);
    let last = broken.len() - 1;
    broken[last] ^= 1;
    // The second stage reads what two replicas say: the first of them ahead, one of its records damaged.
    let log = [of(0, &[1, 2]), broken, of(4, &[5, 6]), b"rubbish".to_vec(), of(1, &[2, 3]), of(3, &[4, 5, 6, 7])];
    let mut part = PartCore::of(&graph, 1, 0).unwrap();
    let mut heard = Vec::new();
    for (offset, record) in log.iter().enumerate() {
        heard.push(part.hear(offset as u64, record, 0).unwrap());
        // In the middle, somebody else goes on with what this one knows, the record that waits among it.
        if offset == 3 {
            let saved = part.snapshot().unwrap();
            part = PartCore::restore(&graph, 1, 1, &saved.bytes).unwrap();
        }
    }
    assert!(heard[1].passed_over.as_ref().unwrap().contains("checksum"), "{heard:?}");
    assert!(heard[3].passed_over.as_ref().unwrap().contains("no record"), "{heard:?}");
    assert_eq!(heard.iter().map(|heard| heard.lost).sum::<u64>(), 0);
    assert_eq!(heard.iter().map(|heard| heard.fresh).sum::<u64>(), 7);
    let end = Tick { upstream: Port::Operator(0).number(), replica: 0, time: 10_000_000, sent_us: 0 };
    part.hear(6, &record::tick(&end), 0).unwrap();
    let sums: Vec<Vec<u8>> = part.cut(0).into_iter().map(|said| said.bytes).collect();
    let Ok(Record::Rows(sum)) = record::read(&sums[0]) else { panic!("no rows") };
    assert_eq!(sum.events(&graph.flows(Port::Operator(1))).unwrap().row(0)[2], Value::Int(28));
}

#[test]
fn what_nobody_has_any_more_is_lost_counted_and_stops_nothing() {
    let graph = graph("http: {}");
    // A source has one copy: what is missing will not come.
    let mut first = PartCore::of(&graph, 0, 0).unwrap();
    let of = |first, values: &[i64]| rows(&graph, Port::Source(0), first, values, Times::default());
    first.hear(0, &of(0, &[1]), 0).unwrap();
    assert_eq!(first.hear(1, &of(3, &[4]), 0).unwrap().lost, 2);
    assert_eq!(said(&graph, &mut first), [2, 8]);
    // Of two copies, the other is waited for, and not for ever.
    let mut second = PartCore::of(&graph, 1, 0).unwrap();
    let of = |first, values: &[i64]| rows(&graph, Port::Operator(0), first, values, Times::default());
    second.hear(0, &of(0, &[1]), 0).unwrap();
    let mut lost = 0;
    for n in 0..100 {
        lost += second.hear(n + 1, &of(n + 5, &[n as i64]), 0).unwrap().lost;
    }
    assert_eq!((lost, second.counts().lost, second.counts().events_in), (4, 4, 101));
}

#[test]
fn what_the_log_no_longer_holds_is_told() {
    let graph = graph("http: {}");
    let mut part = PartCore::of(&graph, 0, 0).unwrap();
    let record = rows(&graph, Port::Source(0), 0, &[1], Times::default());
    let gone = part.hear(7, &record, 0).unwrap_err();
    assert!(matches!(gone, PartError::Trimmed(_)), "{gone}");
    part.skip_to(7);
    assert_eq!(part.hear(7, &record, 0).unwrap().fresh, 1);
    assert_eq!(part.hear(7, &record, 0).unwrap().fresh, 0, "it was read already");
    // Nor does a part read what it has no business with.
    let stray = rows(&graph, Port::Operator(1), 0, &[], Times::default());
    assert!(part.hear(8, &stray, 0).unwrap().passed_over.unwrap().contains("does not read"));
}

#[test]
fn snapshots_of_other_definitions_are_refused() {
    let graph = graph("http: {}");
    let saved = PartCore::of(&graph, 0, 0).unwrap().snapshot().unwrap();
    assert!(PartCore::restore(&graph, 0, 1, &saved.bytes).is_ok());
    assert!(PartCore::restore(&graph, 1, 0, &saved.bytes).is_err());
    let other = crate::definition::check(&LINE.replace("{source}", "http: {}").replace("n * 2", "n * 3")).unwrap();
    assert!(PartCore::restore(&other[0], 0, 0, &saved.bytes).is_err());
}

const SECOND: i64 = 1_000_000;

#[test]
fn the_time_of_a_silent_source_goes_on_with_the_clock() {
    let graph = graph("http: {}\n    time: at\n    idle: 5s");
    let mut ticker = Ticker::of(&graph, What::Stage(0), 0);
    let port = Port::Source(0);
    let time_of = |records: Vec<Vec<u8>>| {
        records.first().map(|record| match record::read(record) {
            Ok(Record::Tick(tick)) => tick.time / SECOND,
            other => panic!("{other:?}"),
        })
    };
    let mut at = |now: i64, at_end: bool, known: i64| time_of(ticker.ticks(now * SECOND, at_end, |_| known));
    // Nothing has come yet: behind the clock by as long as it may be silent.
    assert_eq!(at(1_000, true, BEGINNING), None);
    assert_eq!(at(1_004, true, BEGINNING), None);
    assert_eq!(at(1_005, true, BEGINNING), Some(1_000));
    assert_eq!(at(1_005, true, BEGINNING), None, "once");
    assert_eq!(at(1_006, false, BEGINNING), None, "there is more to be read");
    assert_eq!(at(1_007, true, 1_000 * SECOND), Some(1_002));
    // Events of long ago come, and then none.
    ticker.heard(port, 50 * SECOND, 1_010 * SECOND);
    let mut ticker = Ticker::of(&graph, What::Stage(0), 0);
    ticker.heard(port, 50 * SECOND, 1_010 * SECOND);
    let mut at = |now: i64, known: i64| time_of(ticker.ticks(now * SECOND, true, |_| known));
    assert_eq!(at(1_014, 50 * SECOND), None);
    assert_eq!(at(1_018, 50 * SECOND), Some(53));
    assert_eq!(at(1_020, 55 * SECOND), None, "another replica has said as much");
    assert_eq!(at(1_021, i64::MAX), None, "it has ended");
    // A file that nothing was read of yet may be of any time.
    let file = self::graph("file: { path: a }\n    idle: 5s");
    let mut ticker = Ticker::of(&file, What::Stage(0), 0);
    ticker.ticks(0, true, |_| BEGINNING);
    assert_eq!(ticker.ticks(100 * SECOND, true, |_| BEGINNING), Vec::<Vec<u8>>::new());
}

#[test]
fn a_source_that_says_it_is_not_silent_is_not_and_silence_nobody_could_hear_does_not_count() {
    let graph = graph("http: {}\n    time: at\n    idle: 5s");
    let mut part = PartCore::of(&graph, 0, 0).unwrap();
    let mut source = SourceCore::of(&graph, 0, Origin::Free(1));
    source.message(b"{\"n\":1,\"at\":1500000}", 3_000_000);
    part.hear(0, &source.cut(3_000_000).remove(0).bytes, 10 * SECOND).unwrap();
    assert!(!part.is_tick_due(14 * SECOND) && part.is_tick_due(20 * SECOND));
    part.hear(1, &not_silent(0, 0), 18 * SECOND).unwrap();
    assert!(!part.is_tick_due(22 * SECOND) && part.ticks(22 * SECOND, true).is_empty());
    part.hold_time(40 * SECOND);
    assert!(!part.is_tick_due(44 * SECOND) && part.is_tick_due(50 * SECOND));
    assert_eq!(part.ticks(50 * SECOND, true).len(), 1);
    assert_eq!(part.time(Port::Source(0)), 1_500_000, "none of this moved time");
}

/// What a source cut: numbers of rows, watermarks, and what does not fit.
fn cut(graph: &Graph, core: &mut SourceCore) -> (Vec<i64>, Vec<(u64, i64)>, Vec<String>) {
    let (mut values, mut marks, mut unfit) = (Vec::new(), Vec::new(), Vec::new());
    for said in core.cut(9) {
        let Ok(Record::Rows(rows)) = record::read(&said.bytes) else { panic!("no rows") };
        let batch = rows.events(&graph.flows(said.port)).unwrap();
        match said.port {
            Port::Source(_) => {
                values.extend_from_slice(batch.column(0).ints().unwrap());
                marks.extend(rows.header.watermarks.iter().copied());
            }
            _ => unfit.extend((0..batch.rows()).map(|row| batch.row(row)[1].to_string())),
        }
    }
    (values, marks, unfit)
}

#[test]
fn one_event_from_the_far_future_moves_no_time() {
    let text = "{\"n\":1,\"at\":1500000} {\"n\":2,\"at\":9000000000000} {\"n\":3,\"at\":2500000} {\"n\":4}";
    let graph = graph("http: {}\n    ahead: 1h");
    let mut live = SourceCore::of(&graph, 0, Origin::Free(1));
    assert_eq!(live.message(text.as_bytes(), 3_000_000), Taken { events: 2, unfit: 2 });
    let (values, marks, unfit) = cut(&graph, &mut live);
    assert_eq!((values, marks), (vec![1, 3], vec![(1, 1_500_000), (2, 2_500_000)]));
    assert!(unfit.len() == 2 && unfit[1].contains("further ahead of the clock"), "{unfit:?}");
    // A file says the same whenever it is read, so there it stays, and moves no time either.
    let file = self::graph("file: { path: a }\n    ahead: 1h");
    let mut core = SourceCore::of(&file, 0, Origin::Fixed);
    core.lines([text.as_bytes()], 3_000_000);
    let (values, marks, unfit) = cut(&file, &mut core);
    assert_eq!((values, marks, unfit.len()), (vec![1, 2, 3], vec![(1, 1_500_000), (3, 2_500_000)], 1));
}

#[test]
fn what_comes_of_lines_does_not_depend_on_how_many_are_read_at_once() {
    let graph = graph("file: { path: a }");
    let lines: Vec<String> = (0..3_000)
        .map(|n| match n % 3 {
            0 => format!("{{\"n\":{n}}}"),
            1 => "[".repeat(n % 7) + "{}{}x",
            _ => format!("{{\"n\":{n},\"at\":{}}}", n * 1_000),
        })
        .collect();
    let read = |at_once: usize| {
        let mut core = SourceCore::of(&graph, 0, Origin::Fixed);
        let mut all = (Vec::new(), Vec::new());
        for lines in lines.chunks(at_once) {
            core.lines(lines.iter().map(String::as_bytes), 0);
            let (values, _, unfit) = cut(&graph, &mut core);
            all.0.extend(values);
            all.1.extend(unfit);
        }
        all
    };
    assert_eq!(read(1), read(3_000));
    assert_eq!(read(7), read(3_000));
}

#[test]
fn a_generator_goes_on_where_it_was() {
    let source = "generator: { rate: [ { for: 2s, rate: 10 } ], fields: { n: n, at: at } }";
    let graph = graph(source);
    let mut core = SourceCore::of(&graph, 0, Origin::Fixed);
    assert_eq!(core.begin(5_000_000), 5_000_000);
    assert_eq!(core.generate(5_050_000), Some(5_100_000), "a tenth of a second after the first");
    assert_eq!(core.generate(5_500_000), Some(5_600_000));
    assert_eq!(cut(&graph, &mut core).0, [0, 1, 2, 3, 4]);
    let saved = core.snapshot(b"here");
    let (mut again, position) = SourceCore::restore(&graph, 0, Origin::Fixed, &saved).unwrap();
    assert_eq!(position, b"here");
    again.pause(5_600_000);
    again.pause(6_000_000);
    // It goes elsewhere while it is paused.
    let (mut again, _) = SourceCore::restore(&graph, 0, Origin::Fixed, &again.snapshot(b"here")).unwrap();
    assert!(again.resume(6_600_000) && !again.resume(7_000_000), "once");
    assert_eq!(again.generate(6_600_000), Some(6_700_000));
    assert_eq!(cut(&graph, &mut again).0, [5]);
    assert_eq!(again.generate(60_000_000), None);
    let (values, marks, _) = cut(&graph, &mut again);
    assert_eq!((values.len(), marks.last()), (14, Some(&(20, i64::MAX))));
    assert!(again.has_ended());
}

#[test]
fn a_sink_names_rows_by_their_place_and_fills_its_template() {
    let graph = graph("http: {}");
    let mut core = SinkCore::of(&graph, 0);
    let port = Port::Operator(1);
    let mut batch = Batch::new(graph.flows(port));
    for n in 0..3 {
        batch.push_row(&[Value::Time(0), Value::Time(SECOND), Value::Int(n * 10)]).unwrap();
    }
    let header = Header {
        upstream: port.number(),
        origin: Origin::Fixed,
        replica: 0,
        first: 0,
        rows: 3,
        watermarks: vec![(3, i64::MAX)],
    };
    let record = record::rows(&header, &Times { arrived_us: 77, ..Times::default() }, &batch);
    let mut rows = Vec::new();
    core.hear(0, &record, &mut rows).unwrap();
    let heard = core.hear(1, &record, &mut rows).unwrap();
    assert_eq!((heard.fresh, heard.known, rows.len()), (0, 3, 3));
    assert_eq!((rows[2].place, rows[2].place.to_string()), (Place { offset: 0, row: 2 }, "0.2".to_owned()));
    assert_eq!(rows[2].name.as_deref(), Some("sums/20"));
    assert_eq!(rows[2].arrived_us, 77);
    let value = "{\"start\":\"1970-01-01T00:00:00Z\",\"end\":\"1970-01-01T00:00:01Z\",\"n\":20}";
    assert_eq!(String::from_utf8_lossy(&rows[2].value), value);
    assert!(core.has_ended());
    let (again, position) = SinkCore::restore(&graph, 0, &core.snapshot(b"12")).unwrap();
    assert_eq!((again.next_offset(), position.as_slice()), (2, &b"12"[..]));
}
