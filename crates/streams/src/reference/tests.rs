//! Batches against single events, to the bit: with random windows, cuts, late events and snapshots in the middle.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::aggregate::{Aggregate, Function};
use crate::batch::Batch;
use crate::operator::{KeyBy, Operator, Outlet, Piece, Whole, snapshot, windowed};
use crate::schema::Kind;
use crate::state::Unreadable;
use crate::window::{Limits, Refused, Window};

const K: usize = 0;
const S: usize = 1;
const B: usize = 2;
const AT: usize = 3;
const X: usize = 4;
const N: usize = 5;

fn schema() -> Arc<Schema> {
    let kinds = [Kind::Int, Kind::Text, Kind::Bool, Kind::Time, Kind::Float, Kind::Int];
    Arc::new(Schema::of(["k", "s", "b", "at", "x", "n"].into_iter().zip(kinds)))
}

/// Every function, of every kind that it takes.
fn aggregates() -> Vec<Aggregate> {
    use Function::*;
    let bounds = Histogram(vec![-10.0, 0.5, 100.0]);
    let all = [
        (Count, None),
        (Sum, Some(X)),
        (Sum, Some(N)),
        (Mean, Some(X)),
        (Mean, Some(N)),
        (Min, Some(X)),
        (Max, Some(X)),
        (Min, Some(N)),
        (Max, Some(S)),
        (Min, Some(S)),
        (Max, Some(AT)),
        (Variance, Some(X)),
        (Variance, Some(N)),
        (Percentile(0.5), Some(X)),
        (Percentile(0.95), Some(N)),
        (bounds, Some(X)),
        (Distinct, Some(S)),
        (Distinct, Some(X)),
        (Frequent(2), Some(S)),
        (Frequent(1), Some(B)),
        (First, Some(X)),
        (Last, Some(S)),
        (First, Some(B)),
        (Last, Some(AT)),
    ];
    let named = |(n, (function, field))| Aggregate { name: format!("a{n}"), function, field };
    all.into_iter().enumerate().map(named).collect()
}

fn window() -> impl Strategy<Value = Window> {
    prop_oneof![
        (1u64..9, 1u64..9).prop_map(|(size, every)| Window::Count { size, every: every.min(size) }),
        (1u64..9).prop_map(|size| Window::Count { size, every: size }),
        (1i64..60, 1i64..60, 0i64..40).prop_map(|(size_us, every, lateness_us)| {
            Window::Time { field: AT, size_us, every_us: every.min(size_us), lateness_us }
        }),
        (1i64..60, 0i64..40).prop_map(|(size_us, lateness_us)| Window::Time {
            field: AT,
            size_us,
            every_us: size_us,
            lateness_us
        }),
    ]
}

fn grouping() -> impl Strategy<Value = Grouping> {
    let keys = prop::sample::select(vec![vec![], vec![K], vec![S], vec![B], vec![AT], vec![K, S], vec![S, B, K]]);
    (keys, window()).prop_map(|(keys, window)| Grouping {
        keys,
        window,
        aggregates: aggregates(),
        limits: Limits::default(),
    })
}

fn event() -> impl Strategy<Value = Vec<Value>> {
    let float = prop_oneof![
        (-1000i32..1000).prop_map(|n| f64::from(n) / 8.0),
        -100.0..100.0f64,
        prop::sample::select(vec![0.1, 1e15, -1e15, 0.0, -0.0, 1e-9]),
    ];
    let text = prop::sample::select(vec!["", "a", "b\u{0}", "ab", "é"]);
    (-2i64..3, text, any::<bool>(), -50i64..250, float, prop_oneof![-5i64..5, -(1i64 << 50)..1 << 50]).prop_map(
        |(k, s, b, at, x, n)| {
            vec![Value::Int(k), s.into(), Value::Bool(b), Value::Time(at), Value::Float(x), Value::Int(n)]
        },
    )
}

fn words(most: usize) -> impl Strategy<Value = Vec<Word>> {
    let word = prop_oneof![7 => event().prop_map(Word::Event), 1 => (-60i64..260).prop_map(Word::Time)];
    prop::collection::vec(word, 0..most)
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1..20usize, 1..8)
}

