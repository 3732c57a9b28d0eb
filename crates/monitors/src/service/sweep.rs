//! What is older than it is to be kept goes, a little at a time.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Timestamp};
use mutirao_store::StoreError;

use crate::rollup::Step;
use crate::store::Shared as Store;
use crate::store::alerts::SharedAlerts;
use crate::store::rolls::SharedRolls;

/// How often old outcomes are looked for, and how many go at once.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
const SWEEP_ROWS: u32 = 5_000;

/// Removes what is older than it is to be kept, a little at a time.
pub(super) async fn run(store: Store, alerts: SharedAlerts, rolls: SharedRolls, clock: Arc<dyn Clock>, keep: Duration) {
    let ago = |span: Duration| Timestamp(clock.now().0.saturating_sub(span.as_millis() as i64));
    loop {
        clock.sleep(SWEEP_EVERY).await;
        while let Ok(true) = sweep_some(&store, &alerts, &rolls, ago(keep), &ago)
            .await
            .inspect_err(|error| tracing::debug!(%error, "what is old was not removed; the next round will"))
        {}
    }
}

/// Whether there may be more.
async fn sweep_some(
    store: &Store,
    alerts: &SharedAlerts,
    rolls: &SharedRolls,
    before: Timestamp,
    ago: &(impl Fn(Duration) -> Timestamp + Sync),
) -> Result<bool, StoreError> {
    // What is not added up yet stays, however short it is to be kept.
    let added_up = rolls.marks().await?.get(&Step::Minute).copied();
    let mut most = store.sweep(added_up.map_or(before, |mark| mark.min(before)), SWEEP_ROWS).await?;
    most = most.max(alerts.sweep_alerts(before, SWEEP_ROWS).await?);
    for step in Step::ALL {
        most = most.max(rolls.sweep_rolls(step, ago(step.kept()), SWEEP_ROWS).await?);
    }
    Ok(most >= u64::from(SWEEP_ROWS))
}
