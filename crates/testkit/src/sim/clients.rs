//! Clients of the simulated world: they submit jobs, ask again with the same key when they hear nothing, and now and then
//! change their minds.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use mutirao_core::exec::Exec;
use mutirao_core::id::{JobKey, TaskKey};
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::task::{Action, Needs, Retry, TaskSpec};

use super::ground::{Event, Ground, MS, SECOND};
use super::weather::shard_of_queue;
use super::wire::{Definition, Pid, Request, Response};

/// How long a client waits before it asks again.
const PATIENCE_US: u64 = 4 * SECOND;
pub const TICK_US: u64 = 200 * MS;

enum Wish {
    Submit,
    CancelJob,
    CancelTask(u32),
}

/// Something a client wants, from a moment on, until it is granted.
struct Plan {
    job: usize,
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

impl Clients {
    pub fn new(ground: &mut Ground) -> Self {
        let definitions: Vec<_> = (0..ground.weather.jobs).map(|_| Rc::new(define(ground))).collect();
        let mut plans = Vec::new();
        let plan = |job, wish, from_us| Plan { job, wish, from_us, asked_again_at_us: 0, granted: false };
        for (job, definition) in definitions.iter().enumerate() {
            let from_us = ground.now_us + ground.dice.below(ground.weather.chaos_us * 3 / 4);
            plans.push(plan(job, Wish::Submit, from_us));
            if ground.chance(20) {
                let later_us = ground.between(0, 30 * SECOND);
                plans.push(plan(job, Wish::CancelJob, from_us + later_us));
            }
            for _ in 0..ground.dice.below(4) {
                let later_us = ground.between(0, 30 * SECOND);
                let index = definition.first + ground.dice.below(u64::from(definition.total)) as u32;
                plans.push(plan(job, Wish::CancelTask(index), from_us + later_us));
            }
        }
        ground.after(TICK_US, Event::ClientTick);
        Self { definitions, jobs: BTreeMap::new(), plans, requests: BTreeMap::new(), last_request: 0 }
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
        let definition = &self.definitions[plan.job];
        let job = self.jobs.get(&plan.job).copied();
        match plan.wish {
            Wish::Submit => Some(Request::Submit { key: plan.job as u64, definition: definition.clone() }),
            Wish::CancelJob => Some(Request::CancelJob(job?)),
            Wish::CancelTask(index) => Some(Request::CancelTask(TaskKey { job: job?, index }, definition.shard)),
        }
    }

    pub fn hear(&mut self, request: u64, response: Response, ground: &mut Ground) {
        let Some(at) = self.requests.remove(&request) else { return };
        let plan = &mut self.plans[at];
        match response {
            Response::Accepted(job) => {
                plan.granted = true;
                let before = *self.jobs.entry(plan.job).or_insert(job);
                if before != job {
                    ground.oracle.fail(|| format!("one request was answered with {before:?} and with {job:?}"));
                }
            }
            Response::Cancelled => plan.granted = true,
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
    Definition { shard: shard_of_queue(&queue), queue, first, total, retry, needs, spec: Arc::new(spec) }
}