/// What came out, one word at a time, what is late apart.
#[derive(Clone, Debug, Default)]
struct Heard {
    main: Vec<Word>,
    late: Vec<Word>,
}

impl Heard {
    fn of(said: &[(Port, Word)]) -> Self {
        let of = |wanted: Port| said.iter().filter(|(port, _)| *port == wanted).map(|(_, word)| word.clone()).collect();
        Self { main: of(Port::Main), late: of(Port::Late) }
    }

    fn take(&mut self, out: &mut Outlet) {
        for piece in out.drain(..) {
            match piece {
                Piece::Watermark(time) => self.main.push(Word::Time(time)),
                Piece::Rows(port, batch) => {
                    let rows = (0..batch.rows()).map(|row| Word::Event(batch.row(row)));
                    if port == Port::Late { self.late.extend(rows) } else { self.main.extend(rows) }
                }
            }
        }
    }

    fn differs(&self, other: &Heard) -> Option<String> {
        for (which, one, other) in [("main", &self.main, &other.main), ("late", &self.late, &other.late)] {
            let same = one.iter().zip(other).take_while(|(one, other)| one.same(other)).count();
            if same < one.len().max(other.len()) {
                return Some(format!("{which} {same}: {:?} and {:?}", one.get(same), other.get(same)));
            }
        }
        None
    }
}

fn is_same(one: &Heard, other: &Heard) -> Result<(), TestCaseError> {
    one.differs(other).map_or(Ok(()), |why| Err(TestCaseError::fail(why)))
}

/// Lets an operator hear words, cut into batches as told; after each batch something else may be done.
fn feed(
    operator: &mut dyn Operator,
    words: &[(usize, Word)],
    cuts: &[usize],
    mut after: impl FnMut(&mut dyn Operator),
) -> Heard {
    let (mut heard, mut out) = (Heard::default(), Vec::new());
    let mut cuts = cuts.iter().cycle();
    let mut rest = words;
    while let Some((input, word)) = rest.first() {
        if let Word::Time(time) = word {
            operator.watermark(*input, *time, &mut out).unwrap();
            rest = &rest[1..];
        } else {
            let most = *cuts.next().unwrap();
            let mut batch = Batch::new(schema());
            while let Some((from, Word::Event(event))) = rest.first()
                && batch.rows() < most
                && from == input
            {
                batch.push_row(event).unwrap();
                rest = &rest[1..];
            }
            operator.push(*input, batch, &mut out).unwrap();
        }
        heard.take(&mut out);
        after(operator);
    }
    heard
}

fn at_one_input(words: Vec<Word>) -> Vec<(usize, Word)> {
    words.into_iter().map(|word| (0, word)).collect()
}

fn expected(grouping: &Grouping, words: &[(usize, Word)]) -> Heard {
    let window = Step::Window { of: 0, grouping: grouping.clone(), input: (*schema()).clone() };
    Heard::of(&run(&[Step::Source, window], words)[1])
}

