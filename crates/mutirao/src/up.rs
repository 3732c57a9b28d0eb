//! `mutirao up`: a whole installation on this machine. The manager in this process, workers as its children.

mod announce;
mod crew;
mod household;

use std::sync::Arc;

use clap::Args;
use mutirao_core::quantity::Span;
use mutirao_core::{Dice, SystemClock};

use crate::cli::Globals;
use crate::config::{Config, Exposed, Given};
use crate::failure::Failure;
use crate::manager::Manager;
use crate::managers::pool::{Launched, Origins};
use crate::role::elastic::{self, Running};
use crate::role::worker::gone;
use crate::signals::Asked;
use crate::{logs, machine, managers, telemetry, tls};
use crew::Crew;
pub use crew::{Invite, Obituary, Resumed};
use household::Household;

#[derive(Debug, Args)]
pub struct UpArgs {
    /// Worker processes to keep running [default: 2]
    #[arg(long, value_name = "N")]
    workers: Option<String>,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, Args)]
pub struct ManagerArgs {
    /// Where the API listens; port 0 takes any free one [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Listen for MQTT here, so that devices need no other broker; port 0 takes any free one [default: nowhere]
    #[arg(long, value_name = "ADDR:PORT")]
    mqtt_listen: Option<String>,
    /// How long a stop waits for running tasks [default: 30s]
    #[arg(long, value_name = "SPAN")]
    drain: Option<Span>,
    /// Keep everything in this PostgreSQL; best given as MUTIRAO_DATABASE, which other users cannot see
    /// [default: SQLite in the data folder]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Move tasks and reports over this RabbitMQ; best given as MUTIRAO_BROKER, which other users cannot see
    /// [default: inside the manager]
    #[arg(long, value_name = "URL")]
    broker: Option<String>,
    /// Keep values of keys at hand in this Redis; best given as MUTIRAO_CACHE, which other users cannot see
    /// [default: inside the manager while there can be only one]
    #[arg(long, value_name = "URL")]
    cache: Option<String>,
}

impl ManagerArgs {
    fn given(&self) -> Vec<Given> {
        let listen = self.listen.iter().map(|text| Given::flag("--listen", "listen", text));
        let drain = self.drain.iter().map(|span| Given::flag("--drain", "drain", span.to_string()));
        let database = self.database.iter().map(|url| Given::flag("--database", "database", url));
        let broker = self.broker.iter().map(|url| Given::flag("--broker", "broker", url));
        let cache = self.cache.iter().map(|url| Given::flag("--cache", "cache", url));
        let mqtt = self.mqtt_listen.iter().map(|text| Given::flag("--mqtt-listen", "mqtt.listen", text));
        listen.chain(mqtt).chain(drain).chain(database).chain(broker).chain(cache).collect()
    }
}

/// What runs beside the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    Workers,
    Nobody,
}

/// The manager with its workers.
pub async fn run(globals: &Globals, args: UpArgs) -> Result<(), Failure> {
    let mut given = args.manager.given();
    given.extend(args.workers.iter().map(|text| Given::flag("--workers", "worker.count", text)));
    run_with(globals, given, Company::Workers, Origins::NOBODY).await
}

/// The manager alone.
pub async fn run_alone(globals: &Globals, args: ManagerArgs, launched: Launched) -> Result<(), Failure> {
    let (origins, told) = launched.meet().await?;
    run_with(globals, [args.given(), told].concat(), Company::Nobody, origins).await
}

