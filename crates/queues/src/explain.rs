//! Why tasks do not run, and what would let them: from facts to words. Whoever looks after the queue brings the facts.

mod too_big;
pub mod unreadable;

use std::time::Duration;

use mutirao_core::job::{TaskState, TaskView};
use mutirao_core::quantity::Span;
use mutirao_core::task::Needs;
use mutirao_core::{JobKey, Timestamp};
use serde::{Deserialize, Serialize};

use crate::spec::QueueSpec;

/// What the owner of a queue knows about what holds it back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueFacts {
    /// Tasks that no worker has, retries among them.
    pub waiting: u64,
    /// Tasks that are with a worker, or on their way to one.
    pub out: u64,
    /// Tasks that wait for the date of their retry, and how long until the first of them.
    #[serde(default)]
    pub retrying: u64,
    #[serde(default)]
    pub next_retry_ms: Option<u64>,
    /// Workers that are alive, those that are leaving among them.
    #[serde(default)]
    pub workers: u64,
    #[serde(default)]
    pub leaving: u64,
    /// Workers of before the last change of owner that have not spoken yet.
    #[serde(default)]
    pub expected: u64,
    /// Workers that have missed more than a beat and are not given up yet, what they hold, and how long until the first
    /// of them is.
    #[serde(default)]
    pub silent: u64,
    #[serde(default)]
    pub silent_held: u64,
    #[serde(default)]
    pub given_up_ms: Option<u64>,
    /// Tasks that the workers can run at once, as the next task needs them.
    #[serde(default)]
    pub slots: u64,
    /// What the next task needs, and the most that one worker has.
    #[serde(default)]
    pub needs: Option<Needs>,
    #[serde(default)]
    pub largest: Option<Needs>,
    /// Waiting tasks that fit no worker, and what one of them needs if that is known; `largest` is then of the workers that
    /// were there when it was found out.
    #[serde(default)]
    pub too_big: u64,
    #[serde(default)]
    pub too_big_needs: Option<Needs>,
    /// How long until the limit on starts lets the next one go.
    #[serde(default)]
    pub next_start_ms: Option<u64>,
    /// How long it rests because no worker takes what was handed out.
    #[serde(default)]
    pub rests_ms: Option<u64>,
    /// Why nothing can be written, so that nothing is handed out.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Why nothing reaches the workers, or comes from them.
    #[serde(default)]
    pub broker: Option<String>,
}

/// What the owner of a queue knows about one task of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFacts {
    /// Waiting tasks of jobs that go before its own.
    #[serde(default)]
    pub ahead: u64,
    /// It fits no worker.
    #[serde(default)]
    pub too_big: bool,
    /// What it needs, unless it may say so itself.
    #[serde(default)]
    pub needs: Option<Needs>,
}

/// One thing that holds something back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Reason {
    pub why: String,
    /// What would change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

fn because(why: impl Into<String>, remedy: impl Into<String>) -> Reason {
    Reason { why: why.into(), remedy: Some(remedy.into()) }
}

/// A task of a job that waits for other jobs to end.
pub fn after_others(task: &TaskView, waits_for: &[JobKey]) -> Explanation {
    let jobs = waits_for.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (why, remedy) = match waits_for {
        [job] => (format!("job {job} has not ended"), format!("`mutirao job show {job}` says how it stands")),
        _ => (format!("jobs {jobs} have not ended"), "`mutirao job show ID` says how each stands".to_owned()),
    };
    Explanation {
        summary: format!("task {} waits: its job is to begin after {jobs}", task.id),
        reasons: vec![because(why, remedy)],
    }
}

/// How something stands, and what holds it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Explanation {
    pub summary: String,
    /// The weightiest first; none when nothing does.
    pub reasons: Vec<Reason>,
}

/// Why nobody can say how a queue stands. `broker`: why it cannot be reached, if so.
pub fn silent(spec: &QueueSpec, broker: Option<&str>) -> Explanation {
    let reason = broker.map(cut_off).unwrap_or_else(|| {
        because(
            "whoever looks after it does not answer",
            "try again in a moment; `mutirao shard list` shows who it is, `mutirao doctor` looks closer",
        )
    });
    let summary = format!("queue {}: how many wait cannot be said", spec.name);
    Explanation { summary, reasons: paused(spec).into_iter().chain([reason]).collect() }
}

fn cut_off(why: &str) -> Reason {
    because(
        format!("nothing is handed out: {why}"),
        "what runs goes on and jobs are accepted; `mutirao doctor` looks closer",
    )
}

/// Why tasks of a queue do not run.
pub fn queue(spec: &QueueSpec, facts: &QueueFacts) -> Explanation {
    let (waiting, out) = (facts.waiting, facts.out);
    let summary = match (waiting, out) {
        (0, 0) => format!("queue {} has nothing to do", spec.name),
        (0, _) => format!("queue {}: every task is {} ({out})", spec.name, whereabouts(facts)),
        _ => format!("queue {}: {waiting} wait, {out} are with workers", spec.name),
    };
    let always = || {
        // With nobody there, what was handed out is not taken either.
        let absent = (out > 0 && facts.workers == 0).then(|| nobody(spec, facts)).flatten();
        paused(spec)
            .into_iter()
            .chain(facts.broker.as_deref().map(cut_off))
            .chain(absent)
            .chain(unheard(facts))
            .collect()
    };
    Explanation { summary, reasons: if waiting == 0 { always() } else { held(spec, facts) } }
}

