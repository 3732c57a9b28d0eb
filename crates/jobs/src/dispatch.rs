//! From picks to parcels to the broker: looks up what each task needs to know, packs, publishes. Runs beside the foreman,
//! so that reading and encoding never hold up the desk.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutirao_broker::Shared as Broker;
use mutirao_core::Clock;
use mutirao_core::envelope::{
    Control, Handout, Parcel, ParcelId, Template, Version, control_of, results_of, seal, tasks_of,
};
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::limits::PARCEL_BYTES_MAX;
use mutirao_store::StoreError;
use tokio::sync::mpsc;

use crate::desk::{Handed, Pick};
use crate::entries::{Cache, Kind, SEGMENT_TASKS, Segment};
use crate::meters::PARCELS;
use crate::store::{Card, Shared as Store};
use crate::traces::{Began, HandingOut};
use crate::waits::Waits;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Jobs whose definition is kept at hand.
const CARDS_MAX: usize = 1_000;

/// What goes out.
#[derive(Debug)]
pub enum Outgoing {
    Parcels(Vec<Handed>),
    Control(QueueName, Control),
    /// Does anything lie in this queue?
    Look(QueueName),
}

/// What comes back to the foreman.
pub enum Back {
    /// Try again: the broker or the store was away.
    Unsent(ParcelId),
    /// Try again with fewer tasks.
    TooLong(ParcelId),
    /// Never: what the tasks need cannot be read.
    Broken(ParcelId, String),
    /// Nothing lies in this queue, nor is any of it with a consumer.
    Empty(QueueName),
}

enum PackError {
    Store(StoreError),
    Broken(String),
}

impl From<StoreError> for PackError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unusable { why, .. } => PackError::Broken(why),
            other => PackError::Store(other),
        }
    }
}

pub struct Dispatch {
    store: Store,
    broker: Broker,
    clock: Arc<dyn Clock>,
    waits: Arc<Waits>,
    handing_out: HandingOut,
    cards: HashMap<JobKey, Arc<Card>>,
    segments: Cache,
    /// Grows while nothing can be sent, so that an outage is not answered with a storm.
    pause: Duration,
}

impl Dispatch {
    pub fn new(store: Store, broker: Broker, clock: Arc<dyn Clock>, waits: Arc<Waits>) -> Self {
        Self {
            store,
            broker,
            clock,
            waits,
            handing_out: HandingOut::default(),
            cards: HashMap::new(),
            segments: Cache::default(),
            pause: Duration::ZERO,
        }
    }

    /// Until the foreman hangs up.
    pub async fn run(mut self, mut outgoing: mpsc::Receiver<Outgoing>, back: mpsc::Sender<Vec<Back>>) {
        while let Some(next) = outgoing.recv().await {
            let returns = match next {
                Outgoing::Parcels(handed) => self.send(handed).await,
                Outgoing::Control(queue, control) => self.control(&queue, &control).await,
                Outgoing::Look(queue) => self.look(queue).await,
            };
            if !returns.is_empty() && back.send(returns).await.is_err() {
                return;
            }
        }
    }

    async fn control(&self, queue: &QueueName, control: &Control) -> Vec<Back> {
        // Best effort by nature: the desk repeats it when a worker speaks of a task it should not have.
        if let Err(error) = self.broker.announce(&control_of(queue), seal(control)).await {
            tracing::debug!(%queue, %error, "control message not announced");
        }
        Vec::new()
    }

    async fn look(&self, queue: QueueName) -> Vec<Back> {
        match self.broker.counts(&tasks_of(&queue)).await {
            Ok(counts) if counts.ready + counts.unacked == 0 => vec![Back::Empty(queue)],
            _ => Vec::new(),
        }
    }

