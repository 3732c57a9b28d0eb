//! The foreman's loop: settle what is decided, hand out what may go, then wait for the next thing to happen.

use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::clock::ClockExt;

use super::pending::Pending;
use super::{CHECK_DOUBTED, CHECK_OVERDUE, COMPARE, Channels, Ending, Foreman, Order, TICK};
use crate::reports::{Incoming, Mark};
use crate::settler::Said;

/// Settled tasks that may wait to be written before reports are left lying.
const UNSETTLED_MAX: usize = 50_000;
/// Reports taken in at one go.
const REPORTS_AT_ONCE: usize = 32;
/// A tick this late, or a settlement that takes this long, means that we could not hear anybody.
const DEAF: Duration = Duration::from_secs(1);
/// After the broker was away, workers come back to it a little later than we do.
const COMING_BACK: Duration = Duration::from_secs(10);
/// How long whoever leaves goes on hearing reports. What it leaves lying goes to the next owner.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Where the loop stands.
struct Stand {
    /// The last report heard.
    seen: Mark,
    settling_since: Option<Mono>,
    leaving_since: Option<Mono>,
    /// When the broker was last seen to be away.
    away: Option<Mono>,
    last_tick: Mono,
    next_tick: Mono,
    last_check: Mono,
    last_round: Mono,
    /// The reports' end of the channel is there.
    hearing: bool,
}

impl Foreman {
    /// Until asked to leave and done, or until the shard has another owner.
    pub async fn run(mut self, mut channels: Channels) -> Ending {
        let clock = self.clock.clone();
        let mut pending = Pending::default();
        let now = clock.monotonic();
        let mut stand = Stand {
            seen: Mark::default(),
            settling_since: None,
            leaving_since: None,
            away: None,
            last_tick: now,
            next_tick: now,
            last_check: now,
            last_round: now,
            hearing: true,
        };
        let mut inbox = Vec::with_capacity(REPORTS_AT_ONCE);
        loop {
            pending.absorb(self.desk.effects());
            // Between being asked to act and acting we may have been frozen: then another may be the owner by now.
            let holds = self.hold.holds();
            if stand.settling_since.is_none() {
                if !pending.is_settled() {
                    // There is room: the one before is done.
                    if holds && channels.batches.try_send(pending.batch(clock.now(), stand.seen)).is_ok() {
                        stand.settling_since = Some(clock.monotonic());
                    }
                } else {
                    let seen = stand.seen;
                    channels.settled.send_if_modified(|through| std::mem::replace(through, seen) != seen);
                    if stand.leaving_since.is_some() && (channels.incoming.is_empty() || !stand.hearing) {
                        return Ending::Settled;
                    }
                }
            }
            self.show_vitals();
            let working = holds && stand.leaving_since.is_none();
            let may_hand_out = working && self.vitals.trouble.lock().is_none();
            self.send_out(&mut pending, &channels.outgoing, may_hand_out);
            if pending.round.is_none() && working && pending.compare_soon {
                stand.last_round = clock.monotonic();
                self.begin_round(&mut pending, &channels.errands);
            }
            let room = pending.settlement.ended.len() < UNSETTLED_MAX;
            if !self.desk.is_idle() {
                stand.next_tick = stand.next_tick.min(clock.monotonic().plus(TICK));
            }
            tokio::select! {
                Ok(()) = channels.orders.changed() => {
                    if *channels.orders.borrow_and_update() == Order::Leave {
                        stand.leaving_since.get_or_insert(clock.monotonic());
                    }
                }
                Some(ask) = channels.asks.recv() => self.answer(ask, &mut pending),
                received = channels.incoming.recv_many(&mut inbox, REPORTS_AT_ONCE), if room && stand.hearing => {
                    stand.hearing = received > 0;
                    self.hear(&mut inbox, &mut stand.seen);
                }
                Some(said) = channels.said.recv() => match said {
                    Said::Fenced => return Ending::Fenced,
                    Said::Settled { through, came } => {
                        stand.settling_since = None;
                        pending.written();
                        channels.settled.send_replace(through);
                        came.iter().for_each(|session| self.desk.written(session));
                    }
                },
                Some(back) = channels.back.recv() => self.take_back(back),
                Some(found) = channels.found.recv() => self.compare(found, &mut pending, &channels.errands),
                () = clock.sleep_until(stand.next_tick) => {
                    // Whoever spoke while we were away is heard before anybody is given up.
                    while stand.hearing && let Ok(incoming) = channels.incoming.try_recv() {
                        inbox.push(incoming);
                    }
                    self.tick(&mut stand, &mut inbox, room, &mut pending);
                }
            }
        }
    }

    fn tick(&mut self, stand: &mut Stand, inbox: &mut Vec<Incoming>, room: bool, pending: &mut Pending) {
        self.hear(inbox, &mut stand.seen);
        let now = self.now();
        let (elapsed, late) = (now.mono.since(stand.last_tick), now.mono.since(stand.next_tick));
        if self.broker.reachable().is_err() {
            stand.away = Some(now.mono);
        }
        let stuck = !room
            || stand.settling_since.is_some_and(|since| now.mono.since(since) > DEAF)
            || stand.away.is_some_and(|last| now.mono.since(last) < COMING_BACK);
        if stuck || late > DEAF {
            self.desk.forgive(elapsed);
        }
        stand.last_tick = now.mono;
        self.desk.tick(now);
        stand.next_tick = now.mono.plus(self.pause(now));
        let check = if self.desk.is_in_doubt() { CHECK_DOUBTED } else { CHECK_OVERDUE };
        // While reports are left lying, what seems lost may lie there.
        if !stuck && now.mono.since(stand.last_check) >= check {
            stand.last_check = now.mono;
            self.look_for_lost_parcels(pending, now);
            self.show_depths();
        }
        if now.mono.since(stand.last_round) >= COMPARE {
            pending.compare_soon = true;
        }
        if stand.leaving_since.is_some_and(|since| now.mono.since(since) > LAST_WORDS) {
            stand.hearing = false;
        }
    }
}
