//! The foreman's order, one rule at a time. That the rules together lose nothing is the simulation's to show.

mod bounds;

use std::time::Duration;

use mutirao_core::envelope::{Beat, Done, Held, Reports};
use mutirao_core::id::{Attempt, QueueName, TaskKey};
use mutirao_core::outcome::{Outcome, Verdict};
use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_core::task::{Needs, Retry};
use mutirao_core::{JobKey, Mono, SessionId, Timestamp, WorkerId};

use super::*;
use crate::desk::ledger::Ledger;
use crate::desk::order::Rank;
use crate::desk::{Handed, Pick};

const LEASE: Duration = Duration::from_secs(10);
const JOB: JobKey = JobKey(1);

/// A foreman and its moment. Askers are numbers.
struct Scene {
    foreman: Foreman<u32>,
    now: Now,
    tag: u64,
}

impl Scene {
    /// With a job of two tasks and nobody to run them.
    fn new() -> Self {
        let now = Now { wall: Timestamp(1_000_000), mono: Mono(Duration::from_secs(1_000)) };
        let queues = vec![defined(&QueueName::default())];
        let recalled = Recalled { generation: 1, jobs: Vec::new(), sessions: Vec::new(), queues };
        let mut scene = Self { foreman: Foreman::new(recalled, LEASE, LEASE, 1, now), now, tag: 0 };
        let ledger = Ledger::new(QueueName::default(), 1, 2, Retry::default(), Needs::default());
        scene.tell(Input::Asked(Ask::Admit(JOB, Box::new(ledger))));
        scene
    }

    /// The same, with a worker that took both tasks.
    fn at_work() -> (Self, Vec<Pick>) {
        let mut scene = Self::new();
        scene.beat(&[]);
        scene.write();
        let handed = scene.turn().into_iter().find_map(parcels).expect("somebody is there, so something goes out");
        let mut reports = reports();
        reports.taken = handed.iter().map(|parcel| parcel.id).collect();
        scene.hear(reports);
        scene.turn();
        (scene, handed.into_iter().flat_map(|parcel| parcel.picks).collect())
    }

    fn tell(&mut self, input: Input<u32>) {
        self.foreman.handle(input, self.now);
    }

    fn hear(&mut self, reports: Reports) {
        self.tag += 1;
        self.tell(Input::Heard(Incoming { reports, mark: Mark { consumer: 1, tag: self.tag } }));
    }

    fn beat(&mut self, held: &[Pick]) {
        let mut reports = reports();
        let held = held.iter().map(|pick| Held { task: pick.task, attempt: pick.attempt, running: true });
        reports.beat = Some(Beat {
            queue: QueueName::default(),
            host: "h".into(),
            pid: 7,
            capacity: Needs { cpus: Cpus { milli: 3_000 }, memory: Bytes(0) },
            draining: false,
            leaving: false,
            held: held.collect(),
        });
        self.hear(reports);
    }

    fn turn(&mut self) -> Vec<Effect<u32>> {
        self.turn_with(Tenure::Holds, Inbox::Empty)
    }

    fn turn_with(&mut self, tenure: Tenure, inbox: Inbox) -> Vec<Effect<u32>> {
        let outside = Outside { now: self.now, tenure, way: Way::Free, inbox };
        let mut effects = Vec::new();
        while let Some(effect) = self.foreman.poll(outside) {
            let over = matches!(effect, Effect::End(_));
            effects.push(effect);
            if over {
                break;
            }
        }
        effects
    }

    /// What is decided gets written.
    fn write(&mut self) {
        assert!(self.turn().iter().any(settles));
        self.tell(Input::Settled(Settling::Written));
    }

    fn pass(&mut self, time: Duration) {
        self.now.mono = self.now.mono.plus(time);
        self.now.wall = self.now.wall.plus(time);
    }
}

fn defined(queue: &QueueName) -> QueueRow {
    let at = Timestamp(1);
    let spec = mutirao_queues::QueueSpec::new(queue.clone());
    QueueRow { spec, revision: 1, created_at: at, changed_at: at, changed_by: String::new(), unreadable: None }
}

fn reports() -> Reports {
    Reports::new(SessionId("s".into()), WorkerId("w".into()))
}

fn done(pick: &Pick) -> Reports {
    let outcome = Outcome::new(Verdict::Ok, Timestamp(1));
    let mut reports = reports();
    reports.done = vec![Done { task: pick.task, attempt: pick.attempt, trace: String::new(), outcome }];
    reports
}

fn parcels(effect: Effect<u32>) -> Option<Vec<Handed>> {
    match effect {
        Effect::Send(Outgoing::Parcels(parcels)) => Some(parcels),
        _ => None,
    }
}

fn settles(effect: &Effect<u32>) -> bool {
    matches!(effect, Effect::Settle(_))
}

