//! How a replica gets from one host to another, and what becomes of it when its host is lost.

use super::actors::{Copy, Phase};
use super::setup::Moving;
use super::world::{Event, World};
use crate::round::Move;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The target is being made ready.
    SetUp,
    /// Stop and copy: the source does what came before. Live: the target catches up.
    Drains,
    /// The state is on its way.
    Copies,
    Over,
}

pub(super) struct Transfer {
    pub from: usize,
    /// The new copy, of a live move.
    to: Option<usize>,
    host: usize,
    step: Step,
}

impl Transfer {
    pub fn is_over(&self) -> bool {
        self.step == Step::Over
    }
}

impl World<'_> {
    pub fn begin(&mut self, one: &Move) {
        let Some(host) = (0..self.nodes.len()).find(|host| super::host_name(*host) == one.to) else { return };
        let mutirao_streams::wire::What::Stage(operator) = one.part.what else { return };
        let from = self.operators[operator as usize].replicas[one.part.replica as usize];
        self.outcome.moves += 1;
        self.transfers.push(Transfer { from, to: None, host, step: Step::SetUp });
        let transfer = self.transfers.len() - 1;
        match self.setup.moving {
            Moving::StopAndCopy { set_up_s, upstream_pause_s, .. } => {
                self.operators[operator as usize].quiet_until = self.now + super::world::nanos(upstream_pause_s);
                self.after(set_up_s, Event::Goes { transfer });
            }
            Moving::Live { set_up_s, bytes_per_s, .. } => {
                let state = self.setup.operators[operator as usize].state_bytes;
                self.after(set_up_s + state / bytes_per_s, Event::Goes { transfer });
            }
        }
    }

    pub fn goes(&mut self, transfer: usize) {
        let Transfer { from, host, step, .. } = self.transfers[transfer];
        if step == Step::Over {
            return;
        }
        let Copy { operator, replica, next, .. } = self.copies[from];
        match (self.setup.moving, step) {
            (Moving::StopAndCopy { .. }, Step::SetUp) => {
                self.transfers[transfer].step = Step::Drains;
                self.copies[from].phase = Phase::Until(self.operators[operator].log.len());
                self.stops(from);
            }
            (Moving::StopAndCopy { .. }, _) => {
                self.copies[from].phase = Phase::Gone;
                self.arrives(transfer, Copy::new(operator, replica, host, next, Phase::Serving));
            }
            (Moving::Live { .. }, _) => {
                // All replicas say the same, so any one's snapshot is good for all.
                let replicas = &self.operators[operator].replicas;
                let newest = replicas.iter().map(|copy| self.copies[*copy].snapshot).max().unwrap_or(0);
                let begin = match self.setup.operators[operator].state_bytes > 0.0 {
                    true => newest.min(next),
                    false => next,
                };
                self.copies.push(Copy::new(operator, replica, host, begin, Phase::Replaying));
                let to = self.copies.len() - 1;
                (self.transfers[transfer].to, self.transfers[transfer].step) = (Some(to), Step::Drains);
                self.offer(to);
                self.follows(to);
            }
        }
    }

    /// Stop and copy: a source that has done what it was to do stops, and its state goes.
    pub fn stops(&mut self, copy: usize) {
        let Phase::Until(row) = self.copies[copy].phase else { return };
        let Moving::StopAndCopy { bytes_per_s, pause_s, .. } = self.setup.moving else { return };
        if self.copies[copy].next < row || self.copies[copy].running > 0 {
            return;
        }
        self.copies[copy].phase = Phase::Stopped;
        if let Some(transfer) = self.under_way(|transfer| transfer.from == copy) {
            self.transfers[transfer].step = Step::Copies;
            let state = self.setup.operators[self.copies[copy].operator].state_bytes;
            self.after(state / bytes_per_s + pause_s, Event::Goes { transfer });
        }
    }

    /// Live: a target that has caught up takes over.
    pub fn follows(&mut self, copy: usize) {
        if self.copies[copy].phase != Phase::Replaying {
            return;
        }
        let Some(transfer) = self.under_way(|transfer| transfer.to == Some(copy)) else { return };
        let from = self.transfers[transfer].from;
        let cut = self.copies[from].next;
        if self.copies[copy].next < cut {
            return;
        }
        self.copies[from].phase = Phase::Gone;
        let Copy { operator, replica, .. } = self.copies[copy];
        (self.copies[copy].next, self.copies[copy].heard_from, self.copies[copy].snapshot) = (cut, cut, cut);
        self.copies[copy].phase = Phase::Stopped;
        self.operators[operator].replicas[replica] = copy;
        self.transfers[transfer].step = Step::Over;
        let Moving::Live { pause_s, .. } = self.setup.moving else { return };
        self.after(pause_s, Event::Resumes { copy });
    }

    pub fn offer_followers(&mut self, operator: usize) {
        let to = |transfer: &Transfer| transfer.to.filter(|_| !transfer.is_over());
        let followers: Vec<usize> = self.transfers.iter().filter_map(to).collect();
        for copy in followers {
            if self.copies[copy].operator == operator {
                self.offer(copy);
            }
        }
    }

    fn arrives(&mut self, transfer: usize, copy: Copy) {
        let (operator, replica) = (copy.operator, copy.replica);
        self.copies.push(copy);
        let copy = self.copies.len() - 1;
        self.operators[operator].replicas[replica] = copy;
        self.transfers[transfer].step = Step::Over;
        self.offer(copy);
    }

    /// Stop and copy: whether its state is on its way.
    pub fn is_copied(&self, copy: usize) -> bool {
        self.under_way(|transfer| transfer.from == copy && transfer.step == Step::Copies).is_some()
    }

    fn under_way(&self, is: impl Fn(&Transfer) -> bool) -> Option<usize> {
        self.transfers.iter().position(|transfer| !transfer.is_over() && is(transfer))
    }

    pub fn lost(&mut self, host: usize) {
        self.nodes[host].alive = false;
        for transfer in 0..self.transfers.len() {
            let Transfer { from, host: target, .. } = self.transfers[transfer];
            let gone = target == host || self.copies[from].host == host;
            if gone && !self.transfers[transfer].is_over() {
                self.transfers[transfer].step = Step::Over;
                self.outcome.failed += 1;
                // Whose target is lost goes on where it is; what a lost source sent is of no use without it.
                if matches!(self.copies[from].phase, Phase::Until(_) | Phase::Stopped) {
                    self.copies[from].phase = Phase::Serving;
                    self.offer(from);
                }
                if let Some(to) = self.transfers[transfer].to {
                    self.copies[to].phase = Phase::Gone;
                }
            }
        }
        self.copies.iter_mut().filter(|copy| copy.host == host).for_each(|copy| copy.phase = Phase::Gone);
    }

    /// Placement, not a mover, gives what was there a place: the host with the fewest parts that has no replica of it.
    pub fn found(&mut self, lost: usize) {
        for operator in 0..self.operators.len() {
            for replica in 0..self.operators[operator].replicas.len() {
                let old = self.operators[operator].replicas[replica];
                if self.copies[old].host != lost {
                    continue;
                }
                let of = |copies: &[usize]| copies.iter().map(|copy| self.copies[*copy].host).collect::<Vec<_>>();
                let taken = of(&self.operators[operator].replicas);
                let parts = |host: &usize| {
                    self.operators.iter().flat_map(|operator| of(&operator.replicas)).filter(|one| one == host).count()
                };
                let free = (0..self.nodes.len()).filter(|host| self.nodes[*host].alive && !taken.contains(host));
                let Some(host) = free.min_by_key(parts) else { continue };
                let (heard, begin) = (self.copies[old].next, self.copies[old].snapshot);
                let mut copy = Copy::new(operator, replica, host, begin, Phase::Serving);
                copy.heard_from = heard;
                self.copies.push(copy);
                let copy = self.copies.len() - 1;
                self.operators[operator].replicas[replica] = copy;
                self.offer(copy);
            }
        }
    }
}
