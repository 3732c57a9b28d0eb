//! What is told of a log as it is read, by stages and sinks alike: records that are passed over, events that are lost, and gaps
//! that nobody fills.

use std::time::Duration;

use mutirao_core::Mono;
use mutirao_streams::part::{Gap, Heard};

use super::Job;
use super::beginning::Core;

/// A gap that another copy fills is filled by then; nothing came since.
const QUIET: Duration = Duration::from_secs(2);

/// RabbitMQ spends a number on itself now and then. What is truly gone, reading says.
pub fn pass_to(core: &mut impl Core, offset: u64) {
    if offset > core.next_offset() {
        core.skip_to(offset);
    }
}

pub struct Records<'a> {
    log: &'a str,
    passed_over: u64,
    /// When one came last.
    heard: Mono,
}

impl<'a> Records<'a> {
    pub fn of(log: &'a str, now: Mono) -> Self {
        Self { log, passed_over: 0, heard: now }
    }

    pub fn came(&mut self, now: Mono) {
        self.heard = now;
    }

    /// Nothing came for as long.
    pub fn is_quiet(&self, now: Mono, silence: Duration) -> bool {
        now.since(self.heard) >= silence
    }

    pub fn note(&mut self, offset: u64, heard: &Heard) {
        let log = self.log;
        if let Some(why) = &heard.passed_over {
            self.passed_over += 1;
            let count = self.passed_over;
            if count.is_power_of_two() {
                tracing::warn!(log, offset, count, "a record was passed over: {why}");
            }
        }
        if heard.lost > 0 {
            tracing::warn!(log, offset, lost = heard.lost, "events are lost: nobody has them any more");
        }
    }

    /// Why what was read is not worked on, once nothing came any more that would change it.
    pub fn stuck(&self, job: &Job, gap: Option<Gap>, now: Mono) -> Option<String> {
        let Gap { port, from, to } = gap.filter(|_| self.is_quiet(now, QUIET))?;
        let missing = if to - from == 1 { "one event".to_owned() } else { format!("{} events", to - from) };
        Some(format!(
            "{missing} of {} cannot be read in its log, and what came after waits for another replica to say them again",
            job.graph.port(port)
        ))
    }
}