fn acknowledges(effect: &Effect<u32>) -> Option<u64> {
    match effect {
        Effect::Acknowledge(mark) => Some(mark.tag),
        _ => None,
    }
}

#[test]
fn a_report_is_acknowledged_when_what_came_of_it_is_written_and_not_before() {
    let (mut scene, picks) = Scene::at_work();
    scene.hear(done(&picks[0]));
    let heard = scene.tag;
    let effects = scene.turn();
    assert!(effects.iter().any(settles) && effects.iter().all(|effect| acknowledges(effect).is_none()));
    // What comes while it is written belongs to the next settlement.
    scene.hear(done(&picks[1]));
    assert!(scene.turn().is_empty());
    scene.tell(Input::Settled(Settling::Written));
    let effects = scene.turn();
    assert!(effects.iter().any(settles));
    assert_eq!(effects.iter().filter_map(acknowledges).collect::<Vec<_>>(), [heard]);
}

#[test]
fn what_could_not_be_written_is_tried_until_it_is_and_meanwhile_nothing_goes_out_and_nobody_is_given_up() {
    let (mut scene, picks) = Scene::at_work();
    let ledger = Ledger::new(QueueName::default(), 1, 9, Retry::default(), Needs::default());
    scene.hear(done(&picks[0]));
    assert!(scene.turn().iter().any(settles));
    scene.tell(Input::Unsettled);
    scene.tell(Input::Asked(Ask::Admit(JobKey(2), Box::new(ledger))));
    let mut tries = 0;
    for _ in 0..10 * LEASE.as_secs() {
        scene.pass(Duration::from_secs(1));
        scene.tell(Input::Tick(Reach::Near));
        for effect in scene.turn() {
            if settles(&effect) {
                tries += 1;
                scene.tell(Input::Unsettled);
            }
            assert!(parcels(effect).is_none(), "nothing goes out");
        }
    }
    assert!(tries > 50, "{tries}");
    assert_eq!(scene.foreman.desk().sessions().count(), 1, "its worker could not be heard");
    scene.pass(Duration::from_secs(1));
    scene.write();
    assert!(scene.turn().into_iter().find_map(parcels).is_some());
}

#[test]
fn a_broker_that_was_away_costs_nobody_its_lease_but_silence_does() {
    let (mut scene, _) = Scene::at_work();
    let silence = |scene: &mut Scene, for_: Duration, broker: Reach| {
        let until = scene.now.mono.plus(for_);
        while scene.now.mono < until {
            scene.pass(Duration::from_millis(200));
            scene.tell(Input::Tick(broker));
        }
        scene.foreman.desk().sessions().count()
    };
    assert_eq!(silence(&mut scene, 3 * LEASE, Reach::Away), 1);
    assert_eq!(silence(&mut scene, 3 * LEASE, Reach::Near), 0);
}

#[test]
fn whoever_has_lost_its_shard_leaves_reports_to_its_successor() {
    let (mut scene, picks) = Scene::at_work();
    scene.turn();
    // Of a later owner's attempt: nothing to write here, and nothing to acknowledge either.
    let mut of_successor = done(&picks[0]);
    of_successor.done[0].attempt.generation += 1;
    scene.hear(of_successor);
    assert!(scene.turn_with(Tenure::Lapsed, Inbox::Empty).iter().all(|effect| acknowledges(effect).is_none()));
    assert!(scene.turn().iter().any(|effect| acknowledges(effect).is_some()), "the owner has heard it");
}

#[test]
fn whoever_does_not_hold_its_tenure_neither_writes_nor_hands_out() {
    let mut scene = Scene::new();
    scene.beat(&[]);
    assert!(scene.turn_with(Tenure::Lapsed, Inbox::Empty).is_empty());
    scene.write();
    let effects = scene.turn_with(Tenure::Lapsed, Inbox::Empty);
    assert!(effects.into_iter().find_map(parcels).is_none());
    assert!(scene.turn().into_iter().find_map(parcels).is_some());
}

#[test]
fn whoever_leaves_hears_what_has_come_writes_it_and_goes() {
    let (mut scene, picks) = Scene::at_work();
    scene.tell(Input::Leave);
    assert!(scene.turn_with(Tenure::Holds, Inbox::Waiting).is_empty());
    scene.hear(done(&picks[0]));
    assert!(scene.turn().iter().all(settles));
    scene.tell(Input::Settled(Settling::Written));
    let effects = scene.turn();
    assert!(matches!(effects[..], [Effect::Acknowledge(_), Effect::End(Ending::Settled)]), "{effects:?}");
}