/// Where a task is that was handed out, as far as it can be said.
fn whereabouts(facts: &QueueFacts) -> &'static str {
    match (facts.workers, &facts.broker) {
        (0, _) => "on its way to a worker",
        (_, Some(_)) => "with a worker or on its way to one",
        (_, None) => "with a worker",
    }
}

fn paused(spec: &QueueSpec) -> Option<Reason> {
    spec.paused.then(|| because("it is paused", format!("`mutirao queue resume {}` lets it go on", spec.name)))
}

/// What holds waiting tasks back.
fn held(spec: &QueueSpec, facts: &QueueFacts) -> Vec<Reason> {
    let name = &spec.name;
    let mut reasons: Vec<Reason> = paused(spec).into_iter().collect();
    if let Some(trouble) = &facts.trouble {
        reasons.push(because(
            format!("nothing can be written, so nothing is handed out: {trouble}"),
            "`mutirao doctor` looks closer",
        ));
    }
    reasons.extend(facts.broker.as_deref().map(cut_off));
    if facts.too_big > 0 {
        reasons.push(too_big::some(spec, facts));
    }
    let waiting = facts.waiting.saturating_sub(facts.too_big);
    if waiting == 0 {
        return reasons;
    }
    reasons.extend(nobody(spec, facts));
    if let Some(rest) = facts.rests_ms {
        reasons.push(because(
            format!("it rests for {} because no worker took what was handed out before", span(rest)),
            format!("the logs of the workers, or the dead letters of queue {name}, say why"),
        ));
    }
    if let Some(running) = spec.limits.running.filter(|running| facts.out >= u64::from(*running)) {
        reasons.push(because(
            format!("{} tasks are out, the limit is {running} (limits.running)", facts.out),
            format!("wait for one to end, or `mutirao queue edit {name} --running-max N`"),
        ));
    }
    if let (Some(next), Some(rate)) = (facts.next_start_ms, spec.limits.starts_per_second) {
        reasons.push(because(
            format!("{rate} may start in a second (limits.starts_per_second), the next in {}", span(next)),
            format!("wait, or `mutirao queue edit {name} --starts-per-second N`"),
        ));
    }
    if facts.retrying > 0 && facts.retrying >= waiting {
        let next = facts.next_retry_ms.map(|ms| format!(", the first in {}", span(ms))).unwrap_or_default();
        reasons.push(because(
            format!(
                "all that wait have failed, or came to a worker that is too small, and wait for their next try{next}"
            ),
            "nothing needs to be done; `mutirao task show ID` says how a task failed",
        ));
    }
    if reasons.is_empty() && facts.out >= facts.slots {
        reasons.push(because(
            format!("the workers are busy: {} run at once, {} are out", facts.slots, facts.out),
            match &spec.elastic {
                Some(_) => "wait; `mutirao elastic status` says how many workers it gets, and why not more".to_owned(),
                None => format!("wait, or start more workers (`mutirao worker invite --queue {name}`)"),
            },
        ));
    }
    reasons.extend(unheard(facts));
    if reasons.is_empty() {
        reasons.push(because(
            "nothing that is known here: they should be handed out in a moment",
            "if they are not, `mutirao doctor` looks further",
        ));
    }
    reasons
}

/// Who may be dead, and for how long that is waited out.
fn unheard(facts: &QueueFacts) -> Option<Reason> {
    let given_up = facts.given_up_ms.filter(|_| facts.silent > 0)?;
    let (workers, tasks) = (facts.silent, facts.silent_held);
    Some(because(
        format!(
            "silent workers: {workers}; what they hold ({tasks}) goes to others, the first of it in {}",
            span(given_up)
        ),
        "nothing needs to be done; `mutirao worker list` shows who is silent (jobs.lease says for how long)",
    ))
}

