//! Tasks and the workers that run them.

use super::{Doing, Event, Inner, Task};
use crate::experiments::arrebol::trace::Arrival;

impl Inner {
    /// All that come at this moment, and when the next will.
    pub(super) fn arrive(&mut self, first: usize) {
        let arrivals = self.arrivals.clone();
        let at_ms = arrivals[first].at_ms;
        let here = arrivals[first..].iter().take_while(|arrival| arrival.at_ms == at_ms);
        let mut next = first;
        for Arrival { shape, takes_ms, .. } in here {
            let task = Task { came_ms: at_ms, takes_ms: *takes_ms, again: false };
            self.lines[*shape].ready.push_back(task);
            next += 1;
        }
        let shapes: std::collections::BTreeSet<usize> = arrivals[first..next].iter().map(|a| a.shape).collect();
        shapes.into_iter().for_each(|shape| self.hand_out(shape, at_ms));
        self.stirred = true;
        if let Some(arrival) = arrivals.get(next) {
            self.later(arrival.at_ms, Event::Arrive(next));
        }
    }

    pub(super) fn worker_up(&mut self, worker: u32, at_ms: u64) {
        let Some(known) = self.workers.get_mut(&worker) else { return };
        known.doing = Doing::Idle { since_ms: at_ms };
        let (queue, told) = (known.queue, known.told);
        self.lines[queue].alive.insert(worker);
        if !told {
            self.lines[queue].idle.insert((at_ms, worker));
        }
        self.stirred = true;
        self.hand_out(queue, at_ms);
    }

    pub(super) fn task_ends(&mut self, worker: u32, run: u32, at_ms: u64) {
        let Some(known) = self.workers.get_mut(&worker).filter(|known| known.runs == run) else { return };
        known.doing = Doing::Idle { since_ms: at_ms };
        let (queue, told) = (known.queue, known.told);
        let line = &mut self.lines[queue];
        line.running -= 1;
        line.ended += 1;
        self.outcome.ended += 1;
        if told {
            self.stirred = true;
        } else {
            line.idle.insert((at_ms, worker));
            self.hand_out(queue, at_ms);
        }
    }

    pub(super) fn hand_out(&mut self, queue: usize, at_ms: u64) {
        let line = &mut self.lines[queue];
        while let Some((since_ms, worker)) = line.idle.first().copied()
            && let Some(task) = line.ready.pop_front()
        {
            line.idle.remove(&(since_ms, worker));
            line.running += 1;
            if !task.again {
                self.outcome.waits_ms.push(u32::try_from(at_ms - task.came_ms).unwrap_or(u32::MAX));
            }
            let known = self.workers.get_mut(&worker).expect("whoever is idle is there");
            known.doing = Doing::Busy { task, since_ms: at_ms };
            known.runs += 1;
            self.events.push(std::cmp::Reverse((at_ms + task.takes_ms, Event::TaskEnds(worker, known.runs))));
        }
    }

    /// A process that ends, with what it had in hand: that is begun again, first of all.
    pub(super) fn worker_gone(&mut self, worker: u32, at_ms: u64) -> bool {
        let Some(known) = self.workers.remove(&worker) else { return false };
        let line = &mut self.lines[known.queue];
        line.alive.remove(&worker);
        line.idle.retain(|(_, idle)| *idle != worker);
        self.outcome.worker_stops += 1;
        let Doing::Busy { task, since_ms } = known.doing else { return false };
        line.running -= 1;
        line.ready.push_front(Task { again: true, ..task });
        self.outcome.again += 1;
        self.outcome.thrown_away_ms += at_ms - since_ms;
        self.hand_out(known.queue, at_ms);
        true
    }
}