#[test]
fn workers_that_never_fall_silent_do_not_keep_whoever_leaves() {
    let (mut scene, picks) = Scene::at_work();
    scene.tell(Input::Leave);
    for _ in 0..20 {
        scene.pass(Duration::from_millis(200));
        if scene.foreman.hears() {
            scene.beat(&picks);
        }
        scene.tell(Input::Tick(Reach::Near));
    }
    let effects = scene.turn_with(Tenure::Holds, Inbox::Waiting);
    assert!(matches!(effects.last(), Some(Effect::End(Ending::Settled))), "{effects:?}");
}

#[test]
fn whoever_was_fenced_off_does_nothing_more() {
    let (mut scene, picks) = Scene::at_work();
    scene.hear(done(&picks[0]));
    scene.turn();
    scene.tell(Input::Settled(Settling::Fenced));
    scene.hear(done(&picks[1]));
    assert!(matches!(scene.turn()[..], [Effect::End(Ending::Fenced)]));
}

#[test]
fn whoever_cancels_a_task_hears_yes_when_it_is_written() {
    let mut scene = Scene::new();
    let task = TaskKey { job: JOB, index: 1 };
    scene.tell(Input::Asked(Ask::Question(Question::CancelTask { task }, 5)));
    assert!(scene.turn().iter().all(settles));
    scene.tell(Input::Settled(Settling::Written));
    let effects = scene.turn();
    assert!(matches!(effects[..], [Effect::Answer(5, Answer::CancelTask(true))]), "{effects:?}");
    scene.tell(Input::Asked(Ask::Question(Question::CancelTask { task }, 6)));
    assert!(matches!(scene.turn()[..], [Effect::Answer(6, Answer::CancelTask(false))]));
}

#[test]
fn a_job_that_somebody_speaks_of_is_read_alone_and_one_that_is_over_is_not() {
    let (mut scene, picks) = Scene::at_work();
    picks.iter().for_each(|pick| scene.hear(done(pick)));
    scene.write();
    scene.turn();
    for job in [JOB, JobKey(9)] {
        scene.tell(Input::Asked(Ask::Question(Question::Admit { job }, 1)));
    }
    let read = scene.turn().into_iter().find_map(|effect| match effect {
        Effect::Read(errand) => Some(errand),
        _ => None,
    });
    assert_eq!(read, Some(Errand::Jobs(vec![JobKey(9)])));
}

#[test]
fn an_attempt_that_was_never_handed_out_changes_nothing() {
    let (mut scene, picks) = Scene::at_work();
    let stray = Pick { attempt: Attempt { generation: 1, n: 77 }, ..picks[0] };
    scene.hear(done(&stray));
    let effects = scene.turn();
    assert!(matches!(effects[..], [Effect::Acknowledge(_)]), "{effects:?}");
}

#[test]
fn of_former_attempts_only_sessions_of_the_queue_that_were_alive_then_are_believed() {
    let other: QueueName = "other".parse().unwrap();
    let job = |key: u64, queue: &QueueName| OpenJob {
        key: JobKey(key),
        queue: queue.clone(),
        first: 1,
        total: 9,
        retry: Retry::default(),
        needs: Needs::default(),
        varied: false,
        rank: Rank::default(),
        traces: Vec::new(),
        revived: 0,
    };
    let session = |name: &str| (SessionId(name.into()), WorkerId(name.into()), QueueName::default());
    let said_by = |who: &str, job_of: u64, generation: u64| {
        let now = Now { wall: Timestamp(1_000_000), mono: Mono(Duration::from_secs(1_000)) };
        let jobs = vec![job(1, &QueueName::default()), job(2, &other)];
        let recalled =
            Recalled { generation: 3, jobs, sessions: vec![session("alive"), session("idle")], queues: Vec::new() };
        let mut foreman: Foreman<u32> = Foreman::new(recalled, LEASE, LEASE, 1, now);
        let task = TaskKey { job: JobKey(job_of), index: 4 };
        let mut reports = done(&Pick { task, attempt: Attempt { generation, n: 1 } });
        (reports.session, reports.worker) = (SessionId(who.into()), WorkerId(who.into()));
        foreman.handle(Input::Heard(Incoming { reports, mark: Mark { consumer: 1, tag: 1 } }), now);
        foreman.decided().ended.len()
    };
    assert_eq!(said_by("alive", 1, 2), 1);
    assert_eq!(said_by("idle", 1, 1), 1, "it may have been handed it");
    assert_eq!(said_by("new", 1, 2), 0, "it was not there");
    assert_eq!(said_by("alive", 2, 2), 0, "that is not its queue");
    assert_eq!(said_by("alive", 1, 3), 0, "this owner handed it to nobody");
}