/// Why there is nobody to take them.
fn nobody(spec: &QueueSpec, facts: &QueueFacts) -> Option<Reason> {
    let name = &spec.name;
    if facts.expected > 0 {
        return Some(because(
            format!("{} workers of before are waited for, so that what they run is not run twice", facts.expected),
            "they are given up when their lease has run out (jobs.lease)",
        ));
    }
    if facts.workers == 0 {
        return Some(because(
            format!("no worker takes tasks of queue {name}"),
            match &spec.elastic {
                Some(_) => "they come by its elastic policy: `mutirao elastic status` says how that stands".to_owned(),
                None => format!(
                    "`mutirao worker invite --queue {name}` says how to start one, \
                     `mutirao queue edit {name} --elastic-preset arrebol` has them started"
                ),
            },
        ));
    }
    if facts.workers == facts.leaving {
        return Some(because(
            format!("all {} workers of queue {name} are leaving", facts.workers),
            match &spec.elastic {
                Some(_) => {
                    "others come by its elastic policy: `mutirao elastic status` says how that stands".to_owned()
                }
                None => format!("`mutirao worker invite --queue {name}` says how to start another"),
            },
        ));
    }
    match (facts.needs, facts.largest) {
        (Some(needs), Some(most)) if needs.cpus > most.cpus => Some(because(
            format!("the next task needs {} cpus, the largest worker has {}", needs.cpus, most.cpus),
            larger(spec, "cpus"),
        )),
        (Some(needs), Some(most)) if needs.memory > most.memory => Some(because(
            {
                let (needs, most) = needs.memory.beside(most.memory);
                format!("the next task needs {needs} of memory, the largest worker has {most}")
            },
            larger(spec, "memory"),
        )),
        _ => None,
    }
}

fn larger(spec: &QueueSpec, resource: &str) -> String {
    match &spec.elastic {
        Some(_) => format!("`mutirao apply` queue {} with more `{resource}` under `workers:`", spec.name),
        None => format!("start a larger worker for queue {} (worker.{resource})", spec.name),
    }
}

/// Why a task does not run, or how it stands when it does or did. `queue` is not known when its owner is silent.
pub fn task(
    task: &TaskView,
    facts: Option<TaskFacts>,
    queue: Option<(&QueueSpec, &QueueFacts)>,
    now: Timestamp,
) -> Explanation {
    let with = task.worker.as_deref().map(|worker| format!(" with worker {worker}")).unwrap_or_default();
    let said = |summary: String| Explanation { summary, reasons: Vec::new() };
    match task.state {
        TaskState::Running => said(format!("task {} is running{with}", task.id)),
        TaskState::Dispatched if task.worker.is_some() => Explanation {
            summary: format!("task {} is{with} and has not begun", task.id),
            reasons: vec![because(
                "its worker runs others first",
                "wait; what waits too long there is given back and goes to another",
            )],
        },
        TaskState::Dispatched => said(format!("task {} is on its way to a worker", task.id)),
        TaskState::Ready => waiting(task, facts, queue, now),
        ended => {
            let reason = task.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let how = match ended {
                TaskState::Ok => "ended ok",
                TaskState::Failed => "failed",
                TaskState::TimedOut => "timed out",
                TaskState::Cancelled => "was cancelled",
                TaskState::Lost => "was lost with its worker",
                _ => "was given up as dead",
            };
            said(format!("task {} {how}{reason}", task.id))
        }
    }
}

/// Whether a task waits for nothing but its turn: what holds its queue back holds it back.
pub fn waits_for_its_queue(task: &TaskView, now: Timestamp) -> bool {
    task.state == TaskState::Ready && task.not_before.is_none_or(|at| at <= now)
}

fn waiting(
    task: &TaskView,
    facts: Option<TaskFacts>,
    queue: Option<(&QueueSpec, &QueueFacts)>,
    now: Timestamp,
) -> Explanation {
    let summary = format!("task {} waits", task.id);
    if let Some(at) = task.not_before.filter(|at| *at > now) {
        let wait = span(at.since(now).as_millis() as u64);
        let why = format!("it failed {} and is tried again in {wait}", times(task.failures));
        let logs = format!("mutirao job logs {} --task {}", task.id.job, task.id.index);
        let remedy = format!("nothing needs to be done; `{logs}` shows what it wrote");
        return Explanation { summary, reasons: vec![because(why, remedy)] };
    }
    let Some((spec, known)) = queue else {
        let silent = because("whoever looks after its queue does not answer", "try again in a moment");
        return Explanation { summary, reasons: vec![silent] };
    };
    if facts.is_some_and(|facts| facts.too_big) {
        let reason = too_big::one(spec, facts.and_then(|facts| facts.needs), known.largest, task.id.job);
        return Explanation { summary, reasons: vec![reason] };
    }
    // What holds others back that fit no worker does not hold this one back.
    let others =
        QueueFacts { waiting: known.waiting.saturating_sub(known.too_big).max(1), too_big: 0, ..known.clone() };
    let mut reasons = held(spec, &others);
    if let Some(ahead) = facts.map(|facts| facts.ahead).filter(|ahead| *ahead > 0) {
        let policy = spec.policy.word();
        reasons.push(because(
            format!("{ahead} tasks of other jobs go before it (policy {policy})"),
            match policy {
                "fifo" => "wait for its turn; a queue with the policy priority lets jobs go first".to_owned(),
                _ => "wait for its turn, or submit with a higher --priority".to_owned(),
            },
        ));
    }
    Explanation { summary, reasons }
}

fn times(n: u32) -> String {
    if n == 1 { "once".into() } else { format!("{n} times") }
}

/// Rounded up to what a person reads.
fn span(ms: u64) -> Span {
    let ms = if ms >= 1_000 { ms.div_ceil(1_000) * 1_000 } else { ms.max(1) };
    Span(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests;
