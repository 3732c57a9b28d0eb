//! Records are heard, and what comes of them is cut into records of those who read on.

use mutirao_broker::Record;
use mutirao_core::clock::ClockExt;
use mutirao_streams::part::{RECORD_BYTES, RECORD_ROWS};

use super::{End, GATHER_MAX, KEYS, LOOK, Work};
use crate::measure::cpu::Stopwatch;
use crate::running::records::pass_to;

/// Rows after which others of this thread get their turn.
const ROWS_TURN: u64 = 8_192;

impl Work<'_> {
    pub(super) async fn hear(&mut self, records: Vec<Record>) -> Result<(), End> {
        let (job, meter) = (self.job, self.job.status.meter.clone());
        let mut work = Stopwatch::start();
        let (mut rows, mut bytes, mut fresh) = (0, 0, 0);
        for record in records {
            let now_us = job.means.now_us();
            pass_to(&mut self.core, record.offset);
            let heard = self.core.hear(record.offset, &record.body, now_us).map_err(End::from)?;
            self.telling.heard(record.body.len(), heard.facts.as_ref(), now_us);
            bytes += record.body.len() as u64;
            fresh += heard.fresh;
            rows += heard.fresh + 64;
            self.records.note(record.offset, &heard);
            while self.cut_if_much() | self.core.is_busy() {
                if !self.outputs.has_room() {
                    meter.worked(work.took());
                    self.wait_for_room().await?;
                    work = Stopwatch::start();
                }
                if self.core.is_busy() {
                    self.core.go_on(now_us).map_err(End::from)?;
                }
            }
            self.advance_snapshot(KEYS);
            if rows >= ROWS_TURN {
                rows = 0;
                self.flush_if_old();
                meter.worked(work.took());
                tokio::task::yield_now().await;
                work = Stopwatch::start();
            }
        }
        meter.worked(work.took());
        meter.events_in(fresh);
        meter.network(bytes);
        self.due.read(bytes);
        self.records.came(job.means.clock.monotonic());
        Ok(())
    }

    /// Whether there was much to hand on.
    fn cut_if_much(&mut self) -> bool {
        let (rows, bytes) = self.core.waiting();
        let much = rows >= RECORD_ROWS as u64 || bytes >= RECORD_BYTES;
        if much {
            self.cut();
        }
        much
    }

    pub(super) fn cut(&mut self) {
        self.outputs.give(self.core.cut(self.job.means.now_us()));
        self.gathered = None;
    }

    fn flush_if_old(&mut self) {
        if !self.core.has_something_to_say() {
            return;
        }
        let now = self.job.means.clock.monotonic();
        if now.since(*self.gathered.get_or_insert(now)) >= GATHER_MAX {
            self.cut();
        }
    }

    pub(super) fn flush_if_due(&mut self) {
        if !self.core.has_something_to_say() {
            self.gathered = None;
        } else if self.reader.is_empty() && self.outputs.is_idle() {
            self.cut();
        } else {
            self.flush_if_old();
        }
    }

    /// Those behind it take nothing.
    async fn wait_for_room(&mut self) -> Result<(), End> {
        let clock = self.job.means.clock.clone();
        let since = clock.monotonic();
        while !self.outputs.has_room() {
            tokio::select! {
                biased;
                // In the middle of a record there is no snapshot.
                _ = self.job.stopped() => return Err(End::Stopped),
                () = self.outputs.room() => {}
                () = clock.sleep_until(self.looked.plus(LOOK)) => self.look(),
            }
        }
        self.job.status.meter.held_back(clock.monotonic().since(since));
        Ok(())
    }
}