#[test]
fn however_many_jobs_are_cancelled_at_once_workers_hear_one_word_of_those_they_have() {
    let (mut scene, picks) = Scene::at_work();
    for job in 2..5_000 {
        let ledger = Ledger::new(QueueName::default(), 1, 3, Retry::default(), Needs::default());
        scene.tell(Input::Asked(Ask::Admit(JobKey(job), Box::new(ledger))));
    }
    scene.turn();
    scene.pass(Duration::from_secs(6));
    scene.tell(Input::Tick(Reach::Near));
    assert!(scene.turn().iter().any(|effect| matches!(effect, Effect::Read(Errand::Keys))));
    scene.tell(Input::Found(Found::Keys { open: Vec::new(), revived: Vec::new() }));
    let told: Vec<Vec<JobKey>> = scene.turn().into_iter().filter_map(stops).collect();
    assert_eq!(told, [[picks[0].task.job, JobKey(2)]], "of the thousands only two have tasks out");
    assert_eq!(scene.foreman.desk().open_tasks(), 0);
}

fn stops(effect: Effect<u32>) -> Option<Vec<JobKey>> {
    match effect {
        Effect::Send(Outgoing::Control(_, control)) => Some(control.cancel_jobs),
        _ => None,
    }
}

#[test]
fn while_the_store_refuses_what_is_due_does_not_keep_anybody_awake() {
    let mut scene = Scene::new();
    let retry = Retry { retries: 3, ..Retry::default() };
    let ledger = Ledger::new(QueueName::default(), 1, 1, retry, Needs::default());
    scene.tell(Input::Asked(Ask::Admit(JobKey(2), Box::new(ledger))));
    scene.beat(&[]);
    scene.write();
    let handed: Vec<Handed> = scene.turn().into_iter().find_map(parcels).unwrap();
    let pick = handed.iter().flat_map(|parcel| &parcel.picks).find(|pick| pick.task.job == JobKey(2)).unwrap();
    let mut failed = done(pick);
    failed.taken = handed.iter().map(|parcel| parcel.id).collect();
    failed.done[0].outcome.verdict = Verdict::Failed;
    scene.hear(failed);
    assert!(scene.turn().iter().any(settles));
    scene.tell(Input::Unsettled);
    let (until, mut wakes) = (scene.now.mono.plus(Duration::from_secs(60)), 0);
    while scene.now.mono < until {
        let wait = scene.foreman.wake_at().since(scene.now.mono);
        scene.pass(wait);
        wakes += 1;
        scene.tell(Input::Tick(Reach::Near));
        if scene.turn().iter().any(settles) {
            scene.tell(Input::Unsettled);
        }
    }
    assert!(wakes < 600, "{wakes} times in a minute");
}

#[test]
fn while_a_write_takes_long_no_more_output_gathers_than_a_bound_and_nothing_goes_out() {
    let (mut scene, picks) = Scene::at_work();
    scene.hear(done(&picks[0]));
    assert!(scene.turn().iter().any(settles));
    let ledger = Ledger::new(QueueName::default(), 1, 9, Retry::default(), Needs::default());
    scene.tell(Input::Asked(Ask::Admit(JobKey(2), Box::new(ledger))));
    assert!(scene.foreman.hears());
    let mut loud = done(&picks[1]);
    loud.done[0].outcome.stdout.tail = vec![b'x'; Budget::default().output_bytes_max];
    scene.hear(loud);
    let heard = scene.tag;
    assert!(!scene.foreman.hears(), "the next report is left lying");
    for _ in 0..10 * LEASE.as_secs() {
        scene.pass(Duration::from_secs(1));
        scene.tell(Input::Tick(Reach::Near));
        assert!(scene.turn().iter().all(|effect| matches!(effect, Effect::Read(_))), "nothing goes out");
    }
    assert_eq!(scene.foreman.desk().sessions().count(), 1, "nobody is given up");
    scene.tell(Input::Settled(Settling::Written));
    let effects = scene.turn();
    assert!(effects.iter().any(settles) && scene.foreman.hears());
    assert!(effects.into_iter().any(|effect| parcels(effect).is_some()), "and work goes on");
    scene.tell(Input::Settled(Settling::Written));
    assert_eq!(scene.turn().iter().filter_map(acknowledges).collect::<Vec<_>>(), [heard]);
}

#[test]
fn whoever_has_lost_its_shard_removes_no_queue() {
    let (mut scene, gone) = (Scene::new(), "gone".parse::<QueueName>().unwrap());
    scene.tell(Input::Asked(Ask::Queues { defined: vec![defined(&gone)], removed: Vec::new() }));
    let removed = vec![Removed { queue: gone.clone(), revision: 2 }];
    scene.tell(Input::Asked(Ask::Queues { defined: Vec::new(), removed }));
    scene.pass(Duration::from_secs(10));
    scene.tell(Input::Tick(Reach::Near));
    let removes = |effect: &Effect<u32>| matches!(effect, Effect::Send(Outgoing::Remove(queue)) if *queue == gone);
    assert!(!scene.turn_with(Tenure::Lapsed, Inbox::Empty).iter().any(removes));
    assert!(scene.turn().iter().any(removes), "its owner does");
}
