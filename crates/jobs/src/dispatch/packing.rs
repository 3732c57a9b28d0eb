//! From picks to a parcel: looks up what each task needs to know, and keeps at hand what the next will need too.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use mutirao_core::envelope::{Handout, Parcel, Template, results_of, seal};
use mutirao_core::id::JobKey;
use mutirao_core::job::Variation;
use mutirao_core::task::TaskSpec;
use mutirao_store::StoreError;

use crate::desk::{Handed, Pick};
use crate::entries::{Cache, Kind, SEGMENT_TASKS};
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
            let own = self.own(&card, pick).await?;
            let needs = own.needs.unwrap_or(card.spec.needs);
            let t = match templates.iter().rposition(|known| known.job == job && known.spec.needs == needs) {
                Some(t) => t,
                None => {
                    let trace = self.handing_out.trace(job, &card.trace);
                    let spec = match needs == card.spec.needs {
                        true => card.spec.clone(),
                        false => Arc::new(TaskSpec { needs, ..(*card.spec).clone() }),
                    };
                    templates.push(Template { job, trace, spec });
                    templates.len() - 1
                }
            };
            tracing::debug!(trace = card.trace, task = %pick.task, attempt = %pick.attempt, "dispatched");
            self.handing_out.packed(&templates[t].trace, pick.task, pick.attempt);
            let Variation { command, then, env, entry, .. } = own;
            let command = (!command.is_empty()).then_some(command);
            tasks.push(Handout { t: t as u16, index: pick.task.index, n: pick.attempt.n, entry, command, then, env });
        }
        let v = Parcel::version_of(&templates, &tasks);
        Ok(seal(&Parcel { v, id: *id, reply_to: results_of(queue), templates, tasks }))
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
    async fn own(&mut self, card: &Card, pick: &Pick) -> Result<Variation, PackError> {
        if card.kind == Kind::Index {
            return Ok(Variation::default());
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
        let own = segment.get((offset - first) as usize);
        own.ok_or_else(|| PackError::Broken("its entry is missing".into()))
    }
}
