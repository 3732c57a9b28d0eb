//! A host: says each second how its parts are, and runs what it is told to. Orders are the whole of it each time: what is not in
//! them is stopped, and a part whose epoch changed begins anew. A host that hears nothing goes on with what it has.

mod beating;
mod roster;

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::Shared;
use mutirao_core::blobs::Blobs;
use mutirao_core::{Clock, Dice};
use mutirao_streams::wire::HostView;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::ends::Ends;
use crate::manager::Manager;

/// How long a host that is asked to stop may take to write down what its parts remember.
const LAST_WORDS_MAX: Duration = Duration::from_secs(15);

pub struct HostParts {
    pub view: HostView,
    pub broker: Shared,
    pub blobs: Arc<dyn Blobs>,
    pub manager: Arc<dyn Manager>,
    pub ends: Ends,
    /// Threads of its runtime.
    pub threads: usize,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
}

/// Dropped, it ends at once, as if killed.
pub struct Host {
    stop: CancellationToken,
    /// By whom it was followed, if so.
    followed: watch::Receiver<Option<String>>,
    beating: Option<std::thread::JoinHandle<()>>,
    killed: CancellationToken,
}

impl Host {
    /// On threads of its own.
    pub fn start(parts: HostParts) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(parts.threads.max(1))
            .thread_name("streams")
            .enable_all()
            .build()?;
        let (stop, killed) = (CancellationToken::new(), CancellationToken::new());
        let (told, followed) = watch::channel(None);
        let (stopped, dead) = (stop.clone(), killed.clone());
        // The runtime is dropped where it may block: whoever drops a host may stand in another runtime.
        let beating = std::thread::Builder::new().name("host".into()).spawn(move || {
            runtime.block_on(async {
                dead.run_until_cancelled(beating::run(parts, stopped, told)).await;
            });
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?;
        Ok(Self { stop, followed, beating: Some(beating), killed })
    }

    /// Writes down what its parts remember, says so, and goes.
    pub async fn stop(mut self, clock: &dyn Clock) {
        use mutirao_core::clock::ClockExt;
        self.stop.cancel();
        let Some(beating) = self.beating.take() else { return };
        let ended = tokio::task::spawn_blocking(move || beating.join());
        if clock.timeout(LAST_WORDS_MAX + Duration::from_secs(3), ended).await.is_err() {
            tracing::warn!("the host of streams did not end in time: its parts are read on from older snapshots");
        }
    }

    /// Waits until another process speaks for this host, and says so; for ever, if none does.
    pub async fn followed(&self) -> String {
        let mut followed = self.followed.clone();
        let why = followed.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.killed.cancel();
    }
}
