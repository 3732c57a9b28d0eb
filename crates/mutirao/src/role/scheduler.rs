//! `mutirao role scheduler`: owns monitors and fires them, as managers do, and does nothing else. What it owns, it takes from
//! the managers and gives back to them; its API has monitors only, and its `/metrics` those that it owns.
//!
//! **What it is let in by.** Like a manager it opens the database and the broker with credentials of the installation. A person who
//! starts one gives them as to a manager, in the environment or in a file. One that a resource manager starts gets them over its
//! stdin, in memory from end to end: they are in no argument, no environment and no file, and no manager gives them to anybody
//! over the network, so that the key of a resource manager opens no database. One that was not told them starts no schedulers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use mutirao_api::ApiParts;
use mutirao_core::{Clock, Dice, SystemClock, WorkerId};
use mutirao_monitors::{Monitors, MonitorsParts};
use mutirao_store::FolderLock;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use super::launched::Parent;
use super::worker::{gone, line};
use crate::broker::{House, Opened};
use crate::checks::Keys;
use crate::cli::Globals;
use crate::config::{Given, OVER_STDIN, Settings};
use crate::failure::Failure;
use crate::manager::{api_settings, failed, shown_url};
use crate::membership::Membership;
use crate::signals::Asked;
use crate::{broker, checks, database, door, logs, managers, tls};

#[derive(Debug, Args)]
pub struct SchedulerArgs {
    /// A folder of its own
    #[arg(long, default_value = "./mutirao-scheduler")]
    dir: PathBuf,
    /// Where its metrics and its part of the API are; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Started by a node, which speaks over stdin
    #[arg(long, hide = true, requires = "worker")]
    launched: bool,
    /// What its resource manager calls it
    #[arg(long, hide = true)]
    worker: Option<String>,
}

pub async fn run(globals: &Globals, args: SchedulerArgs) -> Result<(), Failure> {
    let mut asked = Asked::listen()?;
    let (mut parent, keys) = match args.launched {
        true => meet().await?,
        false => (None, Vec::new()),
    };
    let given = [Given::flag("--listen", "listen", args.listen.to_string())].into_iter().chain(keys).collect();
    let settings = globals.config(given)?.settings;
    logs::start(&settings);
    if settings.database.set().is_none() || settings.broker.set().is_none() {
        let line = "a scheduler shares monitors with the managers of an installation: give it their PostgreSQL and their RabbitMQ \
                    (MUTIRAO_DATABASE, MUTIRAO_BROKER)";
        return Err(Failure::usage(line));
    }
    let scheduler = Scheduler::start(&settings, args.dir, args.worker.map(WorkerId)).await?;
    tokio::select! {
        () = asked.next() => {}
        () = gone(&mut parent) => tracing::info!("the parent is gone: giving back what it owns, then going"),
        () = scheduler.told_to_rest() => tracing::info!("it is to go: giving back what it owns"),
    }
    tokio::select! {
        () = scheduler.stop() => {}
        // Others take over when its leases run out.
        () = asked.next() => {}
    }
    Ok(())
}

/// The parent, and what it brings.
async fn meet() -> Result<(Option<Parent<pipe::Receiver>>, Vec<Given>), Failure> {
    let (parent, first) = Parent::meet(line()?).await?;
    let bad = || Failure::failed("whoever started this scheduler did not say where the database and the broker are");
    let keys: Keys = first.and_then(|line| serde_json::from_str(&line).ok()).ok_or_else(bad)?;
    let management = keys.broker_management.map(|url| Given::flag(OVER_STDIN, "broker_management", url));
    let rest = [
        Given::flag(OVER_STDIN, "database", keys.database),
        Given::flag(OVER_STDIN, "broker", keys.broker),
        // What its environment says of this is the manager's.
        Given::flag(OVER_STDIN, "api.url", "auto"),
    ];
    Ok((Some(parent), rest.into_iter().chain(management).collect()))
}

struct Scheduler {
    monitors: Monitors,
    broker: mutirao_broker::Shared,
    rabbit: Option<Arc<mutirao_broker::Rabbit>>,
    store: mutirao_store::Database,
    clock: Arc<dyn Clock>,
    worker: Option<WorkerId>,
    shutdown: CancellationToken,
    _lock: FolderLock,
}

impl Scheduler {
    async fn start(settings: &Settings, dir: PathBuf, worker: Option<WorkerId>) -> Result<Self, Failure> {
        let tls = tls::serving(settings)?;
        let dir = std::path::absolute(dir)?;
        let lock = FolderLock::take(&dir).map_err(|error| Failure::failed(error.to_string()))?;
        let listener = door::own(settings.listen).await?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = shown_url(settings, scheme, listener.local_addr()?);
        mutirao_api::gather().map_err(failed)?;
        let (clock, dice): (Arc<dyn Clock>, _) = (SystemClock::shared(), Arc::new(Dice::from_os()));
        let store = database::open(settings, &dir).await.map_err(failed)?;
        let leases = database::leases(settings, &store, &lock).await.map_err(failed)?;
        let Membership { member, terms } = Membership::take_up(&leases, &store, broker::reach(settings)?, &dir).await?;
        let house = House { store: &store, leases: &leases };
        let Opened { broker, ways, rabbit, .. } = broker::open(settings, &dir, house, &clock, &dice).await?;
        let name = member.0.clone();
        let monitors = Monitors::start(MonitorsParts {
            store: store.clone(),
            leases,
            terms,
            member,
            address: address.clone(),
            broker: broker.clone(),
            probes: checks::probes(settings, &clock)?,
            clock: clock.clone(),
            dice,
            keep: settings.monitors_keep.0,
            programs: checks::programs(settings),
            inside: None,
        })
        .await
        .map_err(failed)?;
        let shutdown = CancellationToken::new();
        let api = mutirao_api::build(ApiParts {
            auth: mutirao_api::auth_of(&store, clock.clone()),
            broker: broker.clone(),
            blobs: database::blobs(&store, &dir).map_err(failed)?,
            clock: clock.clone(),
            capabilities: vec![monitors.capability()],
            ways,
            settings: api_settings(settings, address.clone(), tls),
            shutdown: shutdown.clone(),
        })
        .await
        .map_err(failed)?;
        tokio::spawn(async move {
            // Monitors are fired all the same.
            if let Err(error) = api.serve(listener).await {
                tracing::error!(%error, "the API of this scheduler ended");
            }
        });
        if let Some(worker) = worker.clone() {
            let (monitors, broker, clock) = (monitors.clone(), broker.clone(), clock.clone());
            let owned = move || u32::try_from(monitors.owned()).unwrap_or(u32::MAX);
            tokio::spawn(async move { managers::say_as_scheduler(name, worker, owned, &broker, &clock).await });
        }
        tracing::info!(address, "fires monitors");
        Ok(Self { monitors, broker, rabbit, store, clock, worker, shutdown, _lock: lock })
    }

    /// Never of one that a person started.
    async fn told_to_rest(&self) {
        match &self.worker {
            Some(worker) => managers::told_to_rest(worker, &self.broker, &self.clock).await,
            None => std::future::pending().await,
        }
    }

    /// Gives back what it owns, and ends.
    async fn stop(&self) {
        self.monitors.stop().await;
        self.shutdown.cancel();
        if let Some(rabbit) = &self.rabbit {
            rabbit.close();
        }
        self.store.close().await;
        tracing::info!("down");
    }
}
