//! The manager: store, broker, capabilities and API in one process, in the order in which
//! they need each other, and back down in the reverse.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mutirao_api::auth::upkeep::Keep;
use mutirao_api::{Api, ApiError, ApiParts, Rate};
use mutirao_broker::{Rabbit, Shared as Broker};
use mutirao_conductor::{Streams, StreamsParts};
use mutirao_core::auth::Role;
use mutirao_core::job::{WorkerState, WorkerView};
use mutirao_core::{Clock, Dice, InstallationId, QueueName, SystemClock, WorkerId};
use mutirao_fleet::{Fleets, FleetsParts};
use mutirao_flows::foreman::Rules;
use mutirao_flows::{Flows, FlowsParts};
use mutirao_hosts::Host;
use mutirao_jobs::{Jobs, JobsParts, JobsSettings};
use mutirao_kv::{AtHand, Kv, KvParts, Legacy, Path as KvPath};
use mutirao_monitors::placement::Standing;
use mutirao_monitors::service::Inside;
use mutirao_monitors::{Monitors, MonitorsParts};
use mutirao_nodes::embedded::Embedded;
use mutirao_nodes::rabbit::RabbitWays;
use mutirao_nodes::switchboard::Switchboard;
use mutirao_shards::{Company, MemberId};
use mutirao_store::{Database, FolderLock, installation};
use mutirao_tls::Serving;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::broker::House;
use crate::cli::ADDRESS_FILE;
use crate::config::{OwnChecker, Port, Settings, Switch};
use crate::failure::Failure;
use crate::fleet::{Advice, Enrolments, Gatekeeper, Grounds, OnPaper};
use crate::managers::Peers;
use crate::membership::Membership;
use crate::up::{Invite, Obituary, Resumed};
use crate::{broker, checks, database, door, flows, leavers, machine, managers, nodes, streams, tls};

/// How long open requests may take to end when the manager goes down.
const REQUESTS_DRAIN: Duration = Duration::from_secs(5);

pub struct Manager {
    /// Where local clients and workers reach the API.
    pub url: String,
    /// Where it listens.
    pub address: SocketAddr,
    pub token_file: PathBuf,
    data: PathBuf,
    api: Arc<Api>,
    jobs: Jobs,
    fleets: Fleets,
    monitors: Monitors,
    kv: Kv,
    nodes: Switchboard,
    flows: Flows,
    streams: Streams,
    host: Option<Host>,
    mqtt: Option<Embedded>,
    by_rabbit: Option<RabbitWays>,
    store: Database,
    rabbit: Option<Arc<Rabbit>>,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), ApiError>>,
    /// Who it is to the resource manager that started it, if one did, and where it hears from it.
    pooled: Option<(WorkerId, Broker)>,
    clock: Arc<dyn Clock>,
    _lock: FolderLock,
}

