use std::sync::Arc;
use std::time::Duration;

use mutirao_core::envelope::{Beat, Done, ParcelId, Reports};
use mutirao_core::id::JobKey;
use mutirao_core::outcome::{Outcome, Verdict};
use mutirao_core::task::{Needs, Retry};
use mutirao_core::{Mono, SessionId, Timestamp};
use mutirao_queues::QueueSpec;

use super::*;
use crate::desk::ledger::Ledger;

const LEASE: Duration = Duration::from_secs(10);

fn at(s: u64) -> Now {
    Now { wall: Timestamp(1_000_000 + s as i64 * 1_000), mono: Mono(Duration::from_secs(1_000 + s)) }
}

struct Stage {
    desk: Desk,
    said: u64,
}

impl Stage {
    fn new(tasks: u32) -> Self {
        let mut desk = Desk::new(1, LEASE, 1);
        desk.begin(at(0));
        if tasks > 0 {
            let ledger = Ledger::new(QueueName::default(), 1, tasks, Retry::default(), Needs::default());
            desk.admit(JobKey(1), ledger);
        }
        Self { desk, said: 0 }
    }

    fn say(&mut self, worker: &str, now: Now, fill: impl FnOnce(&mut Reports)) {
        self.said += 1;
        let mut reports = Reports::new(SessionId(format!("s-{worker}")), WorkerId(worker.into()));
        fill(&mut reports);
        self.desk.report(reports, now);
        self.desk.written(&SessionId(format!("s-{worker}")));
    }

    fn beat(&mut self, worker: &str, draining: bool, now: Now) {
        self.say(worker, now, |reports| {
            reports.beat = Some(Beat {
                queue: QueueName::default(),
                host: "h".into(),
                pid: 7,
                capacity: Needs::default(),
                draining,
                leaving: false,
                held: Vec::new(),
            });
        });
    }

    fn take(&mut self, worker: &str, parcel: ParcelId, now: Now) {
        self.say(worker, now, |reports| reports.taken.push(parcel));
    }

    fn sight(&self, now: Now) -> QueueSight {
        self.desk.sight(&QueueName::default(), now)
    }

    fn told(&mut self) -> Vec<String> {
        self.desk.effects().rest.into_iter().map(|(_, worker)| worker.0).collect()
    }
}

fn worker(name: &str) -> WorkerId {
    WorkerId(name.into())
}

fn only(name: &str) -> BTreeSet<WorkerId> {
    [worker(name)].into()
}

#[test]
fn nobody_is_called_silent_before_an_owner_has_listened_for_a_lease() {
    let mut stage = Stage::new(0);
    stage.beat("a", false, at(1));
    assert_eq!(stage.sight(at(9)).sessions, None);
    let idle = Activity::Idle { since: at(1).wall };
    assert_eq!(stage.sight(at(10)).sessions, Some([(worker("a"), idle)].into()));
    stage.desk.forgive(Duration::from_secs(5));
    assert_eq!(stage.sight(at(10)).sessions, None, "what could not be heard does not count");
}

#[test]
fn tasks_are_ready_until_a_worker_has_them_and_running_from_then_on() {
    let mut stage = Stage::new(3);
    let waiting = stage.sight(at(10)).tasks;
    assert_eq!((waiting.ready, waiting.running, waiting.unacknowledged), (3, 0, 0));
    assert_eq!(waiting.oldest_wait, Span(Duration::from_secs(10)));
    stage.beat("a", false, at(10));
    let parcels = stage.desk.hand_out(at(10));
    let out: usize = parcels.iter().map(|parcel| parcel.picks.len()).sum();
    let sent = stage.sight(at(10)).tasks;
    assert_eq!((sent.ready, sent.running, sent.unacknowledged), (3, 0, out as u64));
    stage.take("a", parcels[0].id, at(10));
    let taken = stage.sight(at(10));
    let held = parcels[0].picks.len() as u64;
    assert_eq!((taken.tasks.ready, taken.tasks.running), (3 - held, held));
    let since = Some(at(10).wall);
    assert_eq!(taken.sessions.unwrap()[&worker("a")], Activity::Busy { tasks: held as u32, since });
    assert_eq!(stage.sight(at(70)).sessions.unwrap()[&worker("a")], Activity::Busy { tasks: held as u32, since });
}

#[test]
fn what_ended_at_a_worker_is_counted_however_it_ended() {
    assert_eq!(Stage::new(0).sight(at(1)).tasks.ended, Some(0));
    let mut stage = Stage::new(3);
    stage.beat("a", false, at(1));
    let parcel = stage.desk.hand_out(at(1)).remove(0);
    stage.take("a", parcel.id, at(1));
    for (pick, verdict) in parcel.picks.iter().zip([Verdict::Ok, Verdict::Failed, Verdict::Unfit]) {
        let (task, attempt, outcome) = (pick.task, pick.attempt, Outcome::new(verdict, at(1).wall));
        stage.say("a", at(2), |reports| reports.done.push(Done { task, attempt, trace: String::new(), outcome }));
    }
    let ended = parcel.picks.len().min(2) as u64;
    assert_eq!(stage.sight(at(2)).tasks.ended, Some(ended), "one that was turned down did not run");
}