    async fn send(&mut self, handed: Vec<Handed>) -> Vec<Back> {
        let mut back = Vec::new();
        let mut trouble = None;
        let began = Began::now(&*self.clock);
        let mut batches: HashMap<QueueName, (Vec<ParcelId>, Vec<Bytes>)> = HashMap::new();
        for Handed { id, queue, picks } in handed {
            match self.pack(id, &queue, &picks).await.map(|parcel| seal(&parcel)) {
                Ok(body) if body.len() > PARCEL_BYTES_MAX => back.push(Back::TooLong(id)),
                Ok(body) => {
                    // The one in the middle waits neither shortest nor longest.
                    if let Some(pick) = picks.get(picks.len() / 2) {
                        self.waits.follow(pick.task, pick.attempt, self.clock.now());
                    }
                    let (ids, bodies) = batches.entry(queue).or_default();
                    ids.push(id);
                    bodies.push(body);
                }
                Err(PackError::Broken(why)) => back.push(Back::Broken(id, why)),
                Err(PackError::Store(error)) => {
                    trouble = Some(error.to_string());
                    back.push(Back::Unsent(id));
                }
            }
        }
        for (queue, (ids, bodies)) in batches {
            match self.broker.publish(&tasks_of(&queue), bodies).await {
                Ok(()) => metrics::counter!(PARCELS).increment(ids.len() as u64),
                Err(error) => {
                    trouble = Some(error.to_string());
                    back.extend(ids.into_iter().map(Back::Unsent));
                }
            }
        }
        self.handing_out.sent(began, trouble.as_ref(), &*self.clock);
        self.rest(trouble).await;
        back
    }

    async fn rest(&mut self, trouble: Option<String>) {
        let Some(error) = trouble else {
            self.pause = Duration::ZERO;
            return;
        };
        if self.pause.is_zero() {
            tracing::warn!(error, "parcels cannot be sent; trying again until they can");
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.clock.sleep(self.pause).await;
    }

    async fn pack(&mut self, id: ParcelId, queue: &QueueName, picks: &[Pick]) -> Result<Parcel, PackError> {
        let mut templates: Vec<Template> = Vec::new();
        let mut tasks = Vec::with_capacity(picks.len());
        for pick in picks {
            let job = pick.task.job;
            let card = self.card(job).await?;
            let t = match templates.iter().rposition(|template| template.job == job) {
                Some(t) => t,
                None => {
                    let trace = self.handing_out.trace(job, &card.trace);
                    templates.push(Template { job, trace, spec: card.spec.clone() });
                    templates.len() - 1
                }
            };
            tracing::debug!(trace = card.trace, task = %pick.task, attempt = %pick.attempt, "dispatched");
            self.handing_out.packed(&templates[t].trace, pick.task, pick.attempt);
            let (entry, command) = self.differs(&card, pick).await?;
            tasks.push(Handout { t: t as u16, index: pick.task.index, n: pick.attempt.n, entry, command });
        }
        Ok(Parcel { v: Version::default(), id, reply_to: results_of(queue), templates, tasks })
    }

    async fn card(&mut self, job: JobKey) -> Result<Arc<Card>, PackError> {
        if let Some(card) = self.cards.get(&job) {
            return Ok(card.clone());
        }
        let card = self.store.card(job).await?.ok_or_else(|| PackError::Broken("the job was removed".into()))?;
        let card = Arc::new(card);
        if self.cards.len() >= CARDS_MAX {
            self.cards.clear();
        }
        self.cards.insert(job, card.clone());
        Ok(card)
    }

    /// What this task has that its neighbours have not.
    async fn differs(&mut self, card: &Card, pick: &Pick) -> Result<(Option<String>, Option<Vec<String>>), PackError> {
        if card.kind == Kind::Index {
            return Ok((None, None));
        }
        let offset = pick.task.index.saturating_sub(card.first);
        let first = offset - offset % SEGMENT_TASKS;
        let segment = match self.segments.get(pick.task.job, first) {
            Some(segment) => segment,
            None => {
                let found = self.store.segment(pick.task.job, card.kind, first).await?;
                let found = Arc::new(found.ok_or_else(|| PackError::Broken("its entries are missing".into()))?);
                self.segments.put(pick.task.job, first, found.clone());
                found
            }
        };
        let at = (offset - first) as usize;
        let (entry, command) = match &*segment {
            Segment::Entries(entries) => (entries.get(at).cloned(), None),
            Segment::Commands(commands) => (None, commands.get(at).cloned()),
        };
        match (&entry, &command) {
            (None, None) => Err(PackError::Broken("its entry is missing".into())),
            _ => Ok((entry, command)),
        }
    }
}
