//! What a source looks after beside its work: snapshots, its readers, and whether it is paused.

use mutirao_streams::wire::{Mode, Snapshot, State};

use super::{Resuming, SNAPSHOT, Work};
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
        self.signs.look(job, self.outputs, now);
        let trouble = self.outputs.trouble();
        if trouble.is_some() || !self.feeding.is_troubled() {
            status.trouble_is(trouble);
        }
        status.is(if self.core.has_ended() { State::Ended } else { State::Running });
    }

    fn heed(&mut self, mode: Mode) {
        let now_us = self.job.means.now_us();
        match mode {
            Mode::Pause => {
                if !std::mem::replace(&mut self.paused, true) && self.makes {
                    self.core.pause(now_us);
                    self.changed = true;
                }
                self.resuming = None;
            }
            Mode::Run => {
                if self.core.resume(now_us) {
                    self.resuming = Some(Resuming::default());
                }
                if std::mem::replace(&mut self.paused, false) {
                    self.due = None;
                }
                self.resume();
            }
        }
    }

    /// How far the table of a generator was shifted is known to the manager before anything comes of it: or after a crash the same
    /// events would have other times.
    fn resume(&mut self) {
        let Some(Resuming { offered }) = self.resuming else { return };
        let own = self.job.status.snapshot();
        let kept = own.filter(|own| offered.is_some_and(|offered| own.offset >= offered));
        let is_known = |own: &Snapshot| self.job.order().snapshots.iter().any(|known| known.key == own.key);
        match kept {
            Some(own) if is_known(&own) => self.resuming = None,
            Some(_) => {}
            None if self.saving.is_free() => {
                let offered = self.offer();
                self.resuming = Some(Resuming { offered: Some(offered) });
            }
            None => {}
        }
    }

    /// By which offset it is known.
    pub(super) fn offer(&mut self) -> u64 {
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
        offset
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
