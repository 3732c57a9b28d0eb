//! Clients of the simulated world: they submit jobs, ask again with the same key when they hear nothing, and now and then
//! change their minds; they define queues, change, pause and delete them.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use mutirao_core::exec::Exec;
use mutirao_core::id::{JobKey, QueueName, TaskKey};
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::task::{Action, Needs, Retry, TaskSpec};
use mutirao_jobs::desk::order::Rank;
use mutirao_queues::{FairShare, Limits, Policy, QueueSpec};

use super::ground::{Event, Ground, MS, SECOND};
use super::weather::{Climate, shard_of_queue};
use super::wire::{Definition, Pid, QueueChange, Request, Response};

/// How long a client waits before it asks again.
const PATIENCE_US: u64 = 4 * SECOND;
pub const TICK_US: u64 = 200 * MS;
/// Of one queue in one history; the one that opens it in the end comes after.
const CHANGES_MAX: u64 = 6;

enum Wish {
    Submit,
    CancelJob,
    CancelTask(u32),
    ChangeQueue(QueueChange),
}

/// Something a client wants, from a moment on, until it is granted.
struct Plan {
    /// Which of the jobs it is about, if it is about one.
    job: Option<usize>,
    wish: Wish,
    from_us: u64,
    asked_again_at_us: u64,
    granted: bool,
}

pub struct Clients {
    definitions: Vec<Rc<Definition>>,
    jobs: BTreeMap<usize, JobKey>,
    plans: Vec<Plan>,
    requests: BTreeMap<u64, usize>,
    last_request: u64,
}

impl Plan {
    fn new(job: Option<usize>, wish: Wish, from_us: u64) -> Self {
        Self { job, wish, from_us, asked_again_at_us: 0, granted: false }
    }
}

impl Clients {
    pub fn new(ground: &mut Ground) -> Self {
        let definitions: Vec<_> = (0..ground.weather.jobs).map(|_| Rc::new(define(ground))).collect();
        let mut plans = Vec::new();
        for (job, definition) in definitions.iter().enumerate() {
            let from_us = ground.now_us + ground.dice.below(ground.weather.chaos_us * 3 / 4);
            plans.push(Plan::new(Some(job), Wish::Submit, from_us));
            if ground.chance(20) {
                let later_us = ground.between(0, 30 * SECOND);
                plans.push(Plan::new(Some(job), Wish::CancelJob, from_us + later_us));
            }
            for _ in 0..ground.dice.below(4) {
                let later_us = ground.between(0, 30 * SECOND);
                let index = definition.first + ground.dice.below(u64::from(definition.total)) as u32;
                plans.push(Plan::new(Some(job), Wish::CancelTask(index), from_us + later_us));
            }
        }
        for queue in ground.weather.queues.clone() {
            plans.extend(changes(&queue, ground));
        }
        ground.after(TICK_US, Event::ClientTick);
        Self { definitions, jobs: BTreeMap::new(), plans, requests: BTreeMap::new(), last_request: 0 }
    }

    /// Whatever was wanted of queues, they are all there now and hold nothing back: what waits must come to its end.
    pub fn open_all(&mut self, ground: &Ground) {
        for plan in self.plans.iter_mut().filter(|plan| matches!(plan.wish, Wish::ChangeQueue(_))) {
            plan.granted = true;
        }
        let open =
            |queue: &QueueName| Plan::new(None, Wish::ChangeQueue(open(queue.clone(), CHANGES_MAX)), ground.now_us);
        self.plans.extend(ground.weather.queues.iter().map(open));
    }

    pub fn are_content(&self) -> bool {
        self.plans.iter().all(|plan| plan.granted)
    }

    pub fn tick(&mut self, managers: &[Pid], ground: &mut Ground) {
        for at in 0..self.plans.len() {
            let Some(request) = self.due(at, ground) else { continue };
            let Some(manager) = managers.get(ground.dice.below(managers.len() as u64) as usize) else { continue };
            self.plans[at].asked_again_at_us = ground.now_us + PATIENCE_US;
            self.last_request += 1;
            self.requests.insert(self.last_request, at);
            if !ground.bad_luck(ground.weather.lost_calls_per_mille) {
                let travel_us = ground.between(200, 5 * MS);
                ground.after(travel_us, Event::Asked(*manager, self.last_request, request));
            }
        }
        ground.after(TICK_US, Event::ClientTick);
    }

    fn due(&self, at: usize, ground: &Ground) -> Option<Request> {
        let plan = &self.plans[at];
        if plan.granted || ground.now_us < plan.from_us.max(plan.asked_again_at_us) {
            return None;
        }
        if let Wish::ChangeQueue(change) = &plan.wish {
            return Some(Request::ChangeQueue(change.clone()));
        }
        let (at, job) = (plan.job?, self.jobs.get(&plan.job?).copied());
        let definition = &self.definitions[at];
        match plan.wish {
            Wish::Submit => Some(Request::Submit { key: at as u64, definition: definition.clone() }),
            Wish::CancelJob => Some(Request::CancelJob(job?)),
            Wish::CancelTask(index) => Some(Request::CancelTask(TaskKey { job: job?, index }, definition.shard)),
            Wish::ChangeQueue(_) => None,
        }
    }

