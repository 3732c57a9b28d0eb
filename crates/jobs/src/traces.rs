//! What jobs tell about requests that are followed: submitting, handing out, settling. Nothing is done for the others but
//! looking at the length of a text.

use std::collections::{HashMap, VecDeque};

use mutirao_core::clock::{Clock, Mono};
use mutirao_core::dice::os_random;
use mutirao_core::envelope::Reports;
use mutirao_core::job::JobView;
use mutirao_core::trace::{self, Followed, Span, Step};
use mutirao_core::{Attempt, JobKey, Problem, TaskKey, Timestamp};

/// Tasks of one job that are followed. A job may have a million, and the first ones tell how it went.
const TASKS_FOLLOWED_MAX: u32 = 256;
/// Jobs that are counted for this; past it, all are forgotten.
const JOBS_COUNTED_MAX: usize = 1_000;
/// Outcomes on their way to the disk that are followed.
const SETTLING_MAX: usize = 4_096;

/// When something began, by both clocks.
#[derive(Clone, Copy)]
pub struct Began {
    at: Timestamp,
    mono: Mono,
}

impl Began {
    pub fn now(clock: &dyn Clock) -> Self {
        Self { at: clock.now(), mono: clock.monotonic() }
    }

    fn until_now(self, name: &'static str, trace: u128, id: u64, clock: &dyn Clock) -> Span {
        let took = clock.monotonic().since(self.mono);
        Span { trace, id, parent: 0, name, began_at: self.at, took, notes: Vec::new(), failed: None }
    }
}

/// A submission that is followed.
pub struct Submitting {
    caller: Followed,
    span: u64,
    began: Began,
}

impl Submitting {
    pub fn begin(caller: Followed, clock: &dyn Clock) -> Self {
        let mut span = [0; 8];
        os_random(&mut span);
        Self { caller, span: u64::from_ne_bytes(span).max(1), began: Began::now(clock) }
    }

    /// What travels with the job's tasks.
    pub fn trace(&self) -> String {
        Followed { parent: self.span, ..self.caller }.to_string()
    }

    pub fn end(self, answer: Result<&JobView, &Problem>, clock: &dyn Clock) {
        let notes = answer.map_or_else(|_| Vec::new(), |job| vec![("mutirao.job", job.id.to_string())]);
        let failed = answer.err().map(Problem::line);
        let (parent, span) = (self.caller.parent, self.began.until_now("submit", self.caller.trace, self.span, clock));
        trace::tell(Span { parent, notes, failed, ..span });
    }
}

/// What is being handed out of jobs that are followed.
#[derive(Default)]
pub struct HandingOut {
    counted: HashMap<JobKey, u32>,
    out: Vec<(Followed, TaskKey, Attempt)>,
}

impl HandingOut {
    /// The trace that goes along with tasks of this job.
    pub fn trace(&self, job: JobKey, trace: &str) -> String {
        let many = self.counted.get(&job).is_some_and(|tasks| *tasks >= TASKS_FOLLOWED_MAX);
        let plain = many || trace.parse::<Followed>().is_err();
        if plain { trace::name_of(trace).to_owned() } else { trace.to_owned() }
    }

    pub fn packed(&mut self, trace: &str, task: TaskKey, attempt: Attempt) {
        let Ok(followed) = trace.parse() else { return };
        if self.counted.len() >= JOBS_COUNTED_MAX {
            self.counted.clear();
        }
        *self.counted.entry(task.job).or_default() += 1;
        self.out.push((followed, task, attempt));
    }

    /// What was packed since this was last asked.
    pub fn take(&mut self, began: Began) -> HandedOut {
        HandedOut { began, tasks: std::mem::take(&mut self.out) }
    }
}

/// Tasks of one parcel that are followed.
pub struct HandedOut {
    began: Began,
    tasks: Vec<(Followed, TaskKey, Attempt)>,
}

impl HandedOut {
    /// The parcel is with the broker, or its tasks are back in line.
    pub fn sent(self, trouble: Option<&str>, clock: &dyn Clock) {
        for (followed, task, attempt) in self.tasks {
            let id = followed.step(Step::Dispatch, task, attempt);
            let span = self.began.until_now("dispatch", followed.trace, id, clock);
            let (parent, failed) = (followed.parent, trouble.map(str::to_owned));
            trace::tell(Span { parent, notes: notes(task, attempt), failed, ..span });
        }
    }
}

/// Outcomes that were heard and are not written yet, of tasks that are followed.
#[derive(Default)]
pub struct Settling(VecDeque<(u64, Followed, TaskKey, Attempt, Began)>);

impl Settling {
    pub fn heard(&mut self, tag: u64, reports: &Reports, clock: &dyn Clock) {
        for done in &reports.done {
            if let Ok(followed) = done.trace.parse()
                && self.0.len() < SETTLING_MAX
            {
                self.0.push_back((tag, followed, done.task, done.attempt, Began::now(clock)));
            }
        }
    }

    /// All that came with this message and those before it is written.
    pub fn written(&mut self, through: u64, clock: &dyn Clock) {
        while let Some((_, followed, task, attempt, began)) = self.0.pop_front_if(|(tag, ..)| *tag <= through) {
            let id = followed.step(Step::Settle, task, attempt);
            let parent = followed.step(Step::Run, task, attempt);
            let span = began.until_now("settle", followed.trace, id, clock);
            trace::tell(Span { parent, notes: notes(task, attempt), ..span });
        }
    }
}

fn notes(task: TaskKey, attempt: Attempt) -> Vec<(&'static str, String)> {
    vec![("mutirao.task", task.to_string()), ("mutirao.attempt", attempt.to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_large_job_is_followed_for_its_first_tasks_only() {
        let followed = format!("{TRACE}-0000000000000001");
        let mut handing = HandingOut::default();
        assert_eq!(handing.trace(JobKey(1), TRACE), TRACE);
        for index in 0..TASKS_FOLLOWED_MAX {
            let trace = handing.trace(JobKey(1), &followed);
            assert_eq!(trace, followed);
            handing.packed(&trace, TaskKey { job: JobKey(1), index }, Attempt::default());
        }
        assert_eq!(handing.trace(JobKey(1), &followed), TRACE);
        assert_eq!(handing.trace(JobKey(2), &followed), followed);
    }
}
