//! The installation's broker: the RabbitMQ that the settings name, else one inside this process; and the ways by which
//! workers reach it.
//!
//! On RabbitMQ each worker has a user of its own. Where users cannot be made, workers use the link: nobody but managers
//! ever has the manager's credentials.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_api::auth::registry::Worker;
use mutirao_api::{OnlyLink, Ways};
use mutirao_broker::rabbit::management::{Management, default_url};
use mutirao_broker::rabbit::{Config, Extent, PREFIX_DEFAULT, user_in};
use mutirao_broker::{Broker, BrokerError, Limits, Memory, Rabbit, Shared};
use mutirao_core::auth::{Duty, Way};
use mutirao_core::check::checks_of;
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::tasks_of;
use mutirao_core::{Clock, Dice, InstallationId, WorkerId};
use mutirao_shards::Shared as Leases;
use mutirao_store::Database;

use crate::config::Settings;
use crate::failure::Failure;
use crate::membership::Reach;
use crate::{installation, tls};

/// A full log has at least so many.
const SEGMENTS_MIN: u64 = 16;
/// How long a worker's queue may take to be made before the worker is sent to the link instead.
const QUEUE_MAX: Duration = Duration::from_secs(5);

pub struct Opened {
    pub broker: Shared,
    pub ways: Arc<dyn Ways>,
    /// To be closed at the end.
    pub rabbit: Option<Arc<Rabbit>>,
    /// Where workers have users.
    pub management: Option<Arc<Management>>,
}

/// Where it is written whose broker it is, and who else is at work.
pub struct House<'a> {
    pub store: &'a Database,
    pub leases: &'a Leases,
}

pub async fn open(
    settings: &Settings,
    data: &Path,
    house: House<'_>,
    clock: &Arc<dyn Clock>,
    dice: &Arc<Dice>,
) -> Result<Opened, Failure> {
    let Some(url) = settings.broker.set() else {
        let broker = Memory::new(Some(data.join("log")), limits(settings));
        return Ok(Opened { broker, ways: Arc::new(OnlyLink), rabbit: None, management: None });
    };
    let trust = tls::trust(settings, &url.0, None)?;
    let config = || Config { trust: trust.clone(), ..Config::new(&url.0, clock.clone(), dice.clone()) };
    // A user that may not do its work is told now, and not by queues that stand still; and before anything is marked.
    Rabbit::probe(config(), Extent::Work).await.map_err(failed)?;
    let holder = async |id: &InstallationId| Rabbit::holder(config(), id).await;
    let installation = Some(installation::come_in(house.store, house.leases, holder).await?);
    let rabbit = Rabbit::connect(Config { installation, ..config() }).await.map_err(failed)?;
    let management = Arc::new(management(settings, &url.0)?);
    // Beside the start, not before it: until a manager gives its first sign of life others may take its vhost for deserted.
    let looked_at = management.clone();
    tokio::spawn(async move {
        if let Err(error) = looked_at.check().await {
            tracing::warn!("{error}; until then workers have no users there and use the link");
        }
    });
    let ways = Arc::new(Users { management: management.clone(), rabbit: rabbit.clone(), clock: clock.clone() });
    Ok(Opened { broker: rabbit.clone(), ways, rabbit: Some(rabbit), management: Some(management) })
}

/// Of the one inside this process.
pub fn limits(settings: &Settings) -> Limits {
    let (log_bytes_max, usual) = (settings.streams_log_size.0, Limits::default());
    // What is kept goes segment by segment: a small log has small ones.
    let segment_bytes = (log_bytes_max / SEGMENTS_MIN).min(usual.segment_bytes);
    Limits { log_bytes_max, segment_bytes, ..usual }
}

/// Whom the broker of these settings reaches.
pub fn reach(settings: &Settings) -> Result<Reach, Failure> {
    let Some(url) = settings.broker.set() else { return Ok(Reach::OwnWorkers) };
    Ok(Reach::Everybody { user: user_in(&url.0).map_err(Failure::failed)? })
}

/// Where users can be made for workers. Asks nothing yet.
pub fn management(settings: &Settings, url: &str) -> Result<Management, Failure> {
    let at = match settings.broker_management.set() {
        Some(at) => at.0.clone(),
        None => default_url(url).map_err(Failure::failed)?,
    };
    Management::new(url, &at, PREFIX_DEFAULT, &tls::trust(settings, &at, None)?).map_err(failed)
}

fn failed(error: BrokerError) -> Failure {
    Failure::failed(error.to_string())
}

/// A user of RabbitMQ for each worker.
struct Users {
    management: Arc<Management>,
    rabbit: Arc<Rabbit>,
    clock: Arc<dyn Clock>,
}

impl Users {
    async fn admit(&self, worker: &Worker) -> Result<Way, String> {
        // Workers make no queues: theirs must be there when they come.
        let queues = match &worker.duty {
            Duty::Tasks(queue) => vec![tasks_of(queue)],
            Duty::Checks(kinds) => kinds.iter().map(checks_of).collect(),
            Duty::Streams => vec![],
        };
        for queue in queues {
            match self.clock.timeout(QUEUE_MAX, self.rabbit.counts(&queue)).await {
                Ok(made) => made.map(drop).map_err(|error| error.to_string())?,
                Err(_) => return Err(format!("{queue} could not be made within {} s", QUEUE_MAX.as_secs())),
            }
        }
        let url = self.management.admit(&worker.id, &worker.duty).await.map_err(|error| error.to_string())?;
        Ok(Way::Rabbitmq { url, prefix: PREFIX_DEFAULT.into() })
    }
}

#[async_trait]
impl Ways for Users {
    async fn open(&self, worker: &Worker) -> Way {
        self.admit(worker).await.unwrap_or_else(|why| {
            tracing::warn!(worker = %worker.id, why, "a worker is sent to the link");
            Way::Link
        })
    }

    async fn close(&self, worker: &WorkerId) -> Result<(), String> {
        self.management.dismiss(worker).await.map_err(|error| error.to_string())
    }
}
