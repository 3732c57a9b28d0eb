use super::*;
use crate::aggregate::{Aggregate, Function};
use crate::window::Limits;

const END_US: i64 = 100_000;

fn schema() -> Arc<Schema> {
    Arc::new(Schema::of([("k", crate::Kind::Int), ("at", crate::Kind::Time), ("x", crate::Kind::Float)]))
}

fn sliding() -> Sliding {
    let window = Window::Time { field: 1, size_us: 30_000, every_us: 10_000, lateness_us: 1_000_000 };
    let aggregates = vec![Aggregate { name: "mean".into(), function: Function::Mean, field: Some(2) }];
    let grouping = Grouping { keys: vec![0], window, aggregates, limits: Limits::default() };
    Sliding::of(&grouping, &schema(), 1).unwrap()
}

/// So many events of three keys, over all ends.
fn events(count: i64) -> Batch {
    let times: Vec<i64> = (0..count).map(|n| n * END_US / count).collect();
    let columns = vec![
        Column::Int((0..count).map(|n| n % 3).collect()),
        Column::Time(times),
        Column::Float((0..count).map(|n| n as f64).collect()),
    ];
    Batch::of(schema(), columns).unwrap()
}

#[test]
fn what_waits_is_written_some_at_a_time_as_it_was_whatever_comes_and_goes_meanwhile() {
    let (mut one, mut other) = (sliding(), sliding());
    let mut out = Vec::new();
    for operator in [&mut one, &mut other] {
        operator.push(0, events(5_000), &mut out).unwrap();
    }
    other.begin_snapshot();
    let expected = other.advance_snapshot(usize::MAX).unwrap();
    one.begin_snapshot();
    assert!(one.head.as_ref().unwrap().len() < 200, "nothing of what waits is written yet");
    let (mut calls, mut written) = (0, None);
    while written.is_none() {
        calls += 1;
        match calls {
            10 | 150 => one.push(0, events(500), &mut out).unwrap(),
            // Half of the ends go.
            20 => one.watermark(0, 1_000_000 + END_US / 2, &mut out).unwrap(),
            _ => {}
        }
        written = one.advance_snapshot(1);
    }
    assert!(calls > 5_000 / 2 / KEY_ROWS, "{calls}");
    assert!(written == Some(expected), "it is another one");
    let mut again = sliding();
    again.restore(&written.unwrap()).unwrap();
    assert_eq!((again.held, again.waiting.rows(), again.bytes), (other.held, other.waiting.rows(), other.bytes));
}
