//! Two managers on one PostgreSQL, one RabbitMQ and one Redis, written to through both, while one of them, or RabbitMQ, is killed: what
//! was answered is applied once, in its order, and seen by whoever asks for it, at either.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use mutirao_client::kv::{OnlyIf, Seen, Until};
use mutirao_client::{Client, Credentials};
use mutirao_core::{Clock, SystemClock};
use mutirao_kv::service::{WriteState, WriteView};
use mutirao_kv::view::EntriesView;
use mutirao_testkit::services::{AMQP_VARIABLE, POSTGRES_VARIABLE, REDIS_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, installation::Setup, wait};
use tokio::runtime::Runtime;

use super::super::services_folder;

const WRITERS: usize = 8;
/// Each so-many-th write is a deletion, or is read back through the other manager.
const DELETED: u64 = 7;
const READ_BACK: u64 = 5;
/// Leases run out, RabbitMQ starts, and the machine is busy.
const APPLIED_WITHIN: &str = "60s";
/// A writer that asked a manager that stands still waits for its answer for half a minute.
const LONG: Duration = Duration::from_secs(120);

pub struct Pair {
    pub managers: [Installation; 2],
    pub database: Service,
    pub broker: Service,
    /// It writes snapshots, as they do by default.
    pub cache: Service,
    _folder: tempfile::TempDir,
}

impl Pair {
    /// None, with a notice, when the run has no services. The second manager may be given another way to them.
    pub fn start(fit: impl Fn(usize, Setup, &Service, &Service) -> Setup) -> Option<Self> {
        shared(AMQP_VARIABLE)?;
        shared(POSTGRES_VARIABLE)?;
        shared(REDIS_VARIABLE)?;
        let folder = services_folder();
        let database = Service::postgres(folder.path()).unwrap();
        let broker = Service::rabbitmq(folder.path()).unwrap();
        let cache = Service::redis_that_saves(folder.path()).unwrap();
        let manager = |n: usize| {
            let setup = Installation::setup()
                .manager_alone()
                .set("api.rate", "100000")
                .env("MUTIRAO_DATABASE", database.url())
                .env("MUTIRAO_BROKER", broker.url())
                .env("MUTIRAO_CACHE", cache.url())
                .env("MUTIRAO_BROKER_MANAGEMENT", broker.management_url().unwrap());
            fit(n, setup, &database, &broker).start()
        };
        let managers = [manager(0), manager(1)];
        Some(Self { managers, database, broker, cache, _folder: folder })
    }

    fn clients(&self) -> [Client; 2] {
        self.managers.each_ref().map(|up| Client::new(&up.url(), Credentials::Token(up.token())).unwrap())
    }
}

/// When a write that was not answered may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    BeforeTheNext,
    /// When the network that held it back is mended, also after later ones of other managers.
    AnyTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Put(u64),
    Delete,
}

/// A write that was answered.
struct Answered {
    deed: Deed,
    write: String,
}

/// Writes to its own key, through one manager and the other in turn, until it is over. What is not answered is not written
/// again: the next is another value.
async fn writes(
    clients: [Client; 2],
    key: String,
    unanswered: Unanswered,
    over: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
) -> Vec<Answered> {
    let mut answered = Vec::new();
    for n in 0_u64.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let (client, other) = (&clients[n as usize % 2], &clients[(n as usize + 1) % 2]);
        let (deed, told) = if n % DELETED == DELETED - 1 {
            (Deed::Delete, client.delete_entry::<WriteView>(&key, OnlyIf::Always, Until::Durable).await)
        } else {
            let value = n.to_string().into();
            let put = client.put_entry::<WriteView>(&key, value, None, None, OnlyIf::Always, Until::Durable);
            (Deed::Put(n), put.await)
        };
        let Ok(view) = told else {
            SystemClock.sleep(Duration::from_millis(50)).await;
            continue;
        };
        count.fetch_add(1, Ordering::Relaxed);
        if n % READ_BACK == 0 && unanswered == Unanswered::BeforeTheNext {
            read_back(other, &key, deed, &view.write).await;
        }
        answered.push(Answered { deed, write: view.write });
    }
    answered
}

/// Nobody else writes to this key, so what is there once the write is applied is what it wrote.
async fn read_back(client: &Client, key: &str, deed: Deed, write: &str) {
    let seen = Seen { write: Some(write), wait: Some(APPLIED_WITHIN), ..Seen::default() };
    match client.entry(key, seen).await {
        Ok(read) => {
            let value = std::str::from_utf8(&read.bytes).unwrap().parse().unwrap();
            assert_eq!(Deed::Put(value), deed, "{key} after {write}");
        }
        Err(error) if error.to_string().contains("there is nothing under") => {
            assert_eq!(deed, Deed::Delete, "{key} after {write}");
        }
        // It was killed, or cannot reach what was.
        Err(_) => {}
    }
}

/// What a watcher was told of each key: revisions and what they did.
async fn told(client: &Client, cursor: &str, until: &BTreeMap<String, u64>) -> BTreeMap<String, Vec<(u64, Deed)>> {
    let mut all: BTreeMap<String, Vec<(u64, Deed)>> = BTreeMap::new();
    let mut changes = client.entry_changes("own/", Some(cursor)).await.unwrap();
    let reached = |all: &BTreeMap<String, Vec<(u64, Deed)>>| {
        until.iter().all(|(key, last)| all.get(key).and_then(|told| told.last()).is_some_and(|(at, _)| at >= last))
    };
    while !reached(&all) {
        let change = changes.next().await.unwrap().unwrap();
        let deed = match change.what.as_str() {
            "put" => Deed::Put(change.data["entry"]["value"].as_str().unwrap().parse().unwrap()),
            "delete" => Deed::Delete,
            _ => continue,
        };
        let key = change.data["key"].as_str().unwrap().to_owned();
        all.entry(key).or_default().push((change.data["revision"].as_u64().unwrap(), deed));
    }
    all
}

