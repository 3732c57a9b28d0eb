//! The resource manager's life: be the one that holds the lease, and pass by pass do what it asks for; otherwise wait.
//!
//! It outlives managers that restart: a pass that cannot be finished is begun again. One that comes back after a death frees
//! what its predecessor held at once, when it has the predecessor's folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Dice};
use mutirao_elastic::Terms;
use mutirao_elastic::protocol::GROUP;
use mutirao_shards::store::bury;
use mutirao_shards::{Asked, MemberId, Shards, ShardsError, ShardsParts};
use mutirao_store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::lease::{Leases, SHARDS, THE_SHARD};
use crate::manager;
use crate::pass::{Active, Cut, Next, Ports};
use crate::provider::{self, CALL_MAX, Limited};

/// Between two passes.
pub const PACE: Duration = Duration::from_secs(1);
/// Between two tries to join, and after a pass that could not be finished.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Where the name of this life is kept, for the next one.
const MEMBER_FILE: &str = "member";

pub struct Parts {
    pub manager: manager::Shared,
    pub provider: provider::Shared,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    pub terms: Terms,
    pub lease: mutirao_shards::Terms,
    /// For people, in front of the name of this life.
    pub host: String,
    /// A folder that only this process uses, by a lock that is held.
    pub dir: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    #[error(transparent)]
    Shards(#[from] ShardsError),
    #[error("these terms cannot work: {0}")]
    Terms(String),
    #[error("cannot keep who this is in {dir}: {error}")]
    Folder { dir: String, error: std::io::Error },
}

/// Runs until it is told to stop. What it made stays: a successor goes on with it.
pub async fn run(parts: Parts, stop: CancellationToken) -> Result<(), ResourceError> {
    parts.terms.check(CALL_MAX).map_err(|problem| ResourceError::Terms(problem.line()))?;
    let Some(shards) = join(&parts, &stop).await? else { return Ok(()) };
    let holds = {
        let shards = shards.clone();
        Arc::new(move |generation| shards.tenure(THE_SHARD).is_some_and(|tenure| tenure.generation == generation))
    };
    let ports = Ports {
        manager: parts.manager.clone(),
        provider: Arc::new(Limited::new(parts.provider.clone(), parts.clock.clone())),
        clock: parts.clock.clone(),
        dice: parts.dice.clone(),
        terms: parts.terms,
        holds,
    };
    // A pass is cut where it stands, as by a death: that is safe, and a provider that hangs keeps nobody from leaving.
    tokio::select! {
        () = stop.cancelled() => {}
        () = act(&shards, &ports) => {}
    }
    leave(&shards).await;
    Ok(())
}

/// Gives the lease back. Leaves first: whoever only lets go is the next to claim it.
async fn leave(shards: &Shards) {
    let mut owned = shards.owned();
    let let_go = async {
        loop {
            let held = owned.borrow_and_update().get(&THE_SHARD).map(|tenure| tenure.generation);
            if let Some(generation) = held {
                shards.release(THE_SHARD, generation).await;
            }
            if owned.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    };
    tokio::select! {
        biased;
        () = shards.leave() => {}
        () = let_go => {}
    }
}

async fn join(parts: &Parts, stop: &CancellationToken) -> Result<Option<Shards>, ResourceError> {
    let leases: mutirao_shards::Shared = Arc::new(Leases(parts.manager.clone()));
    let file = parts.dir.join(MEMBER_FILE);
    let member = MemberId::mint(&parts.host);
    loop {
        let joined = async {
            if let Ok(before) = std::fs::read_to_string(&file) {
                match bury(&leases, GROUP, &MemberId(before.trim().into())).await {
                    // It was another resource manager's, before this one was let in anew: its lease runs out by itself.
                    Err(StoreError::Unusable { why, .. }) => tracing::info!(why, "a former life cannot be buried"),
                    buried => buried?,
                }
            }
            std::fs::write(&file, format!("{member}\n"))
                .map_err(|error| ResourceError::Folder { dir: parts.dir.display().to_string(), error })?;
            let shards = Shards::start(ShardsParts {
                store: leases.clone(),
                clock: parts.clock.clone(),
                dice: parts.dice.clone(),
                group: GROUP,
                count: SHARDS,
                member: member.clone(),
                address: parts.host.clone(),
                terms: parts.lease,
            });
            Ok(shards.await?)
        };
        let joined: Result<Shards, ResourceError> = tokio::select! {
            joined = joined => joined,
            () = stop.cancelled() => return Ok(None),
        };
        match joined {
            Ok(shards) => return Ok(Some(shards)),
            Err(ResourceError::Shards(ShardsError::Store(error))) => {
                tracing::warn!(%error, "the manager cannot be asked for the lease; trying again");
                tokio::select! {
                    () = parts.clock.sleep(parts.dice.jitter(TRY_AGAIN)) => {}
                    () = stop.cancelled() => return Ok(None),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

async fn act(shards: &Shards, ports: &Ports) {
    let mut owned = shards.owned();
    let mut active: Option<Active> = None;
    loop {
        let Some(tenure) = shards.tenure(THE_SHARD) else {
            if active.take().is_some() {
                tracing::info!("another one acts now, or nobody: waiting");
            }
            if owned.changed().await.is_err() {
                return;
            }
            continue;
        };
        if tenure.asked == Asked::Leave {
            active = None;
            shards.release(THE_SHARD, tenure.generation).await;
            continue;
        }
        if active.as_ref().is_none_or(|active| active.generation() != tenure.generation) {
            tracing::info!(generation = tenure.generation, "this resource manager acts now");
            active = Some(Active::new(ports.clone(), tenure.generation));
        }
        let Some(now_active) = &mut active else { continue };
        let pause = match now_active.pass().await {
            Ok(Next::AtOnce) => PACE / 5,
            Ok(Next::InAWhile) => PACE,
            Err(Cut::Lost | Cut::Manager(manager::ManagerError::NotTheOwner(_))) => {
                // What is in memory may be older than what another one has written since.
                active = None;
                PACE
            }
            Err(Cut::Manager(error)) => {
                tracing::warn!(%error, "a pass could not be finished");
                TRY_AGAIN
            }
        };
        ports.clock.sleep(pause).await;
    }
}

impl From<StoreError> for ResourceError {
    fn from(error: StoreError) -> Self {
        Self::Shards(ShardsError::Store(error))
    }
}
