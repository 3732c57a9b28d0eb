//! Results on their way: kept on disk until somebody else has them. Whoever works with the spool waits for the disk on a thread
//! for that: the node has one thread for everything else, and what it hears must not wait with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice};
use mutirao_nodes::errand::End;
use mutirao_nodes::wire::{self, MESSAGE_BYTES_MAX, Message, Word};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::spool::Spool;
use super::{Agent, Kept, Line, key_of};

/// Results that wait for an answer from the other side at the same time. Fewer than a line has unanswered at once: a manager
/// that takes no results for a while must still hear who is there.
const UNDER_WAY_MAX: usize = 12;
/// What somebody takes within this need not be on disk. Until then its message is not accepted, and comes again after a power
/// cut: no more is lost than while a disk takes its time.
const GRACE: Duration = Duration::from_millis(5);
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// For the packet around a result.
const ENVELOPE_BYTES: usize = 1 << 10;

pub struct Results {
    spool: Arc<Mutex<Spool>>,
    /// Whether one more can be kept; whoever has the spool says so.
    has_room: Arc<AtomicBool>,
    freed: Notify,
    line: Arc<dyn Line>,
    under_way: Semaphore,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
}

/// A result as it travels. A failure is an object with an `error`.
pub fn written(message: &Message, end: End) -> String {
    let result = |data: String| {
        wire::written(&Message { action: message.action.clone(), request: message.request.clone(), data })
    };
    let failed = |why: &str| result(serde_json::json!({"error": why}).to_string());
    match end {
        End::Failed(why) => failed(&why),
        End::Ok(output) => {
            let text = result(output);
            if text.len() + ENVELOPE_BYTES <= MESSAGE_BYTES_MAX {
                text
            } else {
                failed("its output is too long to be sent")
            }
        }
    }
}

impl Results {
    pub fn new(spool: Spool, line: Arc<dyn Line>, clock: Arc<dyn Clock>, dice: Arc<Dice>) -> Self {
        let has_room = Arc::new(AtomicBool::new(spool.has_room()));
        let spool = Arc::new(Mutex::new(spool));
        Self { spool, has_room, freed: Notify::new(), line, under_way: Semaphore::new(UNDER_WAY_MAX), clock, dice }
    }