/// Each answered write was applied, once, in the order of the answers; values never come back.
fn check(
    runtime: &Runtime,
    clients: &[Client; 2],
    cursor: &str,
    answered: &BTreeMap<String, Vec<Answered>>,
    unanswered: Unanswered,
) {
    let mut applied: BTreeMap<String, Vec<(u64, Deed)>> = BTreeMap::new();
    let mut last_put = BTreeMap::new();
    for (n, (key, writes)) in answered.iter().enumerate() {
        assert!(!writes.is_empty(), "nothing was answered of {key}");
        for Answered { deed, write } in writes {
            let asked = clients[n % 2].entry_write::<WriteView>(write, Some(APPLIED_WITHIN));
            let view = runtime.block_on(asked).unwrap_or_else(|error| panic!("{key}, {deed:?}, {write}: {error}"));
            assert!(matches!(view.state, WriteState::Applied | WriteState::Superseded), "{key}, {deed:?}: {view:?}");
            applied.entry(key.clone()).or_default().push((view.revision.unwrap(), *deed));
        }
        let puts = applied[key].iter().filter(|(_, deed)| matches!(deed, Deed::Put(_)));
        last_put.insert(key.clone(), puts.map(|(revision, _)| *revision).max().unwrap());
    }
    let mut told = runtime.block_on(told(&clients[0], cursor, &last_put));
    for (key, applied) in applied {
        assert!(applied.windows(2).all(|two| two[0].0 < two[1].0), "{key}: in the order of the answers");
        let told = told.remove(&key).unwrap();
        assert!(told.windows(2).all(|two| two[0].0 < two[1].0), "{key}: each revision once");
        let values: Vec<u64> =
            told.iter().filter_map(|(_, deed)| if let Deed::Put(n) = deed { Some(*n) } else { None }).collect();
        assert_eq!(values.iter().collect::<BTreeSet<_>>().len(), values.len(), "{key}: none twice: {values:?}");
        let was_answered = |value: &&u64| answered[&key].iter().any(|write| write.deed == Deed::Put(**value));
        let in_order: Vec<&u64> = match unanswered {
            Unanswered::BeforeTheNext => values.iter().collect(),
            Unanswered::AnyTime => values.iter().filter(was_answered).collect(),
        };
        assert!(in_order.windows(2).all(|two| two[0] < two[1]), "{key}: no value comes back: {values:?}");
        let by_revision: BTreeMap<u64, Deed> = told.into_iter().collect();
        for (revision, deed) in applied.iter().filter(|(revision, _)| *revision <= last_put[&key]) {
            match by_revision.get(revision) {
                Some(did) => assert_eq!(did, deed, "{key} at {revision}"),
                // A deletion of what was not there, since the put before it was not answered and not made.
                None => assert_eq!(*deed, Deed::Delete, "{key} at {revision} was never told"),
            }
        }
    }
}

/// Writes through both; in the middle, again and again, a disaster.
fn survives(disasters: u64, disaster: impl FnMut(&mut Pair, u64)) {
    if let Some(pair) = Pair::start(|_, setup, _, _| setup) {
        outlives(pair, Unanswered::BeforeTheNext, disasters, disaster);
    }
}

/// The same of these two. Every second writer asks only the first of them, which goes on when something befalls the other.
pub fn outlives(mut pair: Pair, unanswered: Unanswered, disasters: u64, mut disaster: impl FnMut(&mut Pair, u64)) {
    let runtime = Runtime::new().unwrap();
    let clients = pair.clients();
    let page: EntriesView = runtime.block_on(clients[0].entries("", false, None, None)).unwrap();
    let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let key = format!("own/{writer}");
            let asked = if writer % 2 == 0 { clients.clone() } else { [clients[0].clone(), clients[0].clone()] };
            let writing = writes(asked, key.clone(), unanswered, over.clone(), count.clone());
            (key, runtime.spawn(writing))
        })
        .collect();
    for n in 0..=disasters {
        let before = count.load(Ordering::Relaxed);
        wait::until("more writes", LONG, || count.load(Ordering::Relaxed) >= before + 200);
        if n < disasters {
            disaster(&mut pair, n);
        }
    }
    over.store(true, Ordering::Relaxed);
    let answered = writers.into_iter().map(|(key, task)| (key, runtime.block_on(task).unwrap())).collect();
    check(&runtime, &clients, &page.watch, &answered, unanswered);
}

#[test]
fn a_manager_killed_while_both_are_written_to_loses_no_write_and_brings_none_back() {
    survives(3, |pair, n| {
        let manager = &mut pair.managers[n as usize % 2];
        manager.kill9();
        manager.restart();
    });
}

#[test]
fn a_rabbitmq_killed_while_both_managers_are_written_to_loses_no_write_and_brings_none_back() {
    survives(2, |pair, _| {
        pair.broker.kill9();
        pair.broker.restart().unwrap();
    });
}
