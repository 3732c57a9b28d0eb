//! The desk under any order of events: what goes in comes out once, and nothing is forgotten in between.

use std::collections::HashMap;
use std::time::Duration;

use mutirao_core::envelope::{Handout, Parcel, Template, Version};
use mutirao_core::exec::Exec;
use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_core::task::{Action, TaskSpec};
use mutirao_core::{Attempt, JobKey, TaskKey};
use proptest::prelude::*;

use super::*;

fn desk() -> Desk {
    let capacity = Needs { cpus: Cpus { milli: 2000 }, memory: Bytes(1 << 30) };
    Desk::new(capacity, Limits::default(), SessionId("s".into()), WorkerId("w".into()))
}

pub(super) fn parcel(n: u64, job: u64, action: Action, tasks: u32) -> Unpacked {
    parcel_of(n, job, TaskSpec::new(action), tasks)
}

pub(super) fn parcel_of(n: u64, job: u64, spec: TaskSpec, tasks: u32) -> Unpacked {
    let template = Template { job: JobKey(job), trace: String::new(), spec: Arc::new(spec) };
    let handout = |index| Handout { t: 0, index, n: 1, entry: None, command: None, ..Handout::default() };
    unpack(Parcel {
        v: Version::default(),
        id: ParcelId { generation: 1, n },
        reply_to: "results".into(),
        templates: vec![template],
        tasks: (0..tasks).map(handout).collect(),
    })
    .unwrap()
}

pub(super) fn exec() -> Action {
    Action::Exec(Exec { command: vec!["true".into()], ..Exec::default() })
}

fn next(desk: &mut Desk) -> Option<Run> {
    desk.next(Timestamp(0), Mono::default())
}

fn finish(desk: &mut Desk, run: &Run, verdict: Verdict) {
    desk.finish(run.task.id(), Outcome::new(verdict, Timestamp(0)), Mono::default());
}

pub(super) fn verdicts(desk: &mut Desk) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    while let Some((_, reports)) = desk.take_reports() {
        verdicts.extend(reports.done.iter().map(|done| done.outcome.verdict));
        desk.confirm_reports();
    }
    verdicts
}

#[test]
fn a_parcel_that_names_a_template_it_lacks_is_refused_whole() {
    let bad = Parcel {
        v: Version::default(),
        id: ParcelId { generation: 1, n: 1 },
        reply_to: "results".into(),
        templates: Vec::new(),
        tasks: vec![Handout { t: 3, index: 7, n: 1, entry: None, command: None, ..Handout::default() }],
    };
    assert_eq!(unpack(bad).unwrap_err().to_string(), "task 7 names template 3, and the parcel has 0");
}

#[test]
fn noops_are_over_at_once() {
    let mut desk = desk();
    desk.accept(parcel(1, 1, Action::Noop {}, 500), Timestamp(0));
    assert!(next(&mut desk).is_none());
    assert!(desk.is_idle());
    assert_eq!(verdicts(&mut desk), vec![Verdict::Ok; 500]);
}

#[test]
fn a_parcel_delivered_twice_runs_once() {
    let mut desk = desk();
    for _ in 0..2 {
        desk.accept(parcel(1, 1, Action::Noop {}, 3), Timestamp(0));
        next(&mut desk);
    }
    assert_eq!(verdicts(&mut desk).len(), 3);
}

#[test]
fn every_message_says_again_which_parcels_what_it_speaks_of_came_in() {
    let mut desk = desk();
    desk.accept(parcel(1, 1, exec(), 1), Timestamp(0));
    desk.accept(parcel(2, 2, exec(), 2), Timestamp(0));
    let parcels = |reports: Reports| reports.taken.into_iter().map(|parcel| parcel.n).collect::<Vec<_>>();
    assert_eq!(parcels(desk.take_reports().unwrap().1), [1, 2]);
    desk.confirm_reports();
    let first = next(&mut desk).unwrap();
    assert_eq!(parcels(desk.message()), [1, 2], "one runs, the others wait");
    finish(&mut desk, &first, Verdict::Ok);
    assert_eq!(parcels(desk.message()), [1, 2], "its outcome waits");
    assert_eq!(parcels(desk.take_reports().unwrap().1), [1]);
    desk.confirm_reports();
    assert_eq!(parcels(desk.message()), [2]);
}

#[test]
fn a_task_that_can_never_fit_is_refused_with_the_reason() {
    let mut desk = desk();
    let mut spec = TaskSpec::new(exec());
    spec.needs.memory = Bytes(2 << 30);
    desk.accept(parcel_of(1, 1, spec, 1), Timestamp(0));
    let (_, reports) = desk.take_reports().unwrap();
    assert_eq!(reports.done[0].outcome.verdict, Verdict::Unfit);
    let reason = reports.done[0].outcome.reason.as_deref();
    assert_eq!(reason, Some("it needs 2GiB of memory, and its worker has 1GiB"));
}

#[test]
fn a_cancel_that_overtakes_its_parcel_still_counts() {
    let mut desk = desk();
    let control = Control { cancel_tasks: vec![TaskKey { job: JobKey(1), index: 1 }], ..Control::default() };
    desk.cancel(&control, Timestamp(0), Mono::default());
    desk.accept(parcel(1, 1, Action::Noop {}, 3), Timestamp(0));
    next(&mut desk);
    assert_eq!(verdicts(&mut desk), [Verdict::Cancelled, Verdict::Ok, Verdict::Ok]);
}

