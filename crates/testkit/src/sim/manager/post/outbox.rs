//! In the place of the dispatch: parcels, words and looks leave one after the other, each batch of parcels confirmed before
//! the next thing leaves; what was not confirmed comes back, and while nothing can be sent the pauses grow.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::envelope::{Handout, Parcel, ParcelId, Template, Version};
use mutirao_core::id::{JobKey, QueueName};
use mutirao_jobs::desk::Handed;
use mutirao_jobs::dispatch::{Back, Outgoing};
use mutirao_shards::ShardId;

use super::super::super::flaw::Flaw;
use super::super::super::ground::Ground;
use super::super::super::wire::{Body, Definition, Name, ToBroker};
use super::Hands;

const OUTGOING_MAX: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A batch for one queue that is not confirmed yet.
struct Sending {
    confirm: u64,
    parcels: Vec<ParcelId>,
}

pub struct Outbox {
    shard: ShardId,
    waiting: VecDeque<Outgoing>,
    sending: Vec<Sending>,
    looking: Option<(u64, QueueName)>,
    pause: Duration,
    rest_until: Mono,
}

impl Outbox {
    pub fn new(shard: ShardId) -> Self {
        Self {
            shard,
            waiting: VecDeque::new(),
            sending: Vec::new(),
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

    /// Sends what can leave now; what cannot comes back.
    pub fn go_on(&mut self, known: &BTreeMap<JobKey, Rc<Definition>>, h: &mut Hands<'_>) -> Vec<Back> {
        let mut back = Vec::new();
        while self.sending.is_empty() && self.looking.is_none() && h.now.mono >= self.rest_until {
            let Some(next) = self.waiting.pop_front() else { break };
            match next {
                Outgoing::Control(queue, control) => {
                    let (topic, body) = (Name::Control(queue), Body::Control(Rc::new(control)));
                    h.link.send(ToBroker::Announce { topic, body }, h.ground);
                }
                Outgoing::Look(queue) if h.link.is_up() => {
                    let id = h.link.number();
                    self.looking = Some((id, queue.clone()));
                    h.link.send(ToBroker::Count { queue: Name::Tasks(queue), id }, h.ground);
                }
                Outgoing::Look(_) => {}
                // Nobody misses a queue without a worker.
                Outgoing::Remove(queue) => back.push(Back::Gone(queue)),
                Outgoing::Parcels(parcels) => {
                    self.publish(parcels, known, h);
                    if !h.link.is_up() {
                        back.extend(self.failed(h.now.mono));
                        break;
                    }
                }
            }
        }
        back
    }

    fn publish(&mut self, parcels: Vec<Handed>, known: &BTreeMap<JobKey, Rc<Definition>>, h: &mut Hands<'_>) {
        let mut batches: BTreeMap<QueueName, Vec<Handed>> = BTreeMap::new();
        for handed in parcels {
            batches.entry(handed.queue.clone()).or_default().push(handed);
        }
        for (queue, batch) in batches {
            let confirm = h.link.number();
            self.sending.push(Sending { confirm, parcels: batch.iter().map(|handed| handed.id).collect() });
            let bodies = batch.iter().map(|handed| Body::Parcel(Rc::new(pack(handed, self.shard, known)))).collect();
            h.link.send(ToBroker::Publish { to: Name::Tasks(queue), bodies, confirm }, h.ground);
        }
    }

    /// Whether they arrived is not known; their tasks go back in line.
    fn failed(&mut self, now: Mono) -> Vec<Back> {
        if self.sending.is_empty() {
            return Vec::new();
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.rest_until = now.plus(self.pause);
        let parcels = std::mem::take(&mut self.sending).into_iter().flat_map(|sending| sending.parcels);
        parcels.map(Back::Unsent).collect()
    }

    pub fn disconnected(&mut self, now: Mono) -> Vec<Back> {
        self.looking = None;
        self.failed(now)
    }

    pub fn confirmed(&mut self, number: u64) {
        let before = self.sending.len();
        self.sending.retain(|sending| sending.confirm != number);
        if self.sending.is_empty() && before > 0 {
            self.pause = Duration::ZERO;
        }
    }

    pub fn counted(&mut self, id: u64, lying: usize, ground: &Ground) -> Vec<Back> {
        let Some((_, queue)) = self.looking.take_if(|(asked, _)| *asked == id) else { return Vec::new() };
        match lying == 0 && !ground.has(Flaw::WaitsForLostParcels) {
            true => vec![Back::Empty(queue)],
            false => Vec::new(),
        }
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
        let handout = Handout {
            t: at as u16,
            index: pick.task.index,
            n: pick.attempt.n,
            entry: None,
            command: None,
            ..Handout::default()
        };
        tasks.push(handout);
    }
    let reply_to = format!("results.jobs.{shard}");
    Parcel { v: Version::default(), id: handed.id, reply_to, templates, tasks }
}
