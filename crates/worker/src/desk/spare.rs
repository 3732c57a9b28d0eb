//! What may wait here for its turn: nothing that an idle neighbour could run. A worker takes when something could begin at
//! once, or when tasks end so quickly that what waits begins within a moment ([`Pace`]). What has waited in vain all the
//! same goes back to the manager, to be handed to whoever is free.

use std::time::Duration;

use mutirao_core::task::Needs;
use mutirao_core::{Mono, Outcome, Timestamp, Verdict};

use super::pace::Pace;
use super::{Desk, Task, Unpacked};
use crate::room;

/// How long more may wait here than will soon begin.
const CROWDED_MAX: Duration = Duration::from_millis(300);
/// What waits is not given back if it begins within this many windows of the pace: parcels come in lumps.
const WINDOWS_KEPT: usize = 3;
/// How long whoever gave something back takes nothing, while that would still not fit: it would be brought the same again.
const TURNED_DOWN_FOR: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct Spare {
    pub pace: Pace,
    /// More has waited here than the pace allows since then.
    crowded_since: Option<Mono>,
    /// What was given back last, and when.
    turned_down: Option<(Needs, Mono)>,
    /// What the last task that came takes.
    usual: Option<Needs>,
}

impl Spare {
    pub fn came(&mut self, task: &Task) {
        self.usual = Some(task.takes());
    }

    /// Whether another parcel may be taken when so many wait and this is free.
    fn has_place(&mut self, waiting: usize, free: Needs, mono: Mono) -> bool {
        waiting < self.pace.waiting_max(mono) || (waiting == 0 && self.could_begin(free, mono))
    }

    /// Whether the next task that comes is likely to begin at once.
    fn could_begin(&self, free: Needs, mono: Mono) -> bool {
        let lately = |at: Mono| mono.since(at) < TURNED_DOWN_FOR;
        if self.turned_down.is_some_and(|(needs, at)| lately(at) && !room::fits(needs, free)) {
            return false;
        }
        free.cpus.milli > 0 || self.usual.is_some_and(|usual| usual.cpus.milli == 0)
    }
}

impl Desk {
    pub fn has_room(&mut self, mono: Mono) -> bool {
        self.may_start() && !self.draining && self.spare.has_place(self.waiting.len(), self.free, mono)
    }