async fn run_with(globals: &Globals, given: Vec<Given>, company: Company, mut origins: Origins) -> Result<(), Failure> {
    let config = globals.config(given)?;
    let settings = &config.settings;
    logs::start(settings);
    warn_of_strange_variables(&config);
    warn_of_exposed_secrets(&config);
    if company == Company::Workers {
        elastic::check(settings)?;
    }
    let telemetry = telemetry::start(settings, "manager")?;
    let mut asked = Asked::listen()?;
    let mut manager = Manager::start(settings, origins.worker.clone()).await?;
    let workers = if company == Company::Workers { settings.worker_count.0 } else { 0 };
    if workers > 0 {
        manager.ensure_queue(&settings.worker_queue).await?;
    }
    let capacity = machine::share(settings, workers);
    let crew = Crew::start(crew::Plan {
        workers,
        url: manager.url.clone(),
        pin: tls::pin_file(&std::path::absolute(&settings.data.0)?),
        queue: settings.worker_queue.clone(),
        dir: settings.data.0.join("workers"),
        capacity,
        way: settings.worker_way,
        ca: settings.tls_ca.given().map(|file| std::path::absolute(&file.0)).transpose()?,
        collector: settings.telemetry_otlp.given().map(|url| url.0.clone()),
        invite: manager.inviter(),
        obituary: manager.obituary(),
        resumed: manager.resumed(),
        clock: SystemClock::shared(),
        dice: Arc::new(Dice::from_os()),
    })?;
    let mut elastic = match company {
        Company::Workers => resource_manager(&config, &manager).await?,
        Company::Nobody => None,
    };
    announce::up(globals, &config, &manager, workers, capacity);

    let told_to_rest = manager.told_to_rest();
    let broken = tokio::select! {
        () = asked.next() => None,
        () = told_to_rest => None,
        () = gone(&mut origins.parent) => None,
        failure = manager.broken() => Some(failure),
        failure = ended(&mut elastic) => Some(failure),
    };
    // Of several at one address it goes alone: the others take in what comes.
    if origins.worker.is_none() {
        manager.close();
    }
    let nodes = match elastic {
        Some(running) => Some(running.stop().await),
        None => None,
    };
    Household { crew, nodes }.dismiss(settings.drain.0, &mut asked).await;
    manager.stop().await;
    telemetry::stop(telemetry).await;
    tracing::info!("down");
    broken.map_or(Ok(()), Err)
}

fn warn_of_strange_variables(config: &Config) {
    for name in &config.strange_env {
        tracing::warn!(name, "this variable is no setting; `mutirao config list` shows them all");
    }
}

fn warn_of_exposed_secrets(config: &Config) {
    for Exposed { key, flag, variable } in config.exposed() {
        tracing::warn!(
            "the secret in {key} was given by {flag}, and everybody on this machine can read the arguments of a process; \
             give it as {variable}, or in mutirao.toml with mode 0600"
        );
    }
}

/// The resource manager beside this manager, let in by itself. One that the manager does not know any more, since it was
/// restored from a backup, is let in again.
async fn resource_manager(config: &Config, manager: &Manager) -> Result<Option<Running>, Failure> {
    let settings = &config.settings;
    if !elastic::any(settings) {
        return Ok(None);
    }
    let data = std::path::absolute(&settings.data.0)?;
    let place = elastic::Place {
        url: manager.url.clone(),
        trust: tls::trust(settings, &manager.url, Some(tls::pin_file(&data)))?,
        pin: tls::pin_file(&data),
        dir: elastic::folder(&data)?,
        nodes: data.join("nodes"),
        name: machine::host_name(),
        managers: managers::pool::launched_with(config, manager.address),
    };
    let known = match elastic::load(&place.dir)? {
        Some(identity) if place.is_known(&identity).await? => Some(identity),
        _ => None,
    };
    let identity = match known {
        Some(identity) => identity,
        None => place.enrol(manager.invite_elastic().await?).await?,
    };
    Running::start(settings, place, identity).map(Some)
}

/// Ends when there is a resource manager and it cannot go on. Cancel-safe.
async fn ended(elastic: &mut Option<Running>) -> Failure {
    match elastic {
        Some(running) => match running.ended().await {
            Ok(()) => Failure::failed("the resource manager ended by itself"),
            Err(failure) => failure,
        },
        None => std::future::pending().await,
    }
}
