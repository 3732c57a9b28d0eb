//! The machines of one set of hooks as the resource manager sees them. A listing asks the agents, which takes a moment; hooks
//! run beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Mono, WorkerId};
use mutirao_elastic::packing::{Amounts, Kind, Layer, NodeName};
use mutirao_elastic::protocol::OfferedNode;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::books::{At, Books, Heard, Job, Limits, Listed, Machine, Why};
use super::command::{self, Run};
use super::spec::HooksSpec;
use super::way::{Seen, Way};
use super::words::{self, LISTING_BYTES_MAX, Order, Place, Told, Verb};
use crate::local::wire::{Haste, Request, Words};
use crate::local::{Workers, order};
use crate::provider::{Have, Launch, NodeSeen, Origin, Provider, ProviderError};
use crate::ssh::means::Means;

/// The first listing is waited for, since nothing can be said before it; but others wait too.
const FIRST_MAX: Duration = Duration::from_secs(3);
/// What create and destroy print is for nobody.
const CHATTER_BYTES_MAX: usize = 64 << 10;
/// How often machines are told to go that have not gone yet.
const LEAVE_EVERY: Duration = Duration::from_millis(300);

pub struct HooksParts {
    pub spec: HooksSpec,
    /// Part of the names of its machines.
    pub mark: String,
    /// The key with which they are reached, where the settings name no other: its file, and what is to be let in.
    pub key: Option<(PathBuf, String)>,
    /// Where the manager is, as seen from here.
    pub manager: String,
    pub means: Means,
    /// What workers are started with on machines that are reached by ssh, and on those with a folder here.
    pub workers: Workers,
    pub workers_here: Workers,
}

pub struct Hooks {
    inner: Arc<Inner>,
}

struct Inner {
    spec: HooksSpec,
    prefix: String,
    key: Option<(PathBuf, String)>,
    manager: String,
    means: Arc<Means>,
    workers: Workers,
    workers_here: Workers,
    clock: Arc<dyn Clock>,
    books: Mutex<Books>,
    ways: Mutex<BTreeMap<NodeName, (Place, Arc<Way>)>>,
    listed: Notify,
    /// The lease under which it was last asked what there is.
    generation: AtomicU64,
}

