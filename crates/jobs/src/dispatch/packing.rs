//! From picks to a parcel: looks up what each task needs to know, and keeps at hand what the next will need too.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use mutirao_core::envelope::{Handout, Parcel, Template, Version, results_of, seal};
use mutirao_core::id::JobKey;
use mutirao_store::StoreError;

use crate::desk::{Handed, Pick};
use crate::entries::{Cache, Kind, SEGMENT_TASKS, Segment};
use crate::store::{Card, Shared as Store};
use crate::traces::HandingOut;

/// Jobs whose definition is kept at hand.
const CARDS_MAX: usize = 1_000;

pub(super) enum PackError {
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

pub(super) struct Packing {
    store: Store,
    pub handing_out: HandingOut,
    cards: HashMap<JobKey, Arc<Card>>,
    segments: Cache,
}

impl Packing {
    pub fn new(store: Store) -> Self {
        Self { store, handing_out: HandingOut::default(), cards: HashMap::new(), segments: Cache::default() }
    }

    pub async fn pack(&mut self, Handed { id, queue, picks }: &Handed) -> Result<Bytes, PackError> {
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
        Ok(seal(&Parcel { v: Version::default(), id: *id, reply_to: results_of(queue), templates, tasks }))
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