impl Manager {
    /// Everything is up, and the address is written, when this returns. `pooled`: who it is to the resource manager that started
    /// it, if one did.
    pub async fn start(settings: &Settings, pooled: Option<WorkerId>) -> Result<Self, Failure> {
        let (schedulers, beside) = (checks::schedulers(settings)?, managers::pool::elastic(settings)?);
        let tls = tls::serving(settings)?;
        for line in tls::warnings(settings, tls.as_ref(), SystemClock.now()) {
            tracing::warn!("{line}");
        }
        let data = &settings.data.0;
        let lock = FolderLock::take(data).map_err(|error| Failure::failed(error.to_string()))?;
        let data = std::path::absolute(data)?;
        // What can be refused at once is, before anything is opened.
        let own = match door::port(settings) {
            Port::Own => Some(door::own(settings.listen).await?),
            Port::Shared => None,
        };
        if let Some(tls) = &tls {
            tls::keep_pin(&data, tls)?;
        }
        let scheme = if tls.is_some() { "https" } else { "http" };

        mutirao_api::gather().map_err(failed)?;
        let (clock, dice): (Arc<dyn Clock>, _) = (SystemClock::shared(), Arc::new(Dice::from_os()));
        let store = database::open(settings, &data).await.map_err(failed)?;
        let installation = installation::of(&store, InstallationId::random()).await.map_err(failed)?.id;
        let listener = match own {
            Some(listener) => listener,
            None => share(settings, scheme, &data, &installation).await?,
        };
        let address = listener.local_addr()?;
        let blobs = database::blobs(&store, &data).map_err(failed)?;
        let leases = database::leases(settings, &store, &lock).await.map_err(failed)?;
        // Who may not share the queues marks no broker as its installation's either.
        let Membership { member, terms } =
            Membership::take_up(&leases, &store, broker::reach(settings)?, &data).await?;
        let house = House { store: &store, leases: &leases };
        let broker::Opened { broker, ways, rabbit, management } =
            broker::open(settings, &data, house, &clock, &dice).await?;
        let url = format!("{scheme}://{}", as_reached_from_here(address));
        let auth = mutirao_api::auth_of(&store, clock.clone());
        let jobs = Jobs::start(JobsParts {
            store: store.clone(),
            leases: leases.clone(),
            terms,
            member: member.clone(),
            address: shown_url(settings, scheme, address),
            broker: broker.clone(),
            roll: Some(Arc::new(Enrolments(auth.clone()))),
            blobs: blobs.clone(),
            clock: clock.clone(),
            dice: dice.clone(),
            settings: jobs_settings(settings),
        })
        .await
        .map_err(failed)?;
        let shutdown = CancellationToken::new();
        let kv = Kv::start(KvParts {
            store: store.clone(),
            path: kv_path(settings, rabbit.as_ref()),
            at_hand: at_hand(settings, terms.company, &store).await?,
            leases: leases.clone(),
            terms,
            member: member.clone(),
            address: shown_url(settings, scheme, address),
            clock: clock.clone(),
            dice: dice.clone(),
            keep: settings.kv_keep.0,
            keep_bytes: Some(settings.kv_keep_bytes.0).filter(|bytes| *bytes > 0),
            shutdown: shutdown.clone(),
        })
        .await
        .map_err(failed)?;
        let own_name = member.0.clone();
        let monitors = Monitors::start(MonitorsParts {
            store: store.clone(),
            leases: leases.clone(),
            terms,
            member,
            address: shown_url(settings, scheme, address),
            broker: broker.clone(),
            probes: checks::probes(settings, &clock)?,
            clock: clock.clone(),
            dice: dice.clone(),
            keep: settings.monitors_keep.0,
            programs: checks::programs(settings),
            inside: inside(settings),
        })
        .await
        .map_err(failed)?;
        let hearing = nodes::House { store: &store, clock: &clock, dice: &dice, broker: &broker };
        let switchboard = nodes::start(settings, &hearing, terms.company).await?;
        let flows = Flows::start(FlowsParts {
            store: store.clone(),
            leases: leases.clone(),
            terms,
            member: MemberId(own_name.clone()),
            address: shown_url(settings, scheme, address),
            broker: broker.clone(),
            reach: Arc::new(switchboard.clone()),
            namespace: settings.nodes_namespace.clone(),
            clock: clock.clone(),
            dice: dice.clone(),
            keep: settings.flows_keep.0,
            rules: Rules::sharing(settings.flows_memory.0, mutirao_flows::SHARDS),
            shutdown: shutdown.clone(),
        })
        .await
        .map_err(failed)?;
        switchboard.attend(Arc::new(flows.clone()));
        let by_rabbit = nodes::attach(settings, &hearing, &switchboard, rabbit.as_ref(), management.as_ref());
        let mqtt = nodes::listen(settings, &hearing, &switchboard, tls.as_ref()).await?;
        if let Some(management) = management {
            tokio::spawn(leavers::watch(management, jobs.clone(), auth.clone(), clock.clone(), shutdown.clone()));
        }
        let peers = (rabbit.is_some() && matches!(store, Database::Postgres(_)))
            .then(|| Peers::meet(own_name.clone(), pooled.clone(), broker.clone(), clock.clone(), shutdown.clone()));
        let fleets = Fleets::start(FleetsParts {
            store: store.clone(),
            leases: leases.clone(),
            floor: Arc::new(Grounds {
                jobs: jobs.clone(),
                monitors: monitors.clone(),
                checkers: checks::pool(settings),
                schedulers,
                beside,
                managers: peers,
            }),
            identities: Arc::new(Gatekeeper { auth: auth.clone(), ways: ways.clone() }),
            clock: clock.clone(),
            keep: settings.jobs_keep.0,
        });
        jobs.consult(Arc::new(Advice(fleets.clone())));
        fleets.list_also(Arc::new(nodes::Listed(switchboard.clone())));
        fleets.plan_by(Arc::new(OnPaper));
        let streams = Streams::start(StreamsParts {
            store: store.clone(),
            leases,
            terms,
            member: MemberId(own_name.clone()),
            address: shown_url(settings, scheme, address),
            broker: broker.clone(),
            blobs: blobs.clone(),
            roll: Arc::new(streams::Enrolled(auth.clone())),
            receivers: Arc::new(streams::Doors { kv: kv.clone(), flows: flows.clone() }),
            clock: clock.clone(),
            dice: dice.clone(),
            keep: settings.streams_keep.0,
            log_bytes: streams::log_bytes(settings),
            mover: streams::mover(settings, &dice),
            shutdown: shutdown.clone(),
        })
        .await
        .map_err(failed)?;
        let host = streams::host(
            settings,
            &streams::Around {
                streams: &streams,
                member: &own_name,
                broker: &broker,
                blobs: &blobs,
                mqtt: mqtt.as_ref(),
                rabbit: rabbit.as_ref(),
                clock: &clock,
                dice: &dice,
            },
        )?;
        let own_clock = clock.clone();
        let pooled = pooled.map(|worker| (worker, broker.clone()));
        let api = mutirao_api::build(ApiParts {
            auth,
            broker,
            blobs,
            clock,
            capabilities: vec![
                jobs.capability(),
                fleets.capability(),
                monitors.capability(),
                kv.capability(legacy(settings)),
                switchboard.capability(),
                flows.capability(),
                streams.capability(),
                mutirao_flows::catalogue::capability(&switchboard),
            ],
            ways,
            settings: mutirao_api::Settings {
                installation: Some(installation),
                ..api_settings(settings, shown_url(settings, scheme, address), tls)
            },
            shutdown: shutdown.clone(),
        })
        .await
        .map_err(failed)?;
        mutirao_api::describe(mutirao_telemetry::METERS.iter().chain(mutirao_shards::METERS));
        let api = Arc::new(api);
        let token_file = api.auth().admin_token(&data).await.map_err(failed)?;
        let keys = api.auth().lend(flows::OWN_NODE, Role::Keys);
        flows::host(settings, &switchboard, mqtt.as_ref(), &own_clock, (&url, keys))?;
        let serving = tokio::spawn({
            let api = api.clone();
            async move { api.serve(listener).await }
        });
        write_address(&data, &url)?;
        Ok(Self {
            url,
            address,
            pooled,
            clock: own_clock,
            token_file,
            data,
            api,
            jobs,
            fleets,
            monitors,
            kv,
            nodes: switchboard,
            flows,
            streams,
            host,
            mqtt,
            by_rabbit,
            store,
            rabbit,
            shutdown,
            serving,
            _lock: lock,
        })
    }

