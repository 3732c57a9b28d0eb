//! Reports on their way from the broker to the foreman, and their acknowledgement. A tag means nothing without its consumer.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use mutirao_core::envelope::Reports;
use mutirao_core::id::TaskKey;
use mutirao_jobs::reports::{CREDIT, Mark};
use mutirao_shards::ShardId;

use super::super::super::flaw::Flaw;
use super::super::super::wire::{Name, ToBroker};
use super::Hands;

pub struct Intake {
    shard: ShardId,
    consumer: Option<u64>,
    inbox: VecDeque<(Mark, Rc<Reports>)>,
    /// What each report that is not acknowledged ended.
    ends: BTreeMap<u64, Vec<TaskKey>>,
}

impl Intake {
    pub fn new(shard: ShardId) -> Self {
        Self { shard, consumer: None, inbox: VecDeque::new(), ends: BTreeMap::new() }
    }

    pub fn consumer(&self) -> Option<u64> {
        self.consumer
    }

    pub fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    pub fn connect(&mut self, h: &mut Hands<'_>) {
        if h.link.is_up() {
            let consumer = h.link.number();
            self.consumer = Some(consumer);
            self.ends.clear();
            let from = Name::Results(self.shard);
            h.link.send(ToBroker::Consume { from, consumer, credit: CREDIT as usize }, h.ground);
        }
    }

    /// What had come is heard all the same; it comes again, too.
    pub fn disconnected(&mut self) {
        self.consumer = None;
        self.ends.clear();
    }

    pub fn close(&mut self, h: &mut Hands<'_>) {
        if let Some(consumer) = self.consumer.take() {
            h.link.send(ToBroker::Cancel { consumer }, h.ground);
        }
    }

    pub fn arrived(&mut self, tag: u64, reports: Rc<Reports>) {
        if let Some(consumer) = self.consumer {
            self.inbox.push_back((Mark { consumer, tag }, reports));
        }
    }

    pub fn next(&mut self) -> Option<(Mark, Rc<Reports>)> {
        self.inbox.pop_front()
    }

    pub fn heard(&mut self, mark: Mark, ended: Vec<TaskKey>, h: &mut Hands<'_>) {
        if self.consumer == Some(mark.consumer) {
            self.ends.insert(mark.tag, ended);
        }
        if h.ground.has(Flaw::AcksBeforeSettling) {
            self.acknowledge(mark, h);
        }
    }

    pub fn acknowledge(&mut self, mark: Mark, h: &mut Hands<'_>) {
        let Some(consumer) = self.consumer.filter(|consumer| *consumer == mark.consumer) else { return };
        let later = self.ends.split_off(&(mark.tag + 1));
        for ended in std::mem::replace(&mut self.ends, later).into_values() {
            h.ground.oracle.acknowledged(h.me, &ended);
        }
        h.link.send(ToBroker::Ack { consumer, through: mark.tag }, h.ground);
    }
}
