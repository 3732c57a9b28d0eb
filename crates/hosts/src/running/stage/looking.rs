//! What a stage looks after beside its work: snapshots, readers, writers, and the time of sources that are silent.

use std::time::Duration;

use mutirao_core::Mono;
use mutirao_streams::wire::{Mode, State};

use super::{End, KEYS, Work};
use crate::running::Stop;

/// Keys of a snapshot that are written while nothing comes.
const KEYS_IDLE: usize = 16_384;
/// Silence after which the log counts as read to its end.
const AT_END: Duration = Duration::from_millis(150);
/// What lies in a log is read by then, if the log can be read.
const UNREAD: Duration = Duration::from_secs(3);

impl Work<'_> {
    pub(super) fn advance_snapshot(&mut self, keys: usize) {
        if self.core.is_saving()
            && let Some(saved) = self.core.advance_snapshot(keys)
            && let Some(mark) = self.saving_mark.take()
        {
            // What it remembers takes about as much in memory as written down.
            self.job.status.meter.memory_is(saved.bytes.len() as u64);
            self.saving.offer(saved.offset, saved.bytes, mark);
        }
    }

    pub(super) fn look(&mut self) {
        let (job, status) = (self.job, &self.job.status);
        let now = job.means.clock.monotonic();
        self.looked = now;
        let next = self.core.next_offset();
        self.saving.go_on(Some(self.outputs), job);
        self.advance_snapshot(KEYS_IDLE);
        let new = self.saving.offset != Some(next);
        if self.due.is_due(now) && new && self.saving.is_free() && !self.core.is_saving() && !self.core.is_busy() {
            self.cut();
            let mark = self.outputs.mark();
            if self.core.begin_snapshot() {
                self.saving_mark = Some(mark);
                self.due.begun(now);
                self.advance_snapshot(KEYS);
            }
        }
        self.telling.tell(self.saving.offset.unwrap_or(self.from), next);
        let order = job.order();
        self.outputs.ordered(&order.needed);
        // Silence is how long nothing came, which a clock that was set does not tell.
        let was_set = self.steps.look(job.means.now_us(), now);
        if order.mode == Mode::Run && !was_set {
            self.mind_silence(now);
        } else {
            self.hold_time();
        }
        status.next_is(next);
        let stuck = || self.records.stuck(job, self.core.gap(), now);
        status.trouble_is(self.outputs.trouble().or_else(|| self.reader.trouble()).or_else(stuck));
        status.meter.queue_is(self.behind.records(next));
        status.meter.late_so_far(self.core.counts().late);
        status.is(match () {
            () if self.core.has_ended() => State::Ended,
            () if next < self.end => State::CatchingUp,
            () => State::Running,
        });
    }

    /// Silence counts only while the log can be read, and only once it is certain that nothing lies in it unread.
    fn mind_silence(&mut self, now: Mono) {
        if self.reader.trouble().is_some() || self.behind.is_away(now) {
            return self.hold_time();
        }
        let at_end = self.reader.is_empty() && self.records.is_quiet(now, AT_END);
        if !at_end || !self.core.is_tick_due(self.job.means.now_us()) {
            self.silent = None;
            return;
        }
        let since = *self.silent.get_or_insert(now);
        if let Some(end) = self.behind.end_after(since) {
            // Numbers that RabbitMQ spent on itself at the end of a log are never read.
            let is_read = end <= self.core.next_offset() || now.since(since) >= UNREAD;
            if is_read {
                self.silent = None;
                self.tick();
            }
        }
    }

    fn hold_time(&mut self) {
        self.silent = None;
        self.core.hold_time(self.job.means.now_us());
    }

    /// The time of sources that are silent goes on; that stands in the log, for other replicas to hear it where we do.
    fn tick(&mut self) {
        let ticks = self.core.ticks(self.job.means.now_us(), true);
        if !ticks.is_empty() {
            let (broker, log) = (self.job.means.broker.clone(), self.log.to_owned());
            let ticks = ticks.into_iter().map(Into::into).collect();
            // One that is lost is said again.
            tokio::spawn(async move { broker.add(&log, ticks).await });
        }
    }

    pub(super) async fn leave(&mut self, stop: Stop) -> End {
        if stop == Stop::WithSnapshot {
            self.job.status.next_is(self.core.next_offset());
            self.cut();
            let mark = self.outputs.mark();
            self.saving.finish(Some(self.outputs), self.job).await;
            if self.saving.offset != Some(self.core.next_offset())
                && let Some(saved) = self.core.snapshot()
            {
                self.saving.offer(saved.offset, saved.bytes, mark);
                self.saving.finish(Some(self.outputs), self.job).await;
            }
        }
        End::Stopped
    }
}
