//! What a work queue does, without locks, waits or wake-ups: a state and its transitions. [`super::work`] puts it behind
//! the trait.
//!
//! One invariant carries the ordering promise: `ready` is always in the order of publication. Deliveries leave at the
//! front, new messages join at the back, and what comes back is merged in by its sequence number.

#[cfg(test)]
mod model;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::memory::Limits;
use crate::takers::Takers;
use crate::{Counts, DeadLetter, Delivery, Letters};

/// A consumer, as the queue knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemberId(u64);

/// Characters of a rejection's reason that are kept.
const REASON_CHARS_MAX: usize = 1_000;

#[derive(Debug)]
struct Waiting {
    seq: u64,
    body: Bytes,
    redelivered: bool,
}

#[derive(Debug)]
struct Held {
    tag: u64,
    message: Waiting,
}

#[derive(Debug)]
struct Member {
    credit: usize,
    last_tag: u64,
    /// Unacknowledged, by growing tag; sequence numbers grow with it but for what was redelivered.
    held: VecDeque<Held>,
    /// How many of `held`, from the front, its owner has seen.
    seen: usize,
    /// Stands in `turns`.
    in_turn: Turn,
}

#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Waits,
    /// Its credit is used up.
    Out,
}

/// No room for the batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoRoom {
    pub bound: usize,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    takers: Takers,
    ready: VecDeque<Waiting>,
    members: BTreeMap<MemberId, Member>,
    /// Members with credit to spare, the next to be served first.
    turns: VecDeque<MemberId>,
    unacked: usize,
    /// Ready and unacknowledged together.
    bytes: usize,
    dead: VecDeque<DeadLetter>,
    dead_bytes: usize,
    last_seq: u64,
    last_member: u64,
}

impl Queue {
    pub fn of(takers: Takers) -> Self {
        Self { takers, ..Self::default() }
    }

    /// Takes the whole batch or none of it.
    pub fn publish(&mut self, batch: Vec<Bytes>, limits: &Limits) -> Result<(), NoRoom> {
        let held = self.ready.len() + self.unacked;
        let bytes: usize = batch.iter().map(Bytes::len).sum();
        if held + batch.len() > limits.queue_messages_max {
            return Err(NoRoom { bound: limits.queue_messages_max });
        }
        // One message always fits an empty queue, whatever its bytes: otherwise it could never be sent.
        if self.bytes + bytes > limits.queue_bytes_max && held + batch.len() > 1 {
            return Err(NoRoom { bound: held });
        }
        self.bytes += bytes;
        for body in batch {
            self.last_seq += 1;
            self.ready.push_back(Waiting { seq: self.last_seq, body, redelivered: false });
        }
        Ok(())
    }

    pub fn join(&mut self, credit: u32) -> MemberId {
        self.last_member += 1;
        let id = MemberId(self.last_member);
        let member =
            Member { credit: credit as usize, last_tag: 0, held: VecDeque::new(), seen: 0, in_turn: Turn::Waits };
        self.members.insert(id, member);
        self.turns.push_back(id);
        id
    }

    /// Hands ready messages to members with credit, in turn, one each. Returns those who now have something new and had
    /// nothing new before: they are to be woken.
    pub fn deal(&mut self) -> Vec<MemberId> {
        let mut woken = Vec::new();
        while !self.ready.is_empty() {
            let Some(id) = self.next_in_turn() else { break };
            let Some(member) = self.members.get_mut(&id) else { continue };
            let Some(message) = self.ready.pop_front() else { break };
            if member.seen == member.held.len() {
                woken.push(id);
            }
            member.last_tag += 1;
            member.held.push_back(Held { tag: member.last_tag, message });
            self.unacked += 1;
            if member.held.len() < member.credit {
                self.turns.push_back(id);
            } else {
                member.in_turn = Turn::Out;
            }
        }
        woken
    }

    fn next_in_turn(&mut self) -> Option<MemberId> {
        match self.takers {
            Takers::Many => self.turns.pop_front(),
            Takers::OneAtATime => {
                let first = *self.members.keys().next()?;
                let at = self.turns.iter().position(|id| *id == first)?;
                self.turns.remove(at)
            }
        }
    }

    /// What was dealt to a member and it has not seen yet.
    pub fn take(&mut self, id: MemberId) -> Vec<Delivery> {
        let Some(member) = self.members.get_mut(&id) else { return Vec::new() };
        let unseen = member.held.range(member.seen..);
        let taken = unseen
            .map(|held| Delivery {
                tag: held.tag,
                body: held.message.body.clone(),
                redelivered: held.message.redelivered,
            })
            .collect();
        member.seen = member.held.len();
        taken
    }