    pub fn hear(&mut self, request: u64, response: Response, ground: &mut Ground) {
        let Some(at) = self.requests.remove(&request) else { return };
        let plan = &mut self.plans[at];
        match response {
            Response::Accepted(job) => {
                plan.granted = true;
                let before = plan.job.map_or(job, |at| *self.jobs.entry(at).or_insert(job));
                if before != job {
                    ground.oracle.fail(|| format!("one request was answered with {before:?} and with {job:?}"));
                }
            }
            Response::Cancelled | Response::Changed => plan.granted = true,
            // Then it was not to be, and there is nothing to cancel either.
            Response::NoQueue => {
                let job = plan.job;
                self.plans.iter_mut().filter(|plan| plan.job == job).for_each(|plan| plan.granted = true);
            }
            Response::Refused => plan.asked_again_at_us = ground.now_us + 500 * MS,
        }
    }
}

fn define(ground: &Ground) -> Definition {
    let pick = |of: &[&str]| of[ground.dice.below(of.len() as u64) as usize].to_owned();
    let queues = &ground.weather.queues;
    let queue = queues[ground.dice.below(queues.len() as u64) as usize].clone();
    let pace = pick(&["quick", "quick", "middling", "middling", "long"]);
    let total = if pace == "long" { ground.between(1, 8) } else { ground.between(1, 40) } as u32;
    let action = match ground.dice.below(6) {
        0 => Action::Noop {},
        _ => Action::Exec(Exec {
            command: vec![pace, pick(&["sound", "sound", "flaky", "flaky", "flaky", "hopeless", "broken"])],
            ..Exec::default()
        }),
    };
    let needs = Needs { cpus: Cpus { milli: 1_000 * ground.between(1, 3) as u32 }, memory: Bytes(0) };
    let retry = Retry {
        retries: ground.dice.below(4) as u32,
        backoff: Span::secs(1),
        backoff_max: Span::secs(6),
        crashes: ground.dice.below(6) as u32,
    };
    let spec = TaskSpec { needs, retry: Some(retry), ..TaskSpec::new(action) };
    let first = ground.dice.below(3) as u32;
    let rank =
        Rank { priority: ground.dice.below(5) as i32 - 2, owner: pick(&["ana", "bob", "eva"]), ..Rank::default() };
    Definition { shard: shard_of_queue(&queue), queue, first, total, retry, needs, rank, spec: Arc::new(spec) }
}

/// How a queue begins.
pub fn first(queue: QueueName, ground: &Ground) -> QueueChange {
    let spec = QueueSpec { paused: false, ..some_spec(&queue, ground) };
    QueueChange { spec: Some(Rc::new(spec)), queue, number: 0 }
}

/// A queue that holds nothing back.
fn open(queue: QueueName, number: u64) -> QueueChange {
    QueueChange { spec: Some(Rc::new(QueueSpec::new(queue.clone()))), queue, number }
}

/// What somebody wants of a queue in the course of time.
fn changes(queue: &QueueName, ground: &Ground) -> Vec<Plan> {
    let mut moments: Vec<u64> =
        (0..ground.dice.below(CHANGES_MAX)).map(|_| ground.dice.below(ground.weather.chaos_us)).collect();
    moments.sort_unstable();
    let change = |(number, moment_us): (usize, u64)| {
        let stays = *queue == QueueName::default() || ground.dice.below(5) > 0;
        let spec = stays.then(|| Rc::new(some_spec(queue, ground)));
        let change = QueueChange { queue: queue.clone(), number: 1 + number as u64, spec };
        Plan::new(None, Wish::ChangeQueue(change), ground.now_us + moment_us)
    };
    moments.into_iter().enumerate().map(change).collect()
}

fn some_spec(queue: &QueueName, ground: &Ground) -> QueueSpec {
    let policy = match ground.dice.below(3) {
        0 => Policy::Fifo,
        1 => Policy::Priority,
        _ => Policy::FairShare(FairShare { half_life: Span::secs(20), ..FairShare::default() }),
    };
    let limits = Limits {
        // Where what really runs is counted, there is always a limit to hold it to.
        running: (ground.weather.climate == Climate::Fair || ground.chance(60)).then(|| ground.between(1, 6) as u32),
        starts_per_second: ground.chance(25).then(|| ground.between(2, 40) as f64),
        waiting: None,
    };
    QueueSpec { policy, limits, paused: ground.chance(25), ..QueueSpec::new(queue.clone()) }
}
