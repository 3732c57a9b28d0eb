//! The passing of time: leases run out, but only while those who hold them could be heard; parcels that got lost are
//! looked for; the store is compared with now and then.

use std::time::Duration;

use mutirao_core::Mono;

use super::{Foreman, Reach, Stage};
use crate::desk::{Desk, Now};

const TICK: Duration = Duration::from_millis(200);
/// Between two ticks when there is nobody and nothing, as on most shards of a small installation.
const TICK_IDLE: Duration = Duration::from_secs(5);
const TICK_SHORTEST: Duration = Duration::from_millis(1);
/// Between two looks for parcels that got lost.
const CHECK_OVERDUE: Duration = Duration::from_secs(5);
/// The same, while a parcel may have gone with a worker that died.
const CHECK_DOUBTED: Duration = Duration::from_millis(600);
/// A tick this late, or a settlement that takes this long, means that we could not hear anybody.
const DEAF: Duration = Duration::from_secs(1);
/// After the broker was away, workers come back to it a little later than we do.
const COMING_BACK: Duration = Duration::from_secs(10);
/// How long whoever leaves goes on hearing reports. What it leaves lying goes to the next owner.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(super) struct Watch {
    last_tick: Mono,
    pub next_tick: Mono,
    last_check: Mono,
    /// When the broker was last seen to be away.
    away: Option<Mono>,
    /// Whoever leaves stops hearing after a while.
    pub hearing: bool,
}

impl Watch {
    pub fn new(now: Mono) -> Self {
        Self { last_tick: now, next_tick: now, last_check: now, away: None, hearing: true }
    }

    /// Whoever comes to an idle desk ends its long pause.
    pub fn stay_awake(&mut self, desk: &Desk, now: Mono) {
        if !desk.is_idle() {
            self.next_tick = self.next_tick.min(now.plus(TICK));
        }
    }
}

impl<A> Foreman<A> {
    pub(super) fn tick(&mut self, broker: Reach, now: Now) {
        let (elapsed, late) = (now.mono.since(self.watch.last_tick), now.mono.since(self.watch.next_tick));
        if broker == Reach::Away {
            self.watch.away = Some(now.mono);
        }
        let stuck = self.is_stuck(now.mono);
        if stuck || late > DEAF {
            self.desk.forgive(elapsed);
        }
        self.watch.last_tick = now.mono;
        self.desk.tick(now);
        self.watch.next_tick = now.mono.plus(self.pause(now.mono));
        // While reports are left lying, what seems lost may lie there.
        if !stuck {
            self.look_for_lost_parcels(now);
        }
        self.comparing.tick(now.mono);
        if let Stage::Leaving { since } = self.stage
            && now.mono.since(since) > LAST_WORDS
        {
            self.watch.hearing = false;
        }
    }

    /// Whether somebody may have spoken whom we have not heard.
    fn is_stuck(&self, now: Mono) -> bool {
        !self.hears()
            || self.pending.writing_since().is_some_and(|since| now.since(since) > DEAF)
            || self.watch.away.is_some_and(|last| now.since(last) < COMING_BACK)
    }

    /// Until a retry is due, or the next tick.
    fn pause(&self, now: Mono) -> Duration {
        if self.desk.is_idle() {
            return TICK_IDLE;
        }
        // What is due and cannot go out would have us look again at once, for as long as that lasts.
        if self.barred {
            return TICK;
        }
        self.desk.next_due().map_or(TICK, |due| due.since(now).clamp(TICK_SHORTEST, TICK))
    }

    fn look_for_lost_parcels(&mut self, now: Now) {
        let every = if self.desk.is_in_doubt() { CHECK_DOUBTED } else { CHECK_OVERDUE };
        if now.mono.since(self.watch.last_check) < every {
            return;
        }
        self.watch.last_check = now.mono;
        self.desk.clear_away().into_iter().for_each(|queue| self.pending.words.remove(queue));
        warn_of_lost(self.desk.take_back_lost(self.patience, now));
        for queue in self.desk.overdue(self.patience, now) {
            self.pending.words.look_at(queue);
        }
    }
}

pub(super) fn warn_of_lost(parcels: usize) {
    if parcels > 0 {
        tracing::warn!(parcels, "parcels were lost on their way; their tasks go out again");
    }
}
