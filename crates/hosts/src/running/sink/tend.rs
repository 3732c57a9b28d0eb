//! What of a sink is looked after also while rows are on their way.

use std::time::Duration;

use mutirao_core::Mono;
use mutirao_streams::wire::{Latency, State};

use crate::measure::latency::Gathered;
use crate::running::Job;
use crate::running::behind::Behind;
use crate::running::records::Records;
use crate::running::saving::Saving;
use crate::running::telling::Telling;

pub struct Tend<'a> {
    job: &'a Job,
    pub log: &'a str,
    pub saving: Saving,
    pub records: Records<'a>,
    pub telling: Telling,
    behind: Behind,
    from: u64,
    end: u64,
    /// Everything before it was handed over.
    pub next: u64,
    pub looked: Mono,
    pub took: Gathered,
    told: Mono,
    pub trouble: Option<String>,
    pub ended: bool,
}

impl<'a> Tend<'a> {
    /// `offset`: that of the snapshot from which it goes on; `end`: where the log ends.
    pub fn of(job: &'a Job, log: &'a str, next: u64, offset: Option<u64>, end: u64) -> Self {
        let now = job.means.clock.monotonic();
        Self {
            job,
            log,
            saving: Saving::of(offset),
            records: Records::of(log, now),
            telling: Telling::of(job),
            behind: Behind::look(log.to_owned(), &job.means, end),
            from: offset.unwrap_or(0),
            end,
            next,
            looked: now,
            took: Gathered::default(),
            told: now,
            trouble: None,
            ended: false,
        }
    }

    pub fn look(&mut self) {
        let (job, status) = (self.job, &self.job.status);
        let now = job.means.clock.monotonic();
        self.looked = now;
        self.saving.go_on(None, job);
        self.telling.tell(self.saving.offset.unwrap_or(self.from), self.next);
        status.next_is(self.next);
        status.trouble_is(self.trouble.clone());
        status.meter.queue_is(self.behind.records(self.next));
        if now.since(self.told) >= Duration::from_secs(1) {
            self.told = now;
            let took: Option<Latency> = std::mem::take(&mut self.took).told(job.part.clone());
            took.into_iter().for_each(|took| status.meter.latency_is(took));
        }
        status.is(match () {
            () if self.ended => State::Ended,
            () if self.next < self.end => State::CatchingUp,
            () => State::Running,
        });
    }
}
