//! What a source looks after beside its work: snapshots, its readers, and whether it is paused.

use mutirao_streams::wire::{Mode, Snapshot, State};

use super::{SNAPSHOT, Work};
use crate::running::Stop;

impl Work<'_> {
    pub(super) fn look(&mut self) {
        let (job, status) = (self.job, &self.job.status);
        let now = job.means.clock.monotonic();
        self.looked = now;
        self.saving.go_on(Some(self.outputs), job);
        if self.changed && now.since(self.saved) >= SNAPSHOT && self.saving.is_free() {
            self.offer();
        }
        let order = job.order();
        self.outputs.ordered(&order.needed);
        self.heed(order.mode);
        let trouble = self.outputs.trouble();
        if trouble.is_some() || !self.feeding.is_troubled() {
            status.trouble_is(trouble);
        }
        status.is(if self.core.has_ended() { State::Ended } else { State::Running });
    }

    fn heed(&mut self, mode: Mode) {
        let now_us = self.job.means.now_us();
        match (mode, self.paused) {
            (Mode::Pause, None) => self.paused = Some(now_us),
            (Mode::Run, Some(since)) => {
                // What a table would have had due meanwhile comes later, and not all at once.
                if self.makes {
                    self.core.postpone(now_us.saturating_sub(since));
                }
                (self.paused, self.due) = (None, None);
            }
            _ => {}
        }
    }

    pub(super) fn offer(&mut self) {
        if self.core.has_something_to_say() {
            self.cut();
        }
        let (now, bytes) = (self.job.means.clock.now(), self.core.snapshot(&self.position));
        // A source has no log of its own: its snapshots are in the order of time.
        let newest =
            self.saving.offset.unwrap_or(0).max(self.job.status.snapshot().map_or(0, |last: Snapshot| last.offset));
        let offset = u64::try_from(now.0).unwrap_or(0).max(newest + 1);
        self.saving.offer(offset, bytes, self.outputs.mark());
        (self.saved, self.changed) = (self.job.means.clock.monotonic(), false);
    }

    pub(super) async fn leave(&mut self, stop: Stop) {
        if stop == Stop::WithSnapshot {
            self.saving.finish(Some(self.outputs), self.job).await;
            self.offer();
            self.saving.finish(Some(self.outputs), self.job).await;
            self.settle();
            self.feeding.part().await;
        }
    }
}
