//! The real resource manager with the real provider of local nodes, in this process, so that the provider can be made to fail
//! and the clock to jump.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use mutirao_client::{Client, Credentials, Signer, WorkerKey};
use mutirao_core::auth::Enrol;
use mutirao_core::clock::Sleep;
use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_core::{Clock, Dice, Mono, SystemClock, Timestamp, WorkerId};
use mutirao_elastic::Terms;
use mutirao_elastic::packing::{Amounts, Kind, Layer, NodeName};
use mutirao_resource::local::{Local, LocalParts, NodeShape, Workers};
use mutirao_resource::{Have, HttpManager, Launch, Parts, Provider, ProviderError};
use mutirao_testkit::{Installation, wait};
use rustix::process::Signal;
use tokio_util::sync::CancellationToken;

use super::{Effects, MAX, Work, installation, send, within_limits};
use crate::said::SOON;

/// Every third call fails; every other of these has done its work all the same.
struct EveryThird {
    inner: Arc<Local>,
    calls: AtomicU64,
    failures: AtomicU64,
}

impl EveryThird {
    async fn call<T>(&self, work: impl Future<Output = Result<T, ProviderError>>) -> Result<T, ProviderError> {
        let n = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if !n.is_multiple_of(3) {
            return work.await;
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        if n.is_multiple_of(2) {
            let _ = work.await;
        }
        Err(ProviderError::Refused("the third call fails".into()))
    }
}

#[async_trait]
impl Provider for EveryThird {
    fn name(&self) -> &str {
        "every third"
    }

    async fn list(&self, generation: u64) -> Result<Have, ProviderError> {
        self.call(self.inner.list(generation)).await
    }

    async fn launch(&self, launch: &Launch, generation: u64) -> Result<(), ProviderError> {
        self.call(self.inner.launch(launch, generation)).await
    }

    async fn end(&self, worker: &WorkerId, node: &NodeName, generation: u64) -> Result<(), ProviderError> {
        self.call(self.inner.end(worker, node, generation)).await
    }

    async fn kinds(&self) -> Result<Vec<Kind>, ProviderError> {
        self.inner.kinds().await
    }

    async fn create_node(&self, node: &NodeName, kind: &str, generation: u64) -> Result<(), ProviderError> {
        self.inner.create_node(node, kind, generation).await
    }

    async fn remove_node(&self, node: &NodeName, generation: u64) -> Result<(), ProviderError> {
        self.inner.remove_node(node, generation).await
    }
}

/// The machine's clocks, with a wall that can be moved.
#[derive(Default)]
struct Jumping {
    by_ms: AtomicI64,
}

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.by_ms.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Mono {
        SystemClock.monotonic()
    }

    fn sleep(&self, for_: Duration) -> Sleep<'_> {
        Box::pin(async move { SystemClock.sleep(for_).await })
    }
}

async fn enrolled(up: &Installation) -> Client {
    let (token, key) = (up.ok(&["elastic", "invite"]).trim().to_owned(), WorkerKey::generate());
    let enrol = Enrol { token, public_key: key.public_base64(), name: "lab".into() };
    let stranger = Client::new(&up.url(), Credentials::None).unwrap();
    let enrolled = stranger.enrol_elastic(&enrol).await.unwrap();
    let signer = Signer::new(WorkerId(enrolled.key), key, SystemClock::shared());
    Client::new(&up.url(), Credentials::Key(signer)).unwrap()
}

fn local(up: &Installation, clock: Arc<dyn Clock>) -> Arc<Local> {
    let shape = |n| NodeShape {
        name: NodeName(format!("lab-{n}")),
        capacity: Amounts::of(Cpus { milli: 3_000 }, Bytes(1 << 30)),
        labels: Default::default(),
        layer: Layer::Cloud,
    };
    Arc::new(Local::new(LocalParts {
        program: mutirao_testkit::installation::binary(),
        dir: up.data().join("nodes"),
        nodes: vec![shape(1), shape(2)],
        workers: Workers {
            url: up.url(),
            pin: up.data().join("tls.pem"),
            way: "auto".into(),
            ca: None,
            collector: None,
            checkers: vec![],
            schedulers: None,
            managers: None,
        },
        clock,
    }))
}

#[test]
fn a_provider_that_fails_each_third_call_a_mute_worker_and_a_jumping_clock_lose_no_task_and_leak_no_worker() {
    let up = installation();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let clock = Arc::new(Jumping::default());
    let dir = up.data().join("rm");
    std::fs::create_dir_all(&dir).unwrap();
    let client = runtime.block_on(enrolled(&up));
    let provider = Arc::new(EveryThird {
        inner: local(&up, clock.clone()),
        calls: AtomicU64::new(0),
        failures: AtomicU64::new(0),
    });
    let stop = CancellationToken::new();
    let acting = runtime.spawn(mutirao_resource::run(
        Parts {
            manager: Arc::new(HttpManager::new(client, clock.clone())),
            provider: provider.clone(),
            clock: clock.clone(),
            dice: Arc::new(Dice::seeded(7)),
            terms: Terms { report_in: Duration::from_secs(8), ..Terms::default() },
            lease: Default::default(),
            host: "lab".into(),
            dir,
        },
        stop.clone(),
    ));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for by_ms in [3_600_000, -7_200_000, 86_400_000, 0].into_iter().cycle() {
                if wait::holds_within(Duration::from_secs(4), || over.load(Ordering::Relaxed)) {
                    return;
                }
                clock.by_ms.store(by_ms, Ordering::Relaxed);
            }
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let effects = Effects::new();
            within_limits(&up, &effects, || {
                let work = Work::submit(&up, &effects);
                let mute = wait::some("a worker", SOON, || up.worker_pids().first().copied());
                send(mute, Signal::STOP);
                work.ends_ok(&up);
                wait::until("all to have been there", SOON, || up.worker_pids().len() <= MAX);
                wait::until("the mute one to be given up", SOON, || !up.worker_pids().contains(&mute));
                work.all_is_well(&up, 1);
            });
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
    let failures = provider.failures.load(Ordering::Relaxed);
    assert!(failures > 5, "{failures} failures prove little");
    stop.cancel();
    runtime.block_on(acting).unwrap().unwrap();
}