proptest! {
    #[test]
    fn windows_say_what_the_reference_says_however_batches_are_cut(grouping in grouping(), words in words(120), cuts in cuts()) {
        let words = at_one_input(words);
        let mut operator = windowed(&grouping, &schema(), 1).unwrap();
        is_same(&feed(operator.as_mut(), &words, &cuts, |_| {}), &expected(&grouping, &words))?;
    }

    /// A snapshot is begun in the middle and written while events go on; another operator goes on from it, with other cuts.
    #[test]
    fn going_on_from_a_snapshot_is_the_same_as_never_having_stopped(
        grouping in grouping(), words in words(120), one in cuts(), other in cuts(), middle in any::<prop::sample::Index>(),
    ) {
        let words = at_one_input(words);
        let middle = middle.index(words.len() + 1);
        let fresh = || windowed(&grouping, &schema(), 1).unwrap();
        let mut first = fresh();
        feed(first.as_mut(), &words[..middle], &one, |_| {});
        first.begin_snapshot();
        let mut written = None;
        let rest = feed(first.as_mut(), &words[middle..], &one, |operator| {
            written = written.take().or_else(|| operator.advance_snapshot(1));
        });
        while written.is_none() {
            written = first.advance_snapshot(1);
        }
        let written = written.unwrap();

        // The same state, come about with other cuts and written at once, is the same bytes.
        let mut again = fresh();
        feed(again.as_mut(), &words[..middle], &other, |_| {});
        prop_assert_eq!(&snapshot(again.as_mut()), &written);

        let mut second = fresh();
        second.restore(&written).unwrap();
        is_same(&feed(second.as_mut(), &words[middle..], &other, |_| {}), &rest)?;
        prop_assert_eq!(snapshot(second.as_mut()), snapshot(first.as_mut()));
    }

    /// What is held is counted the same by whoever went on from a snapshot: bounds are passed at the same event.
    #[test]
    fn replicas_refuse_at_the_same_event(grouping in grouping(), words in words(80), most in 100usize..6_000, every in 1usize..9) {
        let limits = Limits { bytes_max: most, events_max: 40, keys_max: 8, open_max: 9 };
        let grouping = Grouping { limits, ..grouping };
        let refused = |restores: bool| {
            let mut operator = windowed(&grouping, &schema(), 1).unwrap();
            for (n, word) in words.iter().enumerate() {
                let heard = match word {
                    Word::Time(time) => operator.watermark(0, *time, &mut Vec::new()),
                    Word::Event(event) => {
                        let mut batch = Batch::new(schema());
                        batch.push_row(event).unwrap();
                        operator.push(0, batch, &mut Vec::new())
                    }
                };
                if let Err(why) = heard {
                    return Some((n, why));
                }
                if restores && n % every == 0 {
                    let saved = snapshot(operator.as_mut());
                    operator = windowed(&grouping, &schema(), 1).unwrap();
                    operator.restore(&saved).unwrap();
                }
            }
            None
        };
        prop_assert_eq!(refused(false), refused(true));
    }

    #[test]
    fn a_damaged_snapshot_is_refused_and_changes_nothing(
        grouping in grouping(), words in words(60), at in any::<prop::sample::Index>(), bit in 0u32..8,
    ) {
        let words = at_one_input(words);
        let mut operator = windowed(&grouping, &schema(), 1).unwrap();
        feed(operator.as_mut(), &words, &[7], |_| {});
        let good = snapshot(operator.as_mut());
        let mut bad = good.clone();
        let at = at.index(bad.len());
        bad[at] ^= 1u8 << bit;
        prop_assert!(operator.restore(&bad).is_err());
        prop_assert_eq!(snapshot(operator.as_mut()), good);
        let others = Grouping { keys: vec![N], ..grouping };
        let written = snapshot(operator.as_mut());
        prop_assert_eq!(windowed(&others, &schema(), 1).unwrap().restore(&written), Err(Unreadable::Other));
    }

    /// Two sources, put together, filtered, mapped, and in a window.
    #[test]
    fn a_graph_says_what_the_reference_says(
        grouping in grouping(), words in words(120), sources in prop::collection::vec(0..2usize, 120), cuts in cuts(),
    ) {
        let words: Vec<(usize, Word)> = sources.into_iter().zip(words).collect();
        let test = |event: &[Value]| matches!(&event[N], Value::Int(n) if *n > -3);
        let make = |event: &[Value]| {
            let mut event = event.to_vec();
            event[N] = if let Value::Int(n) = &event[N] { Value::Int(n.saturating_add(2)) } else { event[N].clone() };
            event
        };
        let steps = [
            Step::Source,
            Step::Source,
            Step::Union { of: vec![0, 1] },
            Step::Filter { of: 2, test: &test },
            Step::Map { of: 3, make: &make },
            Step::Window { of: 4, grouping: grouping.clone(), input: (*schema()).clone() },
        ];
        let wanted = run(&steps, &words);

        let mut graph = crate::definition::check(GRAPH).unwrap().remove(0);
        graph.operators[3].does = crate::graph::Does::Window(grouping);
        let mut whole = InOnePlace(Whole::of(&graph).unwrap());
        is_same(&feed(&mut whole, &words, &cuts, |_| {}), &Heard::of(&wanted[5]))?;
    }

    #[test]
    fn rows_of_a_key_go_to_one_part_in_their_order(words in words(80), cuts in cuts(), parts in 1u32..5) {
        let words: Vec<_> = at_one_input(words).into_iter().filter(|(_, word)| matches!(word, Word::Event(_))).collect();
        let heard = |cuts: &[usize]| {
            let mut out = Vec::new();
            let mut operator = KeyBy::of(vec![K, S], parts);
            let mut rest = &words[..];
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                let mut batch = Batch::new(schema());
                now.iter().for_each(|(_, word)| if let Word::Event(event) = word { batch.push_row(event).unwrap() });
                operator.push(0, batch, &mut out).unwrap();
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            let rows = out.into_iter().flat_map(|piece| match piece {
                Piece::Rows(port, batch) => (0..batch.rows()).map(|row| (port, batch.row(row))).collect::<Vec<_>>(),
                Piece::Watermark(_) => vec![],
            });
            let mut rows: Vec<_> = rows.collect();
            rows.sort_by_key(|(port, _)| *port);
            format!("{rows:?}")
        };
        prop_assert_eq!(heard(&cuts), heard(&[words.len().max(1)]));
    }
}