    /// Until one more result can be kept: nothing is run whose result has nowhere to go.
    pub async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            if self.has_room.load(Ordering::Acquire) {
                return;
            }
            freed.await;
        }
    }

    /// What is done with the spool. None: it broke.
    async fn with_spool<T: Send + 'static>(&self, work: impl FnOnce(&mut Spool) -> T + Send + 'static) -> Option<T> {
        let (spool, has_room) = (self.spool.clone(), self.has_room.clone());
        let worked = tokio::task::spawn_blocking(move || {
            let mut spool = spool.lock();
            let came_of_it = work(&mut spool);
            has_room.store(spool.has_room(), Ordering::Release);
            came_of_it
        });
        let came_of_it = worked.await.ok();
        self.freed.notify_waiters();
        came_of_it
    }

    /// Its number, once it is on disk; or once it was `taken`, and need not be.
    pub async fn keep(&self, text: String, taken: &Notify) -> Option<u64> {
        let kept = async {
            let number = self.with_spool(move |spool| spool.put(text)).await?;
            if let Ok(number) = number
                && self.clock.timeout(GRACE, taken.notified()).await.is_err()
            {
                // One that is not on disk is no result that waits.
                let synced = move |spool: &mut Spool| spool.sync().inspect_err(|_| spool.gone(number));
                return Some(self.with_spool(synced).await?.map(|()| number));
            }
            Some(number)
        };
        match kept.await? {
            Ok(number) => Some(number),
            Err(error) => {
                tracing::warn!("a result cannot be kept on disk until it is sent: {error}");
                None
            }
        }
    }

    /// Of one that is still kept.
    pub async fn text(&self, number: u64) -> Option<String> {
        self.with_spool(move |spool| spool.text(number).map(str::to_owned)).await?
    }

    /// Somebody else has it.
    pub async fn gone(&self, number: u64) {
        self.with_spool(move |spool| spool.gone(number)).await;
    }

    /// Until it is said. Between two tries it is others' turn: one that nobody takes keeps back no other.
    pub async fn say(&self, text: String) {
        let mut pause = PAUSE_MIN;
        loop {
            let Ok(turn) = self.under_way.acquire().await else { return };
            let Err(why) = self.line.result(text.clone()).await else { return };
            drop(turn);
            tracing::debug!("a result was not sent: {why}");
            self.clock.sleep(self.dice.jitter(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Once: whoever asked will ask again.
    pub async fn say_again(&self, text: String) {
        let Ok(_turn) = self.under_way.acquire().await else { return };
        if let Err(why) = self.line.result(text).await {
            tracing::debug!("an answer was not sent again: {why}");
        }
    }
}

impl Agent {
    /// What was left from before.
    pub(super) fn replay(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let waiting: Vec<(u64, String)> =
            self.results.spool.lock().waiting().map(|(number, text)| (number, text.to_owned())).collect();
        for (number, text) in waiting {
            let key = Message::read(text.as_bytes()).map(|message| key_of(&message)).unwrap_or_default();
            let saying = self.clone().saying(text.clone());
            tasks.spawn(self.clone().send(Kept { key, number, text, saying }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use async_trait::async_trait;
    use mutirao_core::SystemClock;
    use mutirao_nodes::{Layer, Offer};
    use tokio::sync::{mpsc, oneshot};

    use super::*;
    use crate::agent::spool::Sync;
    use crate::agent::{Heard, Me};
    use crate::table::Entry;
    use crate::{Action, Table};

    struct Echo;

    #[async_trait]
    impl Action for Echo {
        async fn run(&self, data: &str) -> Result<String, String> {
            Ok(data.to_owned())
        }
    }

    /// Whoever takes results, and counts them; or takes none.
    struct Taker {
        taken: AtomicUsize,
        takes: bool,
    }

    /// One that cannot take what is stuck.
    struct Particular(AtomicUsize);

    #[async_trait]
    impl Line for Particular {
        async fn register(&self, _: String) -> Result<(), String> {
            Ok(())
        }

        async fn result(&self, text: String) -> Result<(), String> {
            if text.contains("stuck") {
                return Err("nobody here can read its run".into());
            }
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    #[async_trait]
    impl Line for Taker {
        async fn register(&self, _: String) -> Result<(), String> {
            Ok(())
        }

        async fn result(&self, _: String) -> Result<(), String> {
            if !self.takes {
                return Err("away".into());
            }
            self.taken.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    fn message(request: &str) -> Message {
        let action = "urn:mutirao:Action:echo".into();
        Message { action, request: request.into(), data: "7".into() }
    }

    fn agent(spool: Spool, line: Arc<Taker>) -> Arc<Agent> {
        let table = Arc::new(Table::new(SystemClock::shared()));
        let action = "urn:mutirao:Action:echo".parse().unwrap();
        table.put(Entry::new(Offer { action, version: 0 }, Arc::new(Echo))).unwrap();
        let me = Me {
            node: "n".parse().unwrap(),
            layer: Layer::Edge,
            namespace: Default::default(),
            endpoint: String::new(),
            labels: Default::default(),
            slots: 1,
        };
        Agent::new(me, table, line, spool, SystemClock::shared(), Arc::new(Dice::seeded(1)))
    }

    async fn accepted(hear: &mpsc::Sender<Heard>, request: &str) {
        let (tell, told) = oneshot::channel();
        let accept = Box::new(move || {
            let _ = tell.send(());
        });
        hear.send(Heard::Message(wire::written(&message(request)).into(), accept)).await.ok().unwrap();
        told.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_asked_waits_for_no_disk_and_what_was_taken_is_not_said_again_after_a_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let line = Arc::new(Taker { taken: AtomicUsize::new(0), takes: true });
        let agent = agent(Spool::open(&path).unwrap(), line.clone());
        let spool = agent.results.spool.clone();
        let (hear, heard) = mpsc::channel(4);
        let running = tokio::spawn(agent.run(heard, std::future::pending()));
        // What was left from before was looked for once something is heard.
        let (tell, told) = oneshot::channel();
        let accept = Box::new(move || {
            let _ = tell.send(());
        });
        hear.send(Heard::Message("rubbish".into(), accept)).await.ok().unwrap();
        told.await.unwrap();
        // A disk that takes its time.
        let (let_go, held) = std::sync::mpsc::sync_channel::<()>(1);
        let (is_held, holds) = oneshot::channel();
        let holder = std::thread::spawn(move || {
            let _held = spool.lock();
            let _ = is_held.send(());
            let _ = held.recv();
        });
        holds.await.unwrap();
        accepted(&hear, "r1").await;
        assert_eq!(line.taken.load(Ordering::SeqCst), 1, "it was taken, and so its message is done with");
        let_go.send(()).unwrap();
        holder.join().unwrap();
        drop(hear);
        running.await.unwrap();
        assert_eq!(Spool::open(&path).unwrap().waiting().count(), 0, "nothing is left to be said");
    }

    #[tokio::test]
    async fn what_is_taken_at_once_costs_no_disk_and_outlives_the_process_all_the_same_until_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let line = Arc::new(Taker { taken: AtomicUsize::new(0), takes: true });
        let agent = agent(Spool::open(&path).unwrap(), line);
        let taken = Notify::new();
        taken.notify_one();
        let number = agent.results.keep("taken".into(), &taken).await.unwrap();
        assert_eq!(agent.results.spool.lock().sync, Sync::Due);
        let left = |path| Spool::open(path).unwrap().waiting().map(|(_, text)| text.to_owned()).collect::<Vec<_>>();
        assert_eq!(left(&path), ["taken"], "should the process end here");
        agent.results.gone(number).await;
        assert!(left(&path).is_empty());
        agent.results.keep("waits".into(), &Notify::new()).await.unwrap();
        assert_eq!(agent.results.spool.lock().sync, Sync::Done);
        assert_eq!(left(&path), ["waits"]);
    }

    #[tokio::test]
    async fn results_that_nobody_takes_keep_back_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(&folder.path().join("spool")).unwrap();
        let line = Arc::new(Particular(AtomicUsize::new(0)));
        let results = Results::new(spool, line.clone(), SystemClock::shared(), Arc::new(Dice::seeded(1)));
        let stuck = futures_util::future::join_all((0..3 * UNDER_WAY_MAX).map(|n| results.say(format!("stuck {n}"))));
        tokio::select! {
            // All of them had their turn before.
            biased;
            _ = stuck => panic!("they are taken"),
            () = results.say("another".into()) => {}
            () = SystemClock.sleep(Duration::from_secs(20)) => panic!("it waits for those"),
        }
        assert_eq!(line.0.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_message_is_done_with_once_its_result_is_on_disk_though_nobody_takes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let line = Arc::new(Taker { taken: AtomicUsize::new(0), takes: false });
        let agent = agent(Spool::open(&path).unwrap(), line);
        let (hear, heard) = mpsc::channel(4);
        let running = tokio::spawn(agent.run(heard, std::future::pending()));
        accepted(&hear, "r1").await;
        running.abort();
        let kept = Spool::open(&path).unwrap();
        assert_eq!(kept.waiting().filter(|(_, text)| text.contains("r1")).count(), 1);
    }
}
