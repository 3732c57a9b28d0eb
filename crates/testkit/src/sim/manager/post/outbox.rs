//! From picks to parcels to the broker, and words to workers: one thing after the other, as the real dispatch does it.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::envelope::{Control, Handout, Parcel, ParcelId, Template, Version};
use mutirao_core::id::{JobKey, QueueName, TaskKey};
use mutirao_jobs::desk::{Desk, Handed};
use mutirao_shards::ShardId;

use super::super::super::wire::{Body, Definition, Name, ToBroker};
use super::Hands;

const OUTGOING_MAX: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub enum Outgoing {
    Parcels(QueueName, Vec<Handed>),
    Control(QueueName, Control),
    Look(QueueName),
}

/// A batch that is not confirmed yet.
struct Sending {
    confirm: u64,
    parcels: Vec<ParcelId>,
}

pub struct Outbox {
    shard: ShardId,
    waiting: VecDeque<Outgoing>,
    sending: Option<Sending>,
    looking: Option<(u64, QueueName)>,
    pause: Duration,
    rest_until: Mono,
}

impl Outbox {
    pub fn new(shard: ShardId) -> Self {
        Self {
            shard,
            waiting: VecDeque::new(),
            sending: None,
            looking: None,
            pause: Duration::ZERO,
            rest_until: Mono::default(),
        }
    }

    pub fn has_room(&self) -> bool {
        self.waiting.len() < OUTGOING_MAX
    }

    pub fn push(&mut self, outgoing: Outgoing) {
        self.waiting.push_back(outgoing);
    }

    pub fn parcels(&mut self, parcels: Vec<Handed>) {
        let mut batches: BTreeMap<QueueName, Vec<Handed>> = BTreeMap::new();
        for handed in parcels {
            batches.entry(handed.queue.clone()).or_default().push(handed);
        }
        self.waiting.extend(batches.into_iter().map(|(queue, batch)| Outgoing::Parcels(queue, batch)));
    }

    pub fn stop(&mut self, stop: Vec<(QueueName, TaskKey)>) {
        let mut controls: BTreeMap<QueueName, Control> = BTreeMap::new();
        for (queue, task) in stop {
            controls.entry(queue).or_default().cancel_tasks.push(task);
        }
        self.waiting.extend(controls.into_iter().map(|(queue, control)| Outgoing::Control(queue, control)));
    }

    pub fn go_on(&mut self, desk: &mut Desk, known: &BTreeMap<JobKey, Rc<Definition>>, h: &mut Hands<'_>) {
        while self.sending.is_none() && h.now.mono >= self.rest_until {
            let Some(next) = self.waiting.pop_front() else { return };
            match next {
                Outgoing::Control(queue, control) => {
                    let (topic, body) = (Name::Control(queue), Body::Control(Rc::new(control)));
                    h.link.send(ToBroker::Announce { topic, body }, h.ground);
                }
                Outgoing::Look(queue) => {
                    let id = h.link.number();
                    self.looking = Some((id, queue.clone()));
                    h.link.send(ToBroker::Count { queue: Name::Tasks(queue), id }, h.ground);
                }
                Outgoing::Parcels(queue, batch) => self.publish(queue, batch, desk, known, h),
            }
        }
    }

    fn publish(
        &mut self,
        queue: QueueName,
        batch: Vec<Handed>,
        desk: &mut Desk,
        known: &BTreeMap<JobKey, Rc<Definition>>,
        h: &mut Hands<'_>,
    ) {
        let parcels: Vec<ParcelId> = batch.iter().map(|handed| handed.id).collect();
        let confirm = h.link.number();
        self.sending = Some(Sending { confirm, parcels });
        if !h.link.is_up() {
            return self.failed(desk, h);
        }
        let bodies = batch.iter().map(|handed| Body::Parcel(Rc::new(pack(handed, self.shard, known)))).collect();
        h.link.send(ToBroker::Publish { to: Name::Tasks(queue), bodies, confirm }, h.ground);
    }

    /// Whether they arrived is not known; their tasks go back in line.
    fn failed(&mut self, desk: &mut Desk, h: &mut Hands<'_>) {
        let Some(sending) = self.sending.take() else { return };
        for parcel in sending.parcels {
            desk.unpost(parcel, h.now);
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.rest_until = h.now.mono.plus(self.pause);
    }

    pub fn disconnected(&mut self, desk: &mut Desk, h: &mut Hands<'_>) {
        self.looking = None;
        self.failed(desk, h);
    }

    pub fn confirmed(&mut self, number: u64) {
        if self.sending.take_if(|sending| sending.confirm == number).is_some() {
            self.pause = Duration::ZERO;
        }
    }

    /// The queue that was looked into.
    pub fn counted(&mut self, id: u64) -> Option<QueueName> {
        self.looking.take_if(|(asked, _)| *asked == id).map(|(_, queue)| queue)
    }
}

fn pack(handed: &Handed, shard: ShardId, known: &BTreeMap<JobKey, Rc<Definition>>) -> Parcel {
    let mut templates: Vec<Template> = Vec::new();
    let mut tasks = Vec::with_capacity(handed.picks.len());
    for pick in &handed.picks {
        let job = pick.task.job;
        let Some(definition) = known.get(&job) else { continue };
        let at = templates.iter().rposition(|template| template.job == job).unwrap_or_else(|| {
            templates.push(Template { job, trace: String::new(), spec: definition.spec.clone() });
            templates.len() - 1
        });
        let handout = Handout { t: at as u16, index: pick.task.index, n: pick.attempt.n, entry: None, command: None };
        tasks.push(handout);
    }
    let reply_to = format!("results.jobs.{shard}");
    Parcel { v: Version::default(), id: handed.id, reply_to, templates, tasks }
}