    /// Where devices reach the MQTT listener, if there is one.
    pub fn mqtt_address(&self) -> Option<SocketAddr> {
        self.mqtt.as_ref().map(Embedded::address)
    }

    /// A one-time token for a worker that this process starts itself.
    pub fn inviter(&self) -> Invite {
        let auth = self.api.auth().clone();
        Box::new(move |queue| {
            let auth = auth.clone();
            Box::pin(async move { Ok(auth.create_enrolment(&queue, "up").await?.token) })
        })
    }

    /// A one-time token for the resource manager that this process runs itself.
    pub async fn invite_elastic(&self) -> Result<String, Failure> {
        let invited = self.api.auth().invite_elastic("up").await;
        Ok(invited.map_err(|problem| Failure::failed(problem.line()))?.token)
    }

    /// The queue of workers that this process starts itself.
    pub async fn ensure_queue(&self, queue: &QueueName) -> Result<(), Failure> {
        self.jobs.ensure_queue(queue.clone()).await.map_err(|problem| Failure::failed(problem.line()))
    }

    /// How the manager hears that a worker process of this machine has died.
    pub fn obituary(&self) -> Obituary {
        let jobs = self.jobs.clone();
        Box::new(move |worker, pid| {
            let jobs = jobs.clone();
            Box::pin(async move { jobs.process_died(worker, machine::host_name(), pid).await })
        })
    }