#[test]
fn a_stop_word_for_a_former_attempt_does_not_touch_a_later_one() {
    let mut desk = desk();
    let (task, former) = (TaskKey { job: JobKey(1), index: 0 }, Attempt { generation: 1, n: 1 });
    desk.accept(parcel(1, 1, exec(), 1), Timestamp(0));
    let first = next(&mut desk).unwrap();
    let mut anew = parcel(2, 1, exec(), 1);
    anew.tasks[0].attempt.n = 2;
    desk.accept(anew, Timestamp(0));
    let second = next(&mut desk).unwrap();
    let mut control = Control::default();
    control.cancel(task, former);
    desk.cancel(&control, Timestamp(0), Mono::default());
    assert!(first.halt.reason().is_some() && second.halt.reason().is_none());
    // It is remembered as it was meant.
    let [mut third, former] = [3, 4].map(|n| parcel(n, 1, Action::Noop {}, 1));
    third.tasks[0].attempt.n = 3;
    desk.accept(third, Timestamp(0));
    desk.accept(former, Timestamp(0));
    assert!(next(&mut desk).is_none());
    assert_eq!(verdicts(&mut desk), [Verdict::Cancelled, Verdict::Ok], "the former comes too late, the third runs");
}

#[test]
fn a_drain_gives_back_what_waits_and_leaves_what_runs() {
    let mut desk = desk();
    desk.accept(parcel(1, 1, exec(), 5), Timestamp(0));
    let running = [next(&mut desk).unwrap(), next(&mut desk).unwrap()];
    assert!(next(&mut desk).is_none());
    desk.drain(Timestamp(0));
    assert_eq!(verdicts(&mut desk), [Verdict::Returned; 3]);
    assert!(running.iter().all(|run| run.halt.reason().is_none()));
    assert!(!desk.has_room(Mono::default()) && !desk.is_idle());
    desk.accept(parcel(2, 1, exec(), 1), Timestamp(0));
    assert_eq!(verdicts(&mut desk), [Verdict::Returned]);
}

#[test]
fn when_reports_cannot_leave_nothing_is_started() {
    let mut desk = desk();
    desk.limits.outbox_reports_max = 10;
    desk.accept(parcel(1, 1, Action::Noop {}, 50), Timestamp(0));
    assert!(next(&mut desk).is_none());
    assert_eq!(desk.unreported(), 10);
    assert!(!desk.has_room(Mono::default()));
    assert_eq!(desk.held().len(), 50);
    assert_eq!(verdicts(&mut desk).len(), 9);
    next(&mut desk);
    assert_eq!(verdicts(&mut desk).len(), 10);
}

#[derive(Clone, Debug)]
enum Step {
    Parcel { noop: bool, tasks: u32 },
    Start,
    Finish(prop::sample::Index),
    Close(prop::sample::Index),
    CancelJob(u64),
    Report,
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<bool>(), 0u32..6).prop_map(|(noop, tasks)| Step::Parcel { noop, tasks }),
        4 => Just(Step::Start),
        4 => any::<prop::sample::Index>().prop_map(Step::Finish),
        2 => any::<prop::sample::Index>().prop_map(Step::Close),
        1 => (1u64..20).prop_map(Step::CancelJob),
        3 => Just(Step::Report),
        1 => Just(Step::Drain),
    ]
}

proptest! {
    /// Whatever happens, every task accepted has exactly one outcome in the end, is held until that is confirmed, and
    /// the capacity is whole again.
    #[test]
    fn every_task_ends_once_and_is_held_until_then(steps in prop::collection::vec(step(), 0..120)) {
        let mut desk = desk();
        let (mut running, mut outcomes, mut accepted) = (Vec::new(), HashMap::<Try, u32>::new(), 0);
        let mut now = Mono::default();
        for (n, step) in steps.iter().enumerate() {
            now = now.plus(Duration::from_millis(7));
            match step {
                Step::Parcel { noop, tasks } => {
                    let action = if *noop { Action::Noop {} } else { exec() };
                    desk.accept(parcel(n as u64, n as u64 + 1, action, *tasks), Timestamp(0));
                    accepted += *tasks as usize;
                }
                Step::Start => running.extend(desk.next(Timestamp(0), now)),
                Step::Finish(at) if !running.is_empty() => {
                    let run = running.swap_remove(at.index(running.len()));
                    finish(&mut desk, &run, Verdict::Failed);
                }
                Step::Close(at) if !running.is_empty() => desk.closing(running[at.index(running.len())].task.id()),
                Step::CancelJob(job) => {
                    let control = Control { cancel_jobs: vec![JobKey(*job)], ..Control::default() };
                    desk.cancel(&control, Timestamp(0), now);
                }
                Step::Report => report(&mut desk, &mut outcomes),
                Step::Drain => desk.drain(Timestamp(0)),
                Step::Finish(_) | Step::Close(_) => {}
            }
            prop_assert_eq!(desk.held().len() + outcomes.len(), accepted);
            prop_assert_eq!(desk.held_count(), desk.held().len());
        }
        while !desk.is_idle() {
            running.extend(std::iter::from_fn(|| next(&mut desk)));
            for run in running.drain(..) {
                finish(&mut desk, &run, Verdict::Ok);
            }
        }
        report(&mut desk, &mut outcomes);
        prop_assert_eq!(outcomes.len(), accepted);
        prop_assert!(outcomes.values().all(|times| *times == 1));
        prop_assert_eq!(desk.free, desk.capacity);
        prop_assert!(desk.held().is_empty());
    }
}

fn report(desk: &mut Desk, outcomes: &mut HashMap<Try, u32>) {
    while let Some((_, reports)) = desk.take_reports() {
        for done in reports.done {
            *outcomes.entry((done.task, done.attempt)).or_default() += 1;
        }
        desk.confirm_reports();
    }
}