    /// How many of these parcels, in this order, there is room for.
    pub fn room_for<'a>(&mut self, parcels: impl IntoIterator<Item = &'a Unpacked>, mono: Mono) -> usize {
        if !self.may_start() || self.draining {
            return 0;
        }
        let (mut free, mut waiting, mut taken) = (self.free, self.waiting.len(), 0);
        for parcel in parcels {
            if !self.spare.has_place(waiting, free, mono) {
                break;
            }
            for takes in parcel.tasks.iter().map(Task::takes) {
                match room::fits(takes, free) {
                    true => free = room::less(free, takes),
                    false => waiting += 1,
                }
            }
            taken += 1;
        }
        taken
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    #[cfg(feature = "sim")]
    pub fn first_waiting(&self) -> Option<(super::Try, Needs)> {
        self.waiting.iter().next().map(|task| (task.id(), task.takes()))
    }

    /// Gives back what has waited in vain. To be called again and again while anything waits.
    pub fn give_back(&mut self, now: Timestamp, mono: Mono) {
        let keep = WINDOWS_KEPT * self.spare.pace.waiting_max(mono);
        // While reports cannot leave, nobody would hear of it, and the neighbours fare no better.
        if self.waiting.len() <= keep || !self.may_report() {
            self.spare.crowded_since = None;
        } else if mono.since(*self.spare.crowded_since.get_or_insert(mono)) >= CROWDED_MAX {
            self.spare.crowded_since = None;
            let back = self.waiting.beyond(keep);
            self.spare.turned_down = back.first().map(|task| (task.takes(), mono));
            for task in back {
                self.end_unstarted(task, Outcome::new(Verdict::Returned, now));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mutirao_core::SessionId;
    use mutirao_core::task::{Action, TaskSpec};
    use mutirao_core::{WorkerId, quantity::Bytes, quantity::Cpus};

    use super::super::tests::{exec, parcel, parcel_of, verdicts};
    use super::*;
    use crate::config::Limits;

    fn desk(cpus: u32) -> Desk {
        let capacity = Needs { cpus: Cpus { milli: 1_000 * cpus }, memory: Bytes(1 << 30) };
        Desk::new(capacity, Limits::default(), SessionId("s".into()), WorkerId("w".into()))
    }

    fn at(ms: u64) -> Mono {
        Mono(Duration::from_millis(10_000 + ms))
    }

    fn start(desk: &mut Desk, mono: Mono) -> usize {
        std::iter::from_fn(|| desk.next(Timestamp(0), mono)).count()
    }

    #[test]
    fn whoever_is_busy_with_a_slow_task_takes_no_other() {
        let mut desk = desk(1);
        assert!(desk.has_room(at(0)));
        let parcels = [1, 2].map(|n| parcel(n, n, exec(), 1));
        assert_eq!(desk.room_for(&parcels, at(0)), 1, "the other is for somebody else");
        let [first, _] = parcels;
        desk.accept(first, Timestamp(0));
        assert_eq!(start(&mut desk, at(0)), 1);
        assert!(!desk.has_room(at(0)) && !desk.has_room(at(60_000)));
    }

    #[test]
    fn whoever_ends_tasks_quickly_has_the_next_at_hand() {
        let mut desk = desk(1);
        desk.spare.pace.ended(10, at(0));
        let parcels = [1, 2, 3].map(|n| parcel(n, n, exec(), 6));
        assert_eq!(desk.room_for(&parcels, at(50)), 2, "one begins, about ten wait for a moment");
    }

    #[test]
    fn what_waits_behind_slow_tasks_is_given_back_within_a_moment() {
        let mut desk = desk(2);
        desk.accept(parcel(1, 1, exec(), 50), Timestamp(0));
        assert_eq!(start(&mut desk, at(0)), 2);
        for ms in [0, 100, 200] {
            desk.give_back(Timestamp(0), at(ms));
        }
        assert_eq!(desk.held_count(), 50, "a moment's crowding is no matter");
        desk.give_back(Timestamp(0), at(300));
        assert_eq!(verdicts(&mut desk), vec![Verdict::Returned; 48]);
        assert_eq!(desk.held_count(), 2);
    }

    #[test]
    fn a_lump_that_begins_soon_is_kept() {
        let mut desk = desk(1);
        desk.accept(parcel(1, 1, exec(), 25), Timestamp(0));
        for ms in (0..1_000).step_by(10) {
            if ms % 100 == 0 {
                desk.give_back(Timestamp(0), at(ms));
            }
            desk.spare.pace.ended(1, at(ms));
        }
        assert_eq!(desk.held_count(), 25);
    }

    #[test]
    fn what_was_too_big_for_what_is_free_is_not_taken_again_at_once() {
        let mut desk = desk(2);
        desk.accept(parcel(1, 1, exec(), 1), Timestamp(0));
        let mut spec = TaskSpec::new(exec());
        spec.needs.cpus = Cpus { milli: 2_000 };
        desk.accept(parcel_of(2, 2, spec, 1), Timestamp(0));
        assert_eq!(start(&mut desk, at(0)), 1);
        for ms in [0, 300] {
            desk.give_back(Timestamp(0), at(ms));
        }
        assert_eq!(verdicts(&mut desk), [Verdict::Returned]);
        assert!(!desk.has_room(at(400)), "half of it is free, and the same would come again");
        assert!(desk.has_room(at(3_000)), "what waits now may be smaller");
    }

    #[test]
    fn tasks_that_take_no_cpu_are_taken_by_whoever_runs_others_of_their_kind() {
        let mut desk = desk(1);
        desk.accept(parcel(1, 1, exec(), 1), Timestamp(0));
        let mut spec = TaskSpec::new(exec());
        spec.needs.cpus = Cpus { milli: 0 };
        desk.accept(parcel_of(2, 2, spec, 1), Timestamp(0));
        assert_eq!(start(&mut desk, at(0)), 2);
        assert!(desk.has_room(at(0)));
    }

    #[test]
    fn nothing_is_given_back_while_reports_cannot_leave() {
        let mut desk = desk(1);
        desk.limits.outbox_reports_max = 10;
        desk.accept(parcel(1, 1, Action::Noop {}, 50), Timestamp(0));
        assert_eq!(start(&mut desk, at(0)), 0);
        for ms in [0, 300, 600] {
            desk.give_back(Timestamp(0), at(500 + ms));
        }
        assert_eq!(verdicts(&mut desk), vec![Verdict::Ok; 9]);
    }
}
