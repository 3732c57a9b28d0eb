//! Writing what an owner decided, one settlement after the other, each until it is written; and acknowledging reports once
//! what came of them is. Where reports are consumed is kept here too: a tag means nothing without its consumer.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::id::{JobKey, TaskKey};
use mutirao_jobs::desk::{Again, Desk, Ended, SessionChange};
use mutirao_jobs::store::Settlement;
use mutirao_shards::ShardId;

use super::super::super::flaw::Flaw;
use super::super::super::wire::{Answer, Name, NoAnswer, Question, ToBroker};
use super::super::Purpose;
use super::{CREDIT, Hands, Turn};

const SETTLE_PAUSE: Duration = Duration::from_millis(500);

struct Writing {
    settlement: Rc<Settlement>,
    /// Reports up to here may be acknowledged when it is written, by this consumer.
    through: (Option<u64>, u64),
    since: Mono,
    call: Option<u64>,
    again_at: Mono,
}

pub struct Settling {
    shard: ShardId,
    generation: u64,
    pending: Settlement,
    /// Jobs that are over, with ends in `pending`, and with ends in what is being written.
    closed: Vec<JobKey>,
    closed_in_writing: Vec<JobKey>,
    writing: Option<Writing>,
    trouble: bool,
    consumer: Option<u64>,
    seen: u64,
    acknowledged: u64,
    /// What each report that is not acknowledged ended.
    ends: BTreeMap<u64, Vec<TaskKey>>,
}

impl Settling {
    pub fn new(shard: ShardId, generation: u64) -> Self {
        Self {
            shard,
            generation,
            pending: Settlement::default(),
            closed: Vec::new(),
            closed_in_writing: Vec::new(),
            writing: None,
            trouble: false,
            consumer: None,
            seen: 0,
            acknowledged: 0,
            ends: BTreeMap::new(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.pending.is_empty() && self.writing.is_none()
    }

    pub fn is_in_trouble(&self) -> bool {
        self.trouble
    }

    pub fn is_stuck(&self, now: Mono, for_: Duration) -> bool {
        self.writing.as_ref().is_some_and(|writing| now.since(writing.since) > for_)
    }

    pub fn consumer(&self) -> Option<u64> {
        self.consumer
    }

    pub fn add(&mut self, ended: Vec<Ended>, late: Vec<Ended>, again: Vec<Again>, sessions: Vec<SessionChange>) {
        self.pending.ended.extend(ended);
        self.pending.late.extend(late);
        self.pending.again.extend(again);
        self.pending.sessions.extend(sessions);
    }

    pub fn closed(&mut self, job: JobKey) {
        self.closed.push(job);
    }

    /// Jobs that are over and that the store may not know to be.
    pub fn unwritten(&self) -> impl Iterator<Item = JobKey> + '_ {
        self.closed.iter().chain(&self.closed_in_writing).copied()
    }

    pub fn connect(&mut self, h: &mut Hands<'_>) {
        if h.link.is_up() {
            let consumer = h.link.number();
            (self.consumer, self.seen, self.acknowledged) = (Some(consumer), 0, 0);
            self.ends.clear();
            let from = Name::Results(self.shard);
            h.link.send(ToBroker::Consume { from, consumer, credit: CREDIT }, h.ground);
        }
    }

    pub fn disconnect(&mut self, h: &mut Hands<'_>) {
        if let Some(consumer) = self.consumer {
            h.link.send(ToBroker::Cancel { consumer }, h.ground);
        }
        self.disconnected();
    }

    pub fn disconnected(&mut self) {
        self.consumer = None;
        self.ends.clear();
    }

    pub fn heard(&mut self, tag: u64, ended: Vec<TaskKey>, h: &mut Hands<'_>) {
        self.seen = tag;
        self.ends.insert(tag, ended);
        if h.ground.has(Flaw::AcksBeforeSettling) {
            self.acknowledge(self.consumer, tag, h);
        }
    }

    fn acknowledge(&mut self, consumer: Option<u64>, through: u64, h: &mut Hands<'_>) {
        let Some(consumer) = self.consumer.filter(|_| consumer == self.consumer) else { return };
        if through <= self.acknowledged {
            return;
        }
        self.acknowledged = through;
        let later = self.ends.split_off(&(through + 1));
        for ended in std::mem::replace(&mut self.ends, later).into_values() {
            h.ground.oracle.acknowledged(h.me, &ended);
        }
        h.link.send(ToBroker::Ack { consumer, through }, h.ground);
    }

    /// Sends off what is to be written, or acknowledges when there is nothing.
    pub fn go_on(&mut self, h: &mut Hands<'_>) {
        if self.writing.is_none() {
            if self.pending.is_empty() {
                self.acknowledge(self.consumer, self.seen, h);
                return;
            }
            self.pending.at = h.now.wall;
            let settlement = Rc::new(std::mem::take(&mut self.pending));
            self.closed_in_writing = std::mem::take(&mut self.closed);
            let through = (self.consumer, self.seen);
            let now = h.now.mono;
            self.writing = Some(Writing { settlement, through, since: now, call: None, again_at: now });
        }
        if let Some(writing) = self.writing.as_mut().filter(|w| w.call.is_none() && h.now.mono >= w.again_at) {
            let question = Question::Settle {
                member: h.me.clone(),
                shard: self.shard,
                generation: self.generation,
                settlement: writing.settlement.clone(),
            };
            writing.call = Some(h.ask_store(Purpose::Settle(self.shard), question));
        }
    }

    pub fn answered(
        &mut self,
        call: u64,
        answer: Result<Answer, NoAnswer>,
        desk: &mut Desk,
        h: &mut Hands<'_>,
    ) -> Turn {
        let Some(mut writing) = self.writing.take_if(|writing| writing.call == Some(call)) else { return Turn::Stay };
        match answer {
            Ok(Answer::Fenced) => return Turn::Drop,
            Ok(_) => {
                self.trouble = false;
                self.closed_in_writing.clear();
                self.acknowledge(writing.through.0, writing.through.1, h);
                for change in &writing.settlement.sessions {
                    if let SessionChange::Came(session, ..) = change {
                        desk.written(session);
                    }
                }
            }
            Err(NoAnswer) if h.ground.has(Flaw::GivesUpSettling) => {}
            Err(NoAnswer) => {
                self.trouble = true;
                writing.call = None;
                writing.again_at = h.now.mono.plus(SETTLE_PAUSE);
                self.writing = Some(writing);
            }
        }
        Turn::Stay
    }
}
