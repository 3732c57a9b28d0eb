//! How a worker ends: when it is told to, or when it has been idle for long; in which order, and how long it waits for whoever
//! may not hear it.

use std::sync::Arc;
use std::time::Duration;

use super::{Loop, Shop, WorkerError};
use crate::stop::{Stop, Stopper, Urgency};

/// Between two looks whether everything has stopped.
const STOPPED_LOOK: Duration = Duration::from_millis(50);
/// How long outcomes may still take of a worker that nobody seemed to hear: whoever was away may just be coming back.
const LAST_REPORT_MAX: Duration = Duration::from_secs(2);
/// How often within the time after which an idle worker ends it is looked whether it is idle.
const IDLE_LOOKS: u32 = 8;

impl Shop {
    /// Carries out what is asked until the last report should have left. Ends only when that takes too long, or when
    /// something broke.
    pub(super) async fn end(
        self: &Arc<Self>,
        asked: &mut Stop,
        stopper: Stopper,
        mut stop: Stop,
        mut taking: Loop,
        last_word: Stopper,
    ) -> Result<(), WorkerError> {
        tokio::select! {
            () = asked.reached(Urgency::Drain) => stopper.drain(),
            () = stop.reached(Urgency::Drain) => {}
            () = self.idle_for_long() => {
                tracing::info!("nothing to do for long: ending");
                stopper.drain();
            }
            result = taking.result() => result?,
        }
        tracing::info!(held = self.desk().held_count(), "draining");
        self.with_desk(|desk| desk.drain(self.clock.now()));
        self.bells.beat.notify_one();
        // Now means now, also when the broker does not answer.
        tokio::select! {
            result = taking.result() => result?,
            () = asked.reached(Urgency::Now) => {}
        }
        drop(taking);
        last_word.drain();
        self.bells.outgoing.notify_one();
        tokio::select! {
            () = asked.reached(Urgency::Now) => {}
            () = self.goodbye_unheard() => {
                tracing::warn!("left without a goodbye: nobody took it in time, and nothing else was left to say");
                return Ok(());
            }
        }
        self.with_desk(|desk| desk.halt(self.clock.now()));
        let limits = &self.config.limits;
        tokio::select! {
            () = self.clock.sleep(limits.stop_grace_max + limits.upload_wait_max + limits.goodbye_wait_max) => {
                Err(WorkerError::Unreported { tasks: self.desk().held_count() })
            }
            () = self.stopped_unheard(asked) => Ok(()),
        }
    }

    /// Ends when nobody would take a report, and nothing runs any more. What ended is reported nonetheless if somebody
    /// takes it within a moment; otherwise it is run again, which is as good as saying so.
    async fn stopped_unheard(&self, asked: &mut Stop) {
        asked.reached(Urgency::Unheard).await;
        while !self.desk().is_idle() {
            self.clock.sleep(STOPPED_LOOK).await;
        }
        let until = self.clock.monotonic().plus(LAST_REPORT_MAX);
        while self.desk().held_count() > 0 {
            if self.clock.monotonic() >= until {
                let tasks = self.desk().held_count();
                tracing::warn!(tasks, "left with outcomes that nobody took; their tasks will run again");
                return;
            }
            self.clock.sleep(STOPPED_LOOK).await;
        }
    }

    /// Ends when there has been no task for as long as the settings say; without such a time, never.
    async fn idle_for_long(&self) {
        let Some(span) = self.config.idle_end else { return std::future::pending().await };
        let (mut taken, mut since) = (self.desk().parcels_taken(), self.clock.monotonic());
        loop {
            self.clock.sleep(span / IDLE_LOOKS).await;
            let now = self.clock.monotonic();
            let desk = self.desk();
            if !desk.is_idle() || desk.parcels_taken() != taken {
                (taken, since) = (desk.parcels_taken(), now);
            } else if now.since(since) >= span {
                return;
            }
        }
    }

    /// Ends when nothing has been held or unreported for as long as a goodbye may take. The session's lease says the
    /// rest to the manager, should it ever come back.
    async fn goodbye_unheard(&self) {
        let idle = || {
            let desk = self.desk();
            desk.is_idle() && desk.unreported() == 0
        };
        loop {
            let was_idle = idle();
            self.clock.sleep(self.config.limits.goodbye_wait_max).await;
            if was_idle && idle() {
                return;
            }
        }
    }
}