    /// What tells which processes here rest though nobody wants it. A store that does not answer is asked again.
    pub fn resumed(&self) -> Resumed {
        let fleets = self.fleets.clone();
        Box::new(move || {
            let fleets = fleets.clone();
            Box::pin(async move {
                let Ok((workers, _)) = fleets.workers().await else { return Vec::new() };
                let host = machine::host_name();
                let rests = |view: &&WorkerView| view.state == WorkerState::Drained && view.since.is_none();
                workers.iter().filter(rests).filter(|view| view.host == host).map(|view| view.pid).collect()
            })
        })
    }

    /// Ends when the resource manager that started it sends it home. Cancel-safe.
    pub fn told_to_rest(&self) -> impl Future<Output = ()> + Send + use<> {
        let (pooled, clock) = (self.pooled.clone(), self.clock.clone());
        async move {
            match pooled {
                Some((worker, broker)) => managers::told_to_rest(&worker, &broker, &clock).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Takes no more jobs in. Everything else is still answered, while the workers go home.
    pub fn close(&self) {
        self.jobs.close();
    }

    /// Ends when the API does, which is an error unless [`Self::stop`] was called. Cancel-safe.
    pub async fn broken(&mut self) -> Failure {
        match (&mut self.serving).await {
            Ok(Err(error)) => failed(error),
            Ok(Ok(())) => Failure::failed("the API ended by itself"),
            Err(error) => Failure::failed(format!("the API broke: {error}")),
        }
    }

    /// Down in order: no more requests, then nothing more to write, then the store.
    pub async fn stop(self) {
        // Gone first, so that no command finds a manager that is leaving.
        let _ = std::fs::remove_file(self.data.join(ADDRESS_FILE));
        self.shutdown.cancel();
        if !self.serving.is_finished() {
            let _ = self.serving.await;
        }
        // Parts write down what they remember, and say so, while there is somebody to hear it.
        if let Some(host) = self.host {
            host.stop(&SystemClock).await;
        }
        // Devices first: what they say from now on nobody would take.
        if let Some(mqtt) = self.mqtt {
            mqtt.stop().await;
        }
        if let Some(by_rabbit) = self.by_rabbit {
            by_rabbit.stop().await;
        }
        self.nodes.stop().await;
        // At once: each waits until the other managers stand ready.
        tokio::join!(self.monitors.stop(), self.kv.stop(), self.jobs.stop(), self.flows.stop(), self.streams.stop());
        if let Some(rabbit) = self.rabbit {
            rabbit.close();
        }
        self.store.close().await;
    }
}

pub(crate) fn failed(error: impl std::error::Error) -> Failure {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        // Some errors repeat their cause, some do not.
        if !line.contains(&inner.to_string()) {
            line = format!("{line}: {inner}");
        }
        cause = inner.source();
    }
    Failure::failed(line)
}

/// The checker of this process, if it is to have one. It stands where the nodes of this machine stand.
fn inside(settings: &Settings) -> Option<Inside> {
    let (layer, labels) = (settings.elastic_layer.0, settings.elastic_labels.0.clone());
    match settings.monitors_checker {
        OwnChecker::Inside => Some(Inside { standing: Standing { layer, labels }, bounds: checks::bounds(settings) }),
        OwnChecker::None => None,
    }
}

/// At an address where other managers of this installation may be.
async fn share(
    settings: &Settings,
    scheme: &str,
    data: &Path,
    installation: &InstallationId,
) -> Result<TcpListener, Failure> {
    let address = format!("{scheme}://{}", as_reached_from_here(settings.listen));
    let trust = tls::trust(settings, &address, Some(tls::pin_file(data)))?;
    door::shared(settings.listen, &address, &trust, installation).await
}

/// Only what outlives every manager may stand between a write and the store.
fn kv_path(settings: &Settings, rabbit: Option<&Arc<Rabbit>>) -> KvPath {
    let backlog_max = usize::try_from(settings.kv_backlog_max.0).unwrap_or(usize::MAX);
    rabbit.map_or(KvPath::Commit, |rabbit| KvPath::Queue { broker: rabbit.clone(), backlog_max })
}

/// What another manager writes, this one's memory would not hear of.
async fn at_hand(settings: &Settings, company: Company, store: &Database) -> Result<AtHand, Failure> {
    let here_bytes_max = usize::try_from(settings.kv_cache_size.0).unwrap_or(usize::MAX);
    Ok(match (settings.cache.set(), company) {
        (Some(url), _) => {
            let own = installation::of(store, InstallationId::random()).await.map_err(failed)?;
            let trust = crate::tls::trust(settings, &url.0, None)?;
            AtHand::Redis { url: url.0.clone(), trust, prefix: format!("mutirao:{}:kv:", own.id), here_bytes_max }
        }
        (None, Company::Others) => AtHand::Nowhere,
        (None, Company::Alone) => AtHand::Here { bytes_max: here_bytes_max },
    })
}

fn legacy(settings: &Settings) -> Legacy {
    match settings.kv_legacy_routes {
        Switch::On => Legacy::On,
        Switch::Off => Legacy::Off,
    }
}

fn jobs_settings(settings: &Settings) -> JobsSettings {
    JobsSettings {
        lease: settings.jobs_lease.0,
        waiting_max: settings.jobs_waiting_max.0,
        keep: settings.jobs_keep.0,
        ..JobsSettings::default()
    }
}

pub(crate) fn api_settings(settings: &Settings, shown_url: String, tls: Option<Serving>) -> mutirao_api::Settings {
    let whole = |many: u64| u32::try_from(many).unwrap_or(u32::MAX);
    mutirao_api::Settings {
        hosts: settings.api_hosts.0.iter().cloned().chain(name_in(&shown_url)).collect(),
        url: Some(shown_url),
        rate: Rate::new(whole(settings.api_rate.0), whole(settings.api_burst.0)),
        drain: REQUESTS_DRAIN,
        keep: Keep { revoked: settings.keys_keep.0, audit: settings.audit_keep.0 },
        tls,
        ..mutirao_api::Settings::default()
    }
}

/// Whoever goes where we say that we are comes with the name in it. Plain addresses need no leave.
fn name_in(shown_url: &str) -> Option<String> {
    let (_, rest) = shown_url.split_once("://")?;
    rest.split([':', '/']).next().filter(|name| !name.starts_with('[')).map(str::to_owned)
}

/// `0.0.0.0` is where to listen, not where to go.
fn as_reached_from_here(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, address.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, address.port()).into(),
        _ => address,
    }
}