/// The window is another in each run.
const GRAPH: &str = "\
kind: Stream
name: whole
schema: { k: int, s: text, b: bool, at: time, x: float, n: int }
sources:
  - name: one
    http: {}
  - name: other
    http: {}
operators:
  - name: both
    union: [ one, other ]
  - name: some
    from: both
    filter: n > -3
  - name: more
    from: some
    map: { k: k, s: s, b: b, at: at, x: x, n: n + 2 }
  - name: windows
    from: more
    window: { jump: 1s, by: at }
    aggregate: { events: count() }
sinks:
  - name: said
    from: windows
    stdout: {}
  - name: late
    from: windows.late
    stdout: {}
";

struct InOnePlace(Whole);

impl InOnePlace {
    fn say(&mut self, input: usize, piece: Piece, out: &mut Outlet) -> Result<(), Refused> {
        let mut sunk = Vec::new();
        self.0.say(crate::graph::Port::Source(input), piece, &mut sunk)?;
        out.extend(sunk.into_iter().map(|(sink, piece)| match piece {
            Piece::Rows(_, batch) => Piece::Rows([Port::Main, Port::Late][sink], batch),
            piece => piece,
        }));
        Ok(())
    }
}

impl Operator for InOnePlace {
    fn push(&mut self, input: usize, batch: Batch, out: &mut Outlet) -> Result<(), Refused> {
        self.say(input, Piece::Rows(Port::Main, batch), out)
    }

    fn watermark(&mut self, input: usize, time: i64, out: &mut Outlet) -> Result<(), Refused> {
        self.say(input, Piece::Watermark(time), out)
    }

    fn begin_snapshot(&mut self) {}

    fn advance_snapshot(&mut self, _: usize) -> Option<Vec<u8>> {
        None
    }

    fn restore(&mut self, _: &[u8]) -> Result<(), Unreadable> {
        Ok(())
    }
}

/// More values than are kept exactly, in windows of both sorts, and more keys than one batch or one chunk has.
#[test]
fn large_windows_say_what_the_reference_says() {
    let event = |n: i64| {
        let x = (n * 7919 % 5003) as f64 / 3.0;
        vec![
            Value::Int(n % 2),
            format!("{}", n * 31 % 1500).as_str().into(),
            (n % 3 == 0).into(),
            Value::Time(n),
            x.into(),
            n.into(),
        ]
    };
    let mut words: Vec<_> = (0..4000).map(|n| (0, Word::Event(event(n)))).collect();
    words.push((0, Word::Time(10_000)));
    for (size_us, every_us) in [(4000, 4000), (3000, 2000)] {
        let window = Window::Time { field: AT, size_us, every_us, lateness_us: 0 };
        let grouping = Grouping { keys: vec![K], window, aggregates: aggregates(), limits: Limits::default() };
        let mut operator = windowed(&grouping, &schema(), 1).unwrap();
        let heard = feed(operator.as_mut(), &words, &[700], |_| {});
        assert_eq!(heard.differs(&expected(&grouping, &words)), None);
    }
}

