//! Keeps telling the owners of queues in this process who is to be handed nothing, so that a word that got lost, and an
//! owner that is new, cost seconds. Also sees to identities that are owed to be revoked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Timestamp, WorkerId};

use crate::floor::Floor;
use crate::identities::Identities;
use crate::store::{By, Draining, Shared};

const COMPARE: Duration = Duration::from_secs(2);
/// Between two looks for what can be forgotten.
const TIDY: Duration = Duration::from_secs(600);

/// For as long as it is not dropped.
pub async fn run(store: Shared, floor: Arc<dyn Floor>, identities: Arc<dyn Identities>, clock: Arc<dyn Clock>) {
    let mut tidied = clock.monotonic();
    loop {
        match store.draining().await {
            Ok(all) => {
                let named: Vec<_> = all.iter().map(|row| (row.worker.clone(), row.queue.clone())).collect();
                floor.drain(&named, None).await;
                let now = clock.monotonic();
                if now.since(tidied) >= TIDY {
                    tidied = now;
                    tidy(&store, &*floor, &*identities, all, clock.now()).await;
                }
            }
            Err(error) => tracing::debug!(%error, "who is drained could not be read; the next round will"),
        }
        revoke_owed(&store, &*identities).await;
        clock.sleep(COMPARE).await;
    }
}

/// Revokes what is noted down to be revoked, some at a time; what fails stays noted, and is tried again.
pub async fn revoke_owed(store: &Shared, identities: &dyn Identities) {
    let owed = match store.to_revoke().await {
        Ok(owed) if owed.is_empty() => return,
        Ok(owed) => owed,
        Err(error) => return tracing::debug!(%error, "whose identities are to be revoked could not be read"),
    };
    let mut done = Vec::with_capacity(owed.len());
    for worker in owed {
        match identities.revoke(&worker, "fleet").await {
            Ok(()) => done.push(worker),
            Err(problem) => tracing::warn!(%worker, why = %problem, "an identity cannot be revoked; it is tried again"),
        }
    }
    if let Err(error) = store.revoked(done).await {
        tracing::debug!(%error, "identities were revoked and that was not noted; they are revoked again");
    }
}

/// Forgets workers that are not let in any more and have no process, and queues that nobody staffs any more.
async fn tidy(store: &Shared, floor: &dyn Floor, identities: &dyn Identities, all: Vec<Draining>, now: Timestamp) {
    if let Ok(specs) = floor.queues().await {
        let elastic = specs.into_iter().filter(|spec| spec.elastic.is_some()).map(|spec| spec.name).collect();
        if let Err(error) = store.forget_queues(elastic).await {
            tracing::debug!(%error, "queues that are not elastic any more could not be forgotten; the next round will");
        }
    }
    let (alive, silent) = floor.workers().await;
    if !silent.is_empty() {
        return;
    }
    let alive: BTreeSet<WorkerId> = alive.into_iter().map(|view| view.worker).collect();
    let mut gone = Vec::new();
    for row in all.into_iter().filter(|row| !alive.contains(&row.worker)) {
        let recorded = !matches!(store.member(&row.worker).await, Ok(None));
        if !recorded && matches!(identities.queue_of(&row.worker).await, Ok(None)) {
            gone.push(row.worker);
        }
    }
    if gone.is_empty() {
        return;
    }
    if let Err(error) = store.undrain(gone, By { who: "retention".into(), name: "retention".into(), at: now }).await {
        tracing::debug!(%error, "drained workers that are gone could not be forgotten; the next round will");
    }
}