/// Where others reach the API, as far as this process can know.
pub(crate) fn shown_url(settings: &Settings, scheme: &str, address: SocketAddr) -> String {
    match settings.api_url.set() {
        Some(url) => url.0.trim_end_matches('/').to_owned(),
        None if address.ip().is_unspecified() => format!("{scheme}://{}:{}", machine::host_name(), address.port()),
        None => format!("{scheme}://{address}"),
    }
}

/// All of it or nothing: a command must never read half an address.
fn write_address(data: &Path, url: &str) -> std::io::Result<()> {
    let beside = data.join(format!("{ADDRESS_FILE}.new"));
    std::fs::write(&beside, format!("{url}\n"))?;
    std::fs::rename(&beside, data.join(ADDRESS_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_everybody_is_reached_over_the_loopback() {
        let reached = |text: &str| as_reached_from_here(text.parse().unwrap()).to_string();
        assert_eq!(reached("0.0.0.0:7070"), "127.0.0.1:7070");
        assert_eq!(reached("[::]:1"), "[::1]:1");
        assert_eq!(reached("10.0.0.5:2"), "10.0.0.5:2");
    }

    #[test]
    fn the_api_answers_to_the_name_by_which_workers_are_sent_to_it() {
        assert_eq!(name_in("https://lab.example.org:7070").as_deref(), Some("lab.example.org"));
        assert_eq!(name_in("http://[::1]:7070"), None);
    }
}