/// Said a few rows at a time, it is the same; and what is held comes and goes.
#[test]
fn much_that_is_said_at_once_is_said_in_pieces() {
    let words: Vec<(usize, Word)> = (0..600)
        .map(|n| {
            let row = vec![Value::Int(n % 97), "a".into(), true.into(), Value::Time(n % 50), 0.5.into(), Value::Int(n)];
            (0, Word::Event(row))
        })
        .collect();
    for (size_us, every_us) in [(10, 10), (20, 5)] {
        let window = Window::Time { field: AT, size_us, every_us, lateness_us: 0 };
        let limits = Limits { bytes_max: 1 << 20, ..Limits::default() };
        let grouping = Grouping { keys: vec![K], window, aggregates: aggregates(), limits };
        let (mut one, mut other) =
            (windowed(&grouping, &schema(), 1).unwrap(), windowed(&grouping, &schema(), 1).unwrap());
        feed(one.as_mut(), &words, &[600], |_| {});
        feed(other.as_mut(), &words, &[600], |_| {});
        let (mut whole, mut pieces) = (Heard::default(), Heard::default());
        let mut out = Vec::new();
        one.watermark(0, 60, &mut out).unwrap();
        whole.take(&mut out);
        let mut calls = 1;
        let mut more = other.begin_watermark(0, 60, 7, &mut out).unwrap();
        while more {
            let said: usize =
                out.iter().map(|piece| if let Piece::Rows(_, rows) = piece { rows.rows() } else { 0 }).sum();
            assert!(said <= 7 + 7, "{said} at once");
            pieces.take(&mut out);
            more = other.go_on(7, &mut out).unwrap();
            calls += 1;
        }
        pieces.take(&mut out);
        assert!(calls > 30);
        assert_eq!(pieces.differs(&whole), None);
        assert_eq!(snapshot(one.as_mut()), snapshot(other.as_mut()));
    }
}

#[test]
fn what_would_not_fit_into_memory_is_refused() {
    let mut batch = Batch::new(schema());
    for n in 0..20 {
        let row = [Value::Int(n), "".into(), true.into(), Value::Time(n * 100), 0.5.into(), Value::Int(n)];
        batch.push_row(&row).unwrap();
    }
    let limits = Limits { keys_max: 5, open_max: 6, events_max: 7, ..Limits::default() };
    let refused = |keys: Vec<usize>, window: Window| {
        let grouping = Grouping { keys, window, aggregates: aggregates(), limits };
        windowed(&grouping, &schema(), 1).unwrap().push(0, batch.clone(), &mut Vec::new())
    };
    let time = |size_us, every_us| Window::Time { field: AT, size_us, every_us, lateness_us: 0 };
    assert_eq!(refused(vec![K], Window::Count { size: 3, every: 3 }), Err(Refused::Keys(5)));
    assert_eq!(refused(vec![], Window::Count { size: 100, every: 1 }), Err(Refused::Events(7)));
    assert_eq!(refused(vec![], time(100, 100)), Err(Refused::Open(6)));
    assert_eq!(refused(vec![], time(100, 50)), Err(Refused::Events(7)));

    let limits = Limits { bytes_max: 600, ..Limits::default() };
    let refused = |keys: Vec<usize>, window: Window| {
        let grouping = Grouping { keys, window, aggregates: aggregates(), limits };
        windowed(&grouping, &schema(), 1).unwrap().push(0, batch.clone(), &mut Vec::new())
    };
    for window in
        [time(100, 100), time(100, 50), Window::Count { size: 9, every: 9 }, Window::Count { size: 9, every: 1 }]
    {
        assert_eq!(refused(vec![S, K], window.clone()), Err(Refused::Bytes(600)), "{window:?}");
    }
}