impl Hooks {
    pub fn new(parts: HooksParts) -> Self {
        let HooksParts { spec, mark, key, manager, means, workers, workers_here } = parts;
        let kinds = spec
            .kinds
            .iter()
            .map(|kind| (kind.name.clone(), (kind.at_most.unwrap_or(spec.at_most), kind.ready_within.0)));
        let limits = Limits { at_most: spec.at_most, kinds: kinds.collect() };
        let books = Mutex::new(Books::new(limits, spec.list_every.0));
        let (clock, means) = (means.clock.clone(), Arc::new(means));
        let prefix = spec.prefix(&mark);
        let inner = Inner {
            spec,
            prefix,
            key,
            manager,
            means,
            workers,
            workers_here,
            clock,
            books,
            ways: Mutex::default(),
            listed: Notify::new(),
            generation: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Has every machine's workers go home and destroys it, and returns when that is done. Those that another resource manager has
    /// taken over meanwhile, or has made, are left to it. Cancel-safe.
    pub async fn leave(&self, haste: Haste) {
        self.inner.books.lock().close();
        while self.left() > 0 {
            let all: Vec<NodeName> = self.inner.books.lock().machines().keys().cloned().collect();
            self.inner.open_ways();
            join_all(all.iter().map(|node| self.inner.let_go(node, haste))).await;
            self.inner.kick();
            self.inner.clock.sleep(LEAVE_EVERY).await;
        }
    }

    /// Machines that are there and ours, as far as is known.
    pub fn left(&self) -> usize {
        self.inner.books.lock().machines().values().filter(|machine| !machine.is_done_with()).count()
    }
}

impl Inner {
    fn now(&self) -> Mono {
        self.clock.monotonic()
    }

    /// Has hooks run that are due.
    fn kick(self: &Arc<Self>) {
        let jobs = self.books.lock().due(self.now());
        for job in jobs {
            tokio::spawn(self.clone().carry_out(job));
        }
    }

    async fn carry_out(self: Arc<Self>, job: Job) {
        let began = self.now();
        match job {
            Job::List => {
                let said = self.run(Verb::List, None, None).await;
                let said = said.and_then(|printed| read(&printed, &self.prefix));
                if let Err(why) = &said
                    && self.books.lock().trouble() != Some(why)
                {
                    tracing::warn!(hooks = %self.spec.name, why, "the list hook fails");
                }
                self.books.lock().listed(began, self.now(), said);
                self.listed.notify_waiters();
            }
            Job::Create { node, kind } => {
                let said = self.run(Verb::Create, Some(&node), Some(&kind)).await;
                if said.is_ok() {
                    tracing::info!(hooks = %self.spec.name, %node, "a machine is created");
                }
                self.books.lock().created(&node, self.now(), said.map(drop));
            }
            Job::Destroy { node } => {
                let kind = self.books.lock().machines().get(&node).and_then(|machine| machine.kind.clone());
                let said = self.run(Verb::Destroy, Some(&node), kind.as_deref()).await;
                if said.is_ok() {
                    tracing::info!(hooks = %self.spec.name, %node, "a machine is destroyed");
                }
                self.books.lock().destroyed(&node, self.now(), said.map(drop));
            }
        }
    }

    async fn run(&self, verb: Verb, node: Option<&NodeName>, kind: Option<&str>) -> Result<Vec<u8>, String> {
        let spec = &self.spec;
        let kind = kind.and_then(|kind| spec.kind(kind));
        let told = Told {
            verb,
            prefix: &self.prefix,
            manager: &self.manager,
            program: self.means.program.display().to_string(),
            name: node.map(|node| format!("{}{node}", self.prefix)),
            machine: kind.map(|kind| Order::of(kind, self.key.as_ref().map(|(_, public)| public.as_str()))),
        };
        run(spec, &told, &self.clock).await.map_err(|why| format!("{}: {why}", verb.as_str()))
    }

    /// To those that are listed and have a place; those to others are closed.
    fn open_ways(&self) {
        let places: BTreeMap<NodeName, (Place, Option<String>)> = {
            let books = self.books.lock();
            let listed = books.machines().iter().filter(|(_, machine)| machine.is_listed());
            listed.filter_map(|(node, m)| Some((node.clone(), (m.place.clone()?, m.kind.clone())))).collect()
        };
        let mut ways = self.ways.lock();
        let stale = ways.extract_if(.., |node, (place, _)| places.get(node).map(|(place, _)| place) != Some(place));
        for (_, (_, way)) in stale.collect::<Vec<_>>() {
            tokio::spawn(async move { way.close().await });
        }
        for (node, (place, kind)) in places {
            if ways.contains_key(&node) {
                continue;
            }
            let kind = kind.and_then(|kind| self.spec.kind(&kind));
            let own_key = self.key.as_ref().map(|(file, _)| file.as_path());
            match Way::to(&node, &place, kind, own_key, &self.means) {
                Ok(way) => drop(ways.insert(node, (place, Arc::new(way)))),
                Err(why) => self.books.lock().heard(&node, self.now(), Heard::Silent(why)),
            }
        }
    }

    fn way(&self, node: &NodeName) -> Option<Arc<Way>> {
        self.ways.lock().get(node).map(|(_, way)| way.clone())
    }

    /// Asks its agent, and notes what came of it.
    async fn see(&self, node: &NodeName, generation: u64) -> Seen {
        let going = self.books.lock().machines().get(node).and_then(Machine::going);
        match self.way(node) {
            // One of a former kind may have to be reached first.
            Some(way) if going.is_none_or(|why| why == Why::Former) => {
                let seen = way.see(generation).await;
                self.books.lock().heard(node, self.now(), seen.heard.clone());
                if let (Some(Why::Former), Heard::Answers { .. }) = (going, &seen.heard) {
                    // What it does not hear now it hears with the next listing.
                    let _ = way.tell(node, Request::Leave { haste: Haste::Drain }, generation).await;
                }
                seen
            }
            Some(_) => self.send_home(node, Haste::Drain).await,
            None => {
                let seen = Seen::only(Heard::Silent("it has no address yet".into()));
                let listed = self.books.lock().machines().get(node).is_some_and(Machine::is_listed);
                if listed {
                    self.books.lock().heard(node, self.now(), seen.heard.clone());
                }
                seen
            }
        }
    }

    async fn send_home(&self, node: &NodeName, haste: Haste) -> Seen {
        let seen = match self.way(node) {
            Some(way) => way.send_home(haste).await,
            None => Seen::only(Heard::Silent("there is no way to it".into())),
        };
        self.books.lock().heard(node, self.now(), seen.heard.clone());
        seen
    }

    /// It is not needed any more, unless its agent obeys a newer resource manager than this: then it is that one's.
    async fn let_go(&self, node: &NodeName, haste: Haste) {
        let Some(machine) = self.books.lock().machines().get(node).cloned().filter(|machine| !machine.is_ceded())
        else {
            return;
        };
        if let (Some(way), None) = (self.way(node), machine.going()) {
            let told = way.tell(node, Request::Leave { haste }, self.generation.load(Ordering::Relaxed)).await;
            if let Err(ProviderError::Refused(why)) = told {
                tracing::info!(%node, why, "the machine is left to another resource manager");
                return self.books.lock().cede(node);
            }
        }
        self.books.lock().unwant(node, self.now());
        self.send_home(node, haste).await;
    }

    fn shown(&self, node: &NodeName, machine: &Machine, seen: Seen) -> NodeSeen {
        let kind = machine.kind.as_ref().and_then(|kind| self.spec.kind(kind));
        let answers = matches!(seen.heard, Heard::Answers { .. });
        let origin = match machine.at(self.now()) {
            At::Coming | At::Work if machine.leaving.is_some() => Origin::Taken,
            At::Coming => Origin::Made,
            At::Work if seen.heard == Heard::Another => Origin::Standing,
            At::Work => Origin::Made,
            At::Silent => Origin::Standing,
            At::Lost => Origin::Away,
            At::Going => Origin::Leaving,
        };
        let node = OfferedNode {
            name: node.clone(),
            provider: self.spec.name.clone(),
            kind: machine.kind.clone(),
            capacity: kind.map(|kind| kind.capacity()).unwrap_or_default(),
            labels: kind.map(|kind| kind.labels.clone()).unwrap_or_default(),
            layer: kind.map_or(Layer::Cloud, |kind| kind.layer),
            answers,
            note: machine.note(),
            stands: None,
        };
        NodeSeen { node, origin, workers: seen.workers, ended: seen.ended }
    }

    /// What is wrong, where nodes are shown.
    fn troubles(&self) -> Vec<NodeSeen> {
        let books = self.books.lock();
        let paused = books.paused(self.now()).into_iter();
        let mut all: Vec<(String, String)> =
            paused.map(|(kind, why)| (kind, format!("none are created for a while: {why}"))).collect();
        all.extend(books.trouble().map(|why| (self.spec.name.clone(), format!("what there is is not known: {why}"))));
        let word = |(name, note): (String, String)| NodeSeen {
            node: OfferedNode {
                name: NodeName(name),
                provider: self.spec.name.clone(),
                kind: None,
                capacity: Amounts::default(),
                labels: BTreeMap::new(),
                layer: Layer::Cloud,
                answers: false,
                note: Some(note),
                stands: None,
            },
            origin: Origin::Away,
            workers: BTreeMap::new(),
            ended: BTreeSet::new(),
        };
        all.into_iter().map(word).collect()
    }

    async fn first_listing(&self) -> Result<(), ProviderError> {
        let known = async {
            loop {
                let listed = self.listed.notified();
                tokio::pin!(listed);
                listed.as_mut().enable();
                let (known, trouble) = {
                    let books = self.books.lock();
                    (books.is_known(), books.trouble().map(str::to_owned))
                };
                match (known, trouble) {
                    (true, _) => return Ok(()),
                    (false, Some(why)) => {
                        return Err(ProviderError::Refused(format!("what there is is not known: {why}")));
                    }
                    (false, None) => listed.await,
                }
            }
        };
        let late = ProviderError::Refused("list: it takes long to say what there is".into());
        self.clock.timeout(FIRST_MAX, known).await.unwrap_or(Err(late))
    }
}

#[async_trait]
impl Provider for Hooks {
    fn name(&self) -> &str {
        &self.inner.spec.name
    }

    /// As the list hook said last. Agents are asked themselves, so a list hook that fails keeps nobody from working.
    async fn list(&self, generation: u64) -> Result<Have, ProviderError> {
        let inner = &self.inner;
        inner.generation.store(generation, Ordering::Relaxed);
        inner.kick();
        inner.first_listing().await?;
        inner.open_ways();
        let names: Vec<NodeName> = inner.books.lock().machines().keys().cloned().collect();
        let seen = join_all(names.iter().map(|node| inner.see(node, generation))).await;
        let mut nodes = Vec::with_capacity(names.len());
        for (node, seen) in names.into_iter().zip(seen) {
            let machine = inner.books.lock().machines().get(&node).cloned();
            nodes.extend(machine.map(|machine| inner.shown(&node, &machine, seen)));
        }
        nodes.extend(inner.troubles());
        Ok(Have { nodes })
    }

    async fn launch(&self, launch: &Launch, generation: u64) -> Result<(), ProviderError> {
        let inner = &self.inner;
        let node = &launch.node;
        let kind = inner.books.lock().machines().get(node).and_then(|machine| machine.kind.clone());
        let (Some(kind), Some(way)) = (kind.and_then(|kind| inner.spec.kind(&kind)), inner.way(node)) else {
            return Err(ProviderError::NoSuchNode { node: node.clone() });
        };
        let words =
            Words { name: node.clone(), capacity: kind.capacity(), labels: kind.labels.clone(), layer: kind.layer };
        let workers = match &*way {
            Way::Host(_) => &inner.workers,
            Way::Folder { .. } => &inner.workers_here,
        };
        let mut order = order(workers, &words, launch)?;
        way.direct(&mut order).map_err(|why| ProviderError::Silent { node: node.clone(), why })?;
        way.tell(node, Request::Launch(Box::new(order)), generation).await
    }

    /// Yes for a machine that cannot be reached: whoever is listed when it is back is ended then.
    async fn end(&self, worker: &WorkerId, node: &NodeName, generation: u64) -> Result<(), ProviderError> {
        let Some(way) = self.inner.way(node) else { return Ok(()) };
        match way.tell(node, Request::End { worker: worker.clone() }, generation).await {
            Err(ProviderError::Silent { .. }) => Ok(()),
            told => told,
        }
    }

    async fn kinds(&self) -> Result<Vec<Kind>, ProviderError> {
        let (books, now) = (self.inner.books.lock(), self.inner.now());
        Ok(self.inner.spec.kinds.iter().map(|kind| kind.kind(books.room(&kind.name, now))).collect())
    }

    async fn create_node(&self, node: &NodeName, kind: &str, _: u64) -> Result<(), ProviderError> {
        if self.inner.spec.kind(kind).is_none() {
            return Err(ProviderError::NoSuchKind { provider: self.inner.spec.name.clone(), kind: kind.into() });
        }
        let wanted = self.inner.books.lock().want(node, kind, self.inner.now());
        wanted.map_err(|why| ProviderError::Refused(format!("{kind}: {why}")))?;
        self.inner.kick();
        Ok(())
    }

    /// Its agent is told first: one that has heard of a newer resource manager refuses, and then nothing is destroyed.
    async fn remove_node(&self, node: &NodeName, generation: u64) -> Result<(), ProviderError> {
        if let Some(way) = self.inner.way(node) {
            let told = way.tell(node, Request::Leave { haste: Haste::Drain }, generation).await;
            if let Err(refused @ ProviderError::Refused(_)) = told {
                return Err(refused);
            }
        }
        self.inner.books.lock().unwant(node, self.inner.now());
        self.inner.kick();
        Ok(())
    }
}

fn read(printed: &[u8], prefix: &str) -> Result<Vec<Listed>, String> {
    words::read(printed, prefix).map_err(|why| format!("{}: {why}", Verb::List.as_str()))
}

async fn run(spec: &HooksSpec, told: &Told<'_>, clock: &Arc<dyn Clock>) -> Result<Vec<u8>, String> {
    let (command, limit, printed_max) = match told.verb {
        Verb::Create => (&spec.create, spec.create_within, CHATTER_BYTES_MAX),
        Verb::List => (&spec.list, spec.list_within, LISTING_BYTES_MAX),
        Verb::Destroy => (&spec.destroy, spec.destroy_within, CHATTER_BYTES_MAX),
    };
    let run = Run {
        words: command.all(),
        dir: &spec.beside,
        environment: told.environment(),
        stdin: told.line(),
        limit: limit.0,
        printed_max,
    };
    run.done(clock).await
}

/// Has the list hook run once, for people: the machines there are. The others are only looked at.
pub async fn look(
    spec: &HooksSpec,
    mark: &str,
    manager: &str,
    program: String,
    clock: Arc<dyn Clock>,
) -> Result<Vec<Listed>, String> {
    for (verb, command) in [(Verb::Create, &spec.create), (Verb::Destroy, &spec.destroy)] {
        if let Some(why) = command::wrong(command.all(), &spec.beside) {
            return Err(format!("{}: {why}", verb.as_str()));
        }
    }
    let prefix = spec.prefix(mark);
    let told = Told { verb: Verb::List, prefix: &prefix, manager, program, name: None, machine: None };
    let printed = run(spec, &told, &clock).await.map_err(|why| format!("list: {why}"))?;
    read(&printed, &prefix)
}