    /// Only what the member has seen can be acknowledged: a wild tag loses nothing.
    pub fn ack_through(&mut self, id: MemberId, tag: u64) {
        let Some(member) = self.members.get_mut(&id) else { return };
        while member.seen > 0 && member.held.front().is_some_and(|held| held.tag <= tag) {
            if let Some(held) = member.held.pop_front() {
                self.bytes -= held.message.body.len();
                self.unacked -= 1;
                member.seen -= 1;
            }
        }
        self.rejoin(id);
    }

    pub fn ack_each(&mut self, id: MemberId, tags: &[u64]) {
        for tag in tags {
            self.settle(id, *tag);
        }
        self.rejoin(id);
    }

    pub fn reject(&mut self, id: MemberId, tag: u64, reason: &str, limits: &Limits) {
        let Some(message) = self.settle(id, tag) else { return };
        self.bury(&message.body, reason, limits);
        self.rejoin(id);
    }

    /// Takes one off a member that has seen it.
    fn settle(&mut self, id: MemberId, tag: u64) -> Option<Waiting> {
        let member = self.members.get_mut(&id)?;
        let at = member.held.binary_search_by_key(&tag, |held| held.tag).ok().filter(|at| *at < member.seen)?;
        let held = member.held.remove(at)?;
        member.seen -= 1;
        self.unacked -= 1;
        self.bytes -= held.message.body.len();
        Some(held.message)
    }

    fn bury(&mut self, body: &Bytes, reason: &str, limits: &Limits) {
        // A copy: the body may be a slice of a far larger buffer, which a dead letter would keep for days.
        let body = Bytes::copy_from_slice(body);
        self.dead_bytes += body.len();
        self.dead.push_back(DeadLetter { body, reason: reason.chars().take(REASON_CHARS_MAX).collect() });
        while self.dead.len() > limits.dead_letters_max || self.dead_bytes > limits.dead_bytes_max {
            let Some(oldest) = self.dead.pop_front() else { break };
            self.dead_bytes -= oldest.body.len();
        }
    }

    /// A member with credit again gets its place in the round.
    fn rejoin(&mut self, id: MemberId) {
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.in_turn == Turn::Out && member.held.len() < member.credit {
            member.in_turn = Turn::Waits;
            self.turns.push_back(id);
        }
    }

    /// The member is gone; what it held returns to where it was in the order.
    pub fn leave(&mut self, id: MemberId) {
        let Some(member) = self.members.remove(&id) else { return };
        self.turns.retain(|turn| *turn != id);
        self.put_back(member.held);
    }

    /// The member gets nothing more, and what came to it after `seen` returns to where it was in the order.
    pub fn retire(&mut self, id: MemberId, seen: u64) {
        let Some(member) = self.members.get_mut(&id) else { return };
        (member.credit, member.in_turn) = (0, Turn::Out);
        let kept = member.held.partition_point(|held| held.tag <= seen);
        let back = member.held.split_off(kept);
        member.seen = member.seen.min(kept);
        self.turns.retain(|turn| *turn != id);
        self.put_back(back);
    }

    fn put_back(&mut self, held: VecDeque<Held>) {
        self.unacked -= held.len();
        let mut back: Vec<Waiting> =
            held.into_iter().map(|held| Waiting { redelivered: true, ..held.message }).collect();
        back.sort_unstable_by_key(|waiting| waiting.seq);
        let Some(last) = back.last().map(|waiting| waiting.seq) else { return };
        // Only what is ahead of the last one returned can have to be interleaved with it.
        let ahead = self.ready.partition_point(|waiting| waiting.seq < last);
        back.extend(self.ready.drain(..ahead));
        back.sort_unstable_by_key(|waiting| waiting.seq);
        for waiting in back.into_iter().rev() {
            self.ready.push_front(waiting);
        }
    }

    pub fn counts(&self) -> Counts {
        Counts {
            ready: self.ready.len() as u64,
            unacked: self.unacked as u64,
            dead: self.dead.len() as u64,
            consumers: self.members.values().filter(|member| member.credit > 0).count() as u64,
        }
    }

    pub fn dead_letters(&self, limit: u32) -> Vec<DeadLetter> {
        self.dead.iter().take(limit as usize).cloned().collect()
    }

    pub fn remove_dead_letters(&mut self, which: &Letters) -> u64 {
        let before = self.dead.len();
        self.dead.retain(|letter| !which.has(letter));
        self.dead_bytes = self.dead.iter().map(|letter| letter.body.len()).sum();
        (before - self.dead.len()) as u64
    }
}
