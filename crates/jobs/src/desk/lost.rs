//! Parcels that were given up, remembered for a while: a worker may have them after all, and its word be late. What it says
//! of their tasks then counts as if nobody had given up.

use std::collections::VecDeque;

use mutirao_core::envelope::ParcelId;

use super::maps::Map;
use super::parcels::From;
use super::{Desk, Posted};

/// Past it the oldest are forgotten, and what comes of them does not count.
const LOST_MAX: usize = 1_024;

#[derive(Default)]
pub(super) struct Lost {
    parcels: Map<ParcelId, Posted>,
    order: VecDeque<ParcelId>,
}

impl Lost {
    pub fn remember(&mut self, parcel: ParcelId, posted: Posted) {
        if self.parcels.insert(parcel, posted).is_none() {
            self.order.push_back(parcel);
        }
        if self.order.len() > LOST_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.parcels.remove(&oldest);
        }
    }
}

impl Desk {
    /// A session has a parcel that is not on its way: either it has said so before, or the parcel was given up.
    pub(super) fn taken_after_all(&mut self, from: From<'_>, parcel: ParcelId) {
        if !self.lost.parcels.get(&parcel).is_some_and(|posted| from.may_take(posted)) {
            return;
        }
        let Some(posted) = self.lost.parcels.remove(&parcel) else { return };
        for pick in posted.picks() {
            self.sessions.had(from.session, pick.task, pick.attempt);
            if !self.is_open(pick.task) {
                self.effects.stop.push((posted.queue().clone(), *pick));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mutirao_core::envelope::{Beat, Done, Reports};
    use mutirao_core::id::{JobKey, QueueName, SessionId, WorkerId};
    use mutirao_core::life::Final;
    use mutirao_core::outcome::{Outcome, Verdict};
    use mutirao_core::quantity::{Bytes, Cpus};
    use mutirao_core::task::{Needs, Retry};
    use mutirao_core::{Mono, Timestamp};

    use super::super::ledger::Ledger;
    use super::super::{Handed, Now};
    use super::*;

    fn says(session: &str) -> Reports {
        Reports::new(SessionId(session.into()), WorkerId("w".into()))
    }

    fn beat(session: &str, queue: &str) -> Reports {
        let beat = Beat {
            queue: queue.parse().unwrap(),
            host: "h".into(),
            pid: 7,
            capacity: Needs { cpus: Cpus { milli: 4_000 }, memory: Bytes(0) },
            draining: false,
            leaving: false,
            held: Vec::new(),
        };
        Reports { beat: Some(beat), ..says(session) }
    }

    fn ok(session: &str, parcel: &Handed, now: Now) -> Reports {
        let pick = parcel.picks[0];
        let outcome = Outcome::new(Verdict::Ok, now.wall);
        let done = vec![Done { task: pick.task, attempt: pick.attempt, trace: String::new(), outcome }];
        Reports { taken: vec![parcel.id], done, ..says(session) }
    }

    /// A desk with one task on its way to the worker of its queue, and the worker of another queue.
    fn one_on_its_way() -> (Desk, Handed, Now) {
        let now = Now { wall: Timestamp(1_000_000), mono: Mono(Duration::from_secs(1_000)) };
        let mut desk = Desk::new(1, Duration::from_secs(10), 1);
        desk.admit(JobKey(1), Ledger::new(QueueName::default(), 1, 1, Retry::default(), Needs::default()));
        for (session, queue) in [("s", "default"), ("stranger", "other")] {
            desk.report(beat(session, queue), now);
            desk.written(&SessionId(session.into()));
        }
        let parcel = desk.hand_out(now).remove(0);
        (desk, parcel, now)
    }

    fn ends(desk: &mut Desk) -> Vec<Final> {
        desk.effects().ended.iter().map(|ended| ended.how).collect()
    }

    #[test]
    fn an_ok_counts_though_the_word_that_its_parcel_was_taken_got_lost() {
        let (mut desk, parcel, now) = one_on_its_way();
        desk.report(ok("s", &parcel, now), now);
        assert_eq!(ends(&mut desk), [Final::Ok]);
    }

    #[test]
    fn an_ok_of_a_parcel_that_was_given_up_counts() {
        let (mut desk, parcel, now) = one_on_its_way();
        desk.unpost(parcel.id, now);
        let again = desk.hand_out(now).remove(0);
        assert_eq!((again.picks[0].task, ends(&mut desk)), (parcel.picks[0].task, vec![]));
        desk.report(ok("s", &parcel, now), now);
        assert_eq!(ends(&mut desk), [Final::Ok], "the broker had it after all");
    }

    #[test]
    fn nobody_takes_a_parcel_of_another_queue() {
        let (mut desk, parcel, now) = one_on_its_way();
        desk.report(ok("stranger", &parcel, now), now);
        desk.unpost(parcel.id, now);
        desk.report(ok("stranger", &parcel, now), now);
        assert_eq!(ends(&mut desk), []);
        desk.report(ok("s", &parcel, now), now);
        assert_eq!(ends(&mut desk), [Final::Ok]);
    }

    #[test]
    fn who_was_never_heard_takes_a_parcel_only_with_a_beat_of_its_queue() {
        let (mut desk, parcel, now) = one_on_its_way();
        desk.report(ok("unheard", &parcel, now), now);
        assert_eq!(ends(&mut desk), [], "whose tasks it takes is not known");
        let of_other = Reports { beat: beat("unheard", "other").beat, ..ok("unheard", &parcel, now) };
        desk.report(of_other, now);
        assert_eq!(ends(&mut desk), []);
        let of_queue = Reports { beat: beat("newcomer", "default").beat, ..ok("newcomer", &parcel, now) };
        desk.report(of_queue, now);
        assert_eq!(ends(&mut desk), [Final::Ok]);
    }

    #[test]
    fn who_was_silent_for_a_lease_may_still_say_what_it_takes() {
        let (mut desk, parcel, now) = one_on_its_way();
        desk.bury(&WorkerId("w".into()), 7, now);
        assert_eq!(desk.sessions().count(), 0);
        desk.report(ok("stranger", &parcel, now), now);
        assert_eq!(ends(&mut desk), [], "that is not its queue");
        desk.report(ok("s", &parcel, now), now);
        assert_eq!(ends(&mut desk), [Final::Ok]);
    }

    #[test]
    fn parcels_that_nobody_ever_takes_do_not_pile_up() {
        let mut lost = Lost::default();
        for n in 0..3 * LOST_MAX as u64 {
            let posted = Posted::new(QueueName::default(), Vec::new(), Mono::default());
            lost.remember(ParcelId { generation: 1, n }, posted);
        }
        assert_eq!((lost.parcels.len(), lost.order.len()), (LOST_MAX, LOST_MAX));
    }
}