#[test]
fn no_more_are_ready_than_may_run_beside_those_that_do() {
    let mut stage = Stage::new(9);
    let mut spec = QueueSpec::new(QueueName::default());
    spec.limits.running = Some(4);
    stage.desk.define(&Arc::new(spec.clone()), 1, at(0));
    assert_eq!(stage.sight(at(10)).tasks.ready, 4, "workers for nine would stand idle");
    stage.beat("a", false, at(10));
    let parcels = stage.desk.hand_out(at(10));
    stage.take("a", parcels[0].id, at(10));
    let tasks = stage.sight(at(10)).tasks;
    assert!(tasks.running > 0);
    assert_eq!(tasks.ready + tasks.running, 4);
    spec.paused = true;
    stage.desk.define(&Arc::new(spec), 2, at(11));
    assert_eq!(stage.sight(at(11)).tasks.ready, 0);
}

#[test]
fn what_a_worker_finishes_that_takes_nothing_more_fills_nobodys_place() {
    let mut stage = Stage::new(3);
    stage.beat("a", false, at(1));
    let parcels = stage.desk.hand_out(at(1));
    stage.take("a", parcels[0].id, at(1));
    stage.beat("a", true, at(2));
    stage.beat("b", false, at(2));
    assert!(!stage.desk.hand_out(at(2)).is_empty(), "b is idle while a still works");
}

#[test]
fn whoever_has_missed_two_beats_is_called_silent_until_it_is_given_up() {
    let mut stage = Stage::new(3);
    stage.beat("a", false, at(1));
    let parcels = stage.desk.hand_out(at(1));
    stage.take("a", parcels[0].id, at(1));
    stage.beat("b", false, at(4));
    let facts = |stage: &Stage, now| stage.desk.facts(&QueueName::default(), now);
    assert_eq!(facts(&stage, at(5)).silent, 0);
    let late = facts(&stage, at(8));
    assert_eq!((late.silent, late.silent_held, late.given_up_ms), (1, 1, Some(3_000)));
}

#[test]
fn a_worker_that_was_busy_between_two_beats_has_not_been_idle_since_before() {
    let mut stage = Stage::new(1);
    stage.beat("a", false, at(1));
    let parcel = stage.desk.hand_out(at(2)).remove(0);
    stage.take("a", parcel.id, at(2));
    // The beat lists nothing: what it was given went back.
    stage.beat("a", false, at(3));
    stage.desk.effects();
    stage.beat("a", false, at(5));
    let sessions = stage.sight(at(20)).sessions.unwrap();
    let Activity::Idle { since } = sessions[&worker("a")] else { panic!("{sessions:?}") };
    assert!(since >= at(3).wall, "{since:?}");
}

#[test]
fn a_wall_that_is_stepped_makes_nobody_idle_for_longer_or_for_less() {
    let mut stage = Stage::new(0);
    stage.beat("a", false, at(1));
    for by_ms in [-3_600_000, 3_600_000] {
        let stepped = Now { wall: Timestamp(at(11).wall.0 + by_ms), ..at(11) };
        let idle = Activity::Idle { since: Timestamp(stepped.wall.0 - 10_000) };
        assert_eq!(stage.sight(stepped).sessions, Some([(worker("a"), idle)].into()));
    }
}

#[test]
fn a_resting_worker_is_told_until_it_says_so_and_is_counted_on_for_nothing() {
    let mut stage = Stage::new(5);
    stage.beat("a", false, at(1));
    stage.desk.effects();
    stage.desk.rest(only("a"));
    assert_eq!(stage.told(), ["a"]);
    assert!(stage.desk.hand_out(at(1)).is_empty(), "the only worker rests");
    stage.beat("a", false, at(3));
    assert_eq!(stage.told(), ["a"], "it has not heard, so it is told again");
    stage.beat("a", true, at(5));
    assert_eq!(stage.told(), [""; 0]);
    assert_eq!(stage.sight(at(20)).sessions.unwrap()[&worker("a")], Activity::Drained);
    stage.beat("b", false, at(6));
    assert!(!stage.desk.hand_out(at(6)).is_empty(), "another worker takes them");
}

#[test]
fn a_worker_that_comes_back_is_told_again_and_one_that_may_work_again_is_counted_on() {
    let mut stage = Stage::new(5);
    stage.desk.rest(only("a"));
    assert_eq!(stage.told(), [""; 0], "nobody is there");
    stage.beat("a", false, at(1));
    assert_eq!(stage.told(), ["a"]);
    assert!(stage.desk.hand_out(at(1)).is_empty());
    stage.desk.rest(BTreeSet::new());
    stage.beat("a", false, at(3));
    assert_eq!(stage.told(), [""; 0]);
    assert!(!stage.desk.hand_out(at(3)).is_empty());
}
