use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn grid(n: u64, every_s: u64) -> Grid {
    Grid::new(&format!("monitor-{n}"), Duration::from_secs(every_s))
}

/// Every instant of every monitor, looked at one by one.
fn by_hand(all: &[(u64, u64, Missed, i64)], done: i64, now: i64) -> BTreeSet<Firing> {
    let mut firings = BTreeSet::new();
    for (n, every_s, missed, since) in all {
        // Late is what is past its next instant, and past five seconds, and in any case past half a minute.
        let late_from = done.max(now - 1_000 * (*every_s).clamp(5, 30) as i64);
        let grid = grid(*n, *every_s);
        let instants: Vec<i64> = (done.max(*since) + 1..=now)
            .filter(|at| at.rem_euclid(grid.every_ms() as i64) == grid.phase_ms() as i64)
            .collect();
        let on_time = instants.iter().filter(|at| **at > late_from);
        firings.extend(on_time.map(|at| Firing { at: Timestamp(*at), monitor: MonitorKey(*n) }));
        let last = instants.last().filter(|at| **at <= late_from && *missed == Missed::Once);
        firings.extend(last.map(|at| Firing { at: Timestamp(*at), monitor: MonitorKey(*n) }));
    }
    firings
}

fn missed() -> impl Strategy<Value = Missed> {
    prop_oneof![Just(Missed::Skip), Just(Missed::Once)]
}

proptest! {
    #[test]
    fn what_is_due_is_what_looking_at_every_instant_finds(
        all in prop::collection::vec((0..40u64, 1..60u64, missed(), -9_000..9_000i64), 0..30),
        done in -10_000..10_000i64,
        ahead in 0..80_000i64,
    ) {
        let mut agenda = Agenda::default();
        let mut last = BTreeMap::new();
        for one in all {
            // The last definition of a monitor counts, and nothing is left of those before.
            agenda.put(MonitorKey(one.0), grid(one.0, one.1), one.2, Timestamp(one.3));
            last.insert(one.0, one);
        }
        let all: Vec<_> = last.into_values().collect();
        let due = agenda.due(Timestamp(done), Timestamp(done + ahead));
        prop_assert!(due.is_sorted());
        let found: BTreeSet<Firing> = due.iter().copied().collect();
        prop_assert_eq!(found.len(), due.len(), "a firing came twice");
        prop_assert_eq!(found, by_hand(&all, done, done + ahead));
    }

    #[test]
    fn however_time_is_cut_every_instant_fires_once(
        monitors in prop::collection::btree_map(0..40u64, 1..7u64, 1..20),
        cuts in prop::collection::vec(1..4_000i64, 1..12),
    ) {
        let mut agenda = Agenda::default();
        for (n, every_s) in &monitors {
            agenda.put(MonitorKey(*n), grid(*n, *every_s), Missed::Skip, Timestamp(0));
        }
        let (mut done, mut fired) = (0, Vec::new());
        for cut in cuts {
            fired.extend(agenda.due(Timestamp(done), Timestamp(done + cut)));
            done += cut;
        }
        let all: Vec<_> = monitors.into_iter().map(|(n, every)| (n, every, Missed::Skip, 0)).collect();
        let mut whole = BTreeSet::new();
        for from in (0..done).step_by(1_000) {
            whole.extend(by_hand(&all, from, (from + 1_000).min(done)));
        }
        prop_assert_eq!(fired.len(), whole.len());
        prop_assert_eq!(fired.into_iter().collect::<BTreeSet<_>>(), whole);
    }

    #[test]
    fn nothing_fires_before_the_next(
        monitors in prop::collection::btree_map(0..40u64, 1..100u64, 1..20),
        done in -100_000..100_000i64,
    ) {
        let mut agenda = Agenda::default();
        for (n, every_s) in monitors {
            agenda.put(MonitorKey(n), grid(n, every_s), Missed::Skip, Timestamp(i64::MIN));
        }
        let next = agenda.next(Timestamp(done)).unwrap();
        let firsts = agenda.entries.values().map(|entry| entry.grid.after(Timestamp(done)));
        prop_assert_eq!(Some(next), firsts.min());
    }
}

#[test]
fn a_changed_interval_leaves_nothing_of_the_old_one() {
    let mut agenda = Agenda::default();
    agenda.put(MonitorKey(1), grid(1, 1), Missed::Skip, Timestamp(0));
    agenda.put(MonitorKey(1), grid(1, 3), Missed::Skip, Timestamp(0));
    assert_eq!(agenda.due(Timestamp(0), Timestamp(3_000)).len(), 1);
    assert!(agenda.remove(MonitorKey(1)) && !agenda.remove(MonitorKey(1)));
    assert!(agenda.is_empty() && agenda.rings.is_empty() && agenda.next(Timestamp(0)).is_none());
}
