use mutirao_core::Timestamp;
use mutirao_monitors::MonitorKey;
use mutirao_monitors::health::Verdict;
use mutirao_monitors::roller::Roller;
use mutirao_monitors::rollup::Step;
use mutirao_monitors::store::rolls::open as open_rolls;
use mutirao_monitors::store::{Outcome, Settlement, Settling, open};
use mutirao_shards::Fence;

use crate::engine::{Engine, on_both};
use crate::store::{made, outcome};

on_both!(
    outcomes_are_added_up_to_minutes_hours_and_days_once,
    whoever_lost_the_first_shard_adds_nothing_up,
    sums_go_when_their_time_is_over,
);

/// Midnight.
const T: i64 = 1_794_700_800_000;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// One each half minute for so many hours; every tenth is bad, and in the second hour that is excused.
fn outcomes(key: MonitorKey, hours: i64) -> Vec<Outcome> {
    let one = |n: i64| {
        let at = T + n * MINUTE / 2;
        let verdict = if n % 10 == 0 { Verdict::Bad } else { Verdict::Good };
        let excused = verdict == Verdict::Bad && (at - T) / HOUR == 1;
        Outcome { took_us: Some(1_000 + n as u64), excused, ..outcome(key, at, verdict) }
    };
    (0..hours * 120).map(one).collect()
}

async fn outcomes_are_added_up_to_minutes_hours_and_days_once(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let (store, roller) = (open(&database), Roller { store: open_rolls(&database) });
    let (a, b) = (made(&store, "a").await, made(&store, "b").await);
    let all = [outcomes(a, 26), outcomes(b, 2)].concat();
    assert_eq!(roller.round(&fence, Timestamp(T)).await.unwrap(), Settling::Written { new: 0 }, "there is nothing yet");
    store.settle(fence.clone(), Settlement { outcomes: all, ..Settlement::default() }).await.unwrap();
    // Whoever asks sees the same sums, whether nothing, something or all was added up, and however often.
    let now = T + 26 * HOUR;
    for at in [T, T + 90 * MINUTE, T + 25 * HOUR + 7 * MINUTE, now + HOUR, now + HOUR] {
        roller.round(&fence, Timestamp(at)).await.unwrap();
        let hours = roller.sums(a, Step::Hour, Timestamp(T)).await.unwrap();
        assert_eq!(hours.len(), 26, "{at}");
        let first = &hours[&Timestamp(T)];
        assert_eq!((first.good, first.bad, first.excused, first.longest_us), (108, 12, 0, 1_119));
        let second = &hours[&Timestamp(T + HOUR)];
        assert_eq!((second.good, second.bad, second.excused), (108, 0, 12), "maintenance counts neither way");
        assert_eq!((first.uptime_percent(), second.uptime_percent()), (Some(90.0), Some(100.0)));
        let median = first.times.quantile(0.5).unwrap() as f64;
        assert!((median - 1_060.0).abs() < 1_060.0 * 0.03, "{median}");
        let days = roller.sums(a, Step::Day, Timestamp(T)).await.unwrap();
        let goods: Vec<u64> = days.values().map(|roll| roll.good).collect();
        assert_eq!(goods, [24 * 108, 2 * 108]);
        let minutes = roller.sums(b, Step::Minute, Timestamp(T + HOUR)).await.unwrap();
        assert_eq!((minutes.len(), minutes.values().map(|roll| roll.good).sum::<u64>()), (60, 108));
    }
    let marks = roller.store.marks().await.unwrap();
    assert_eq!(marks[&Step::Day], Timestamp(T + 24 * HOUR));
    let written = roller.store.rolls(a, Step::Day, Timestamp(T), Timestamp(now)).await.unwrap();
    assert_eq!((written.len(), written[0].roll.good), (1, 24 * 108));
}

async fn whoever_lost_the_first_shard_adds_nothing_up(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let (store, roller) = (open(&database), Roller { store: open_rolls(&database) });
    let key = made(&store, "a").await;
    store.settle(fence.clone(), Settlement { outcomes: outcomes(key, 1), ..Settlement::default() }).await.unwrap();
    let former = Fence { generation: 0, ..fence };
    assert_eq!(roller.round(&former, Timestamp(T + 9 * HOUR)).await.unwrap(), Settling::Fenced);
    assert!(roller.store.marks().await.unwrap().is_empty());
    assert!(roller.store.rolls(key, Step::Minute, Timestamp(0), Timestamp(i64::MAX)).await.unwrap().is_empty());
}

async fn sums_go_when_their_time_is_over(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let (store, roller) = (open(&database), Roller { store: open_rolls(&database) });
    let key = made(&store, "a").await;
    store.settle(fence.clone(), Settlement { outcomes: outcomes(key, 2), ..Settlement::default() }).await.unwrap();
    roller.round(&fence, Timestamp(T + 9 * HOUR)).await.unwrap();
    let rolls = &roller.store;
    assert_eq!(rolls.sweep_rolls(Step::Minute, Timestamp(T + HOUR), 50).await.unwrap(), 50);
    assert_eq!(rolls.sweep_rolls(Step::Minute, Timestamp(T + HOUR), 50).await.unwrap(), 10);
    let left = rolls.rolls(key, Step::Minute, Timestamp(T), Timestamp(T + 9 * HOUR)).await.unwrap();
    assert_eq!((left.len(), left[0].at), (60, Timestamp(T + HOUR)));
    assert_eq!(rolls.rolls(key, Step::Hour, Timestamp(T), Timestamp(T + 9 * HOUR)).await.unwrap().len(), 2);
}
