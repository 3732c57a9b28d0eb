//! A node: answers its resource manager over the socket in its folder, starts and ends workers, and outlives whoever
//! started it. It has no word with the manager; its workers speak for themselves.
//!
//! **Whom it obeys.** Calls name the generation of the lease they were decided under; one that is older than the newest it has
//! heard of is refused, since its caller was frozen and has been succeeded. This is not written down: an agent that is new
//! knows no generation, so that one left over from another installation cannot keep a node from working for ever.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Mono};
use mutirao_store::{FolderLock, StoreError};
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::sync::Notify;

use super::children::Children;
use super::wire::{self, Answer, Haste, Question, Request, Words};

/// Nobody has asked anything for this long: the resource manager is gone for good, so the workers are sent home. As long as
/// an orphaned worker waits for its manager.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Nobody has asked anything for this long, many times the pace of a resource manager: nobody waits for what is asked of it.
const UNLED_AFTER: Duration = Duration::from_secs(5);
/// Nobody has asked anything for this long: said once, for whoever wonders why workers are there and nobody leads them.
const ALONE_AFTER: Duration = Duration::from_secs(30);
/// How often it is looked whether anything is left to wait for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long somebody who connected may take to ask.
const QUESTION_MAX: Duration = Duration::from_secs(5);
const FOLDER_MODE: u32 = 0o700;

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the node's folder {path} is in use by process {pid}; use another --dir")]
    InUse { path: String, pid: String },
    #[error("the node's folder {dir} cannot be used: {why}")]
    Folder { dir: String, why: String },
}

pub struct Agent {
    words: Words,
    children: Arc<Children>,
    clock: Arc<dyn Clock>,
    asked_at: Mutex<Mono>,
    /// The newest generation that has asked anything.
    newest: Mutex<u64>,
    leaving: Mutex<Option<Haste>>,
    hurry: Notify,
    listener: tokio::net::UnixListener,
    _lock: FolderLock,
}

impl Agent {
    pub fn open(dir: PathBuf, words: Words, clock: Arc<dyn Clock>) -> Result<Self, AgentError> {
        let wrong = |why: String| AgentError::Folder { dir: dir.display().to_string(), why };
        let lock = FolderLock::take(&dir).map_err(|error| match error {
            StoreError::InUse { path, pid } => AgentError::InUse { path, pid },
            error => wrong(error.to_string()),
        })?;
        let private = std::fs::Permissions::from_mode(FOLDER_MODE);
        std::fs::set_permissions(&dir, private).map_err(|error| wrong(error.to_string()))?;
        let children = Children::find(dir.join("workers"), clock.clone()).map_err(|error| wrong(error.to_string()))?;
        let listener = wire::listen(&dir).map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            words,
            children,
            asked_at: Mutex::new(clock.monotonic()),
            newest: Mutex::default(),
            clock,
            leaving: Mutex::default(),
            hurry: Notify::new(),
            listener,
            _lock: lock,
        })
    }

    /// Serves until it was told to leave, or forgotten, and its workers are gone.
    pub async fn serve(self: Arc<Self>) {
        tracing::info!(node = %self.words.name, "node up");
        let answering = async {
            loop {
                match self.listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(self.clone().answer(stream))),
                    Err(error) => {
                        tracing::warn!(%error, "nobody can be answered for now");
                        self.clock.sleep(LOOK_EVERY).await;
                    }
                }
            }
        };
        tokio::select! {
            () = answering => {}
            () = self.over() => {}
        }
        tracing::info!(node = %self.words.name, "node gone");
    }

    /// From outside: as a signal asks.
    pub fn leave(&self, haste: Haste) {
        {
            let mut leaving = self.leaving.lock();
            *leaving = (*leaving).max(Some(haste));
        }
        self.children.send_all(haste);
        self.hurry.notify_one();
    }

    /// Returns when no resource manager asks for anything.
    pub async fn alone(&self) {
        while self.alone_for() < UNLED_AFTER {
            self.clock.sleep(LOOK_EVERY).await;
        }
    }

    fn alone_for(&self) -> Duration {
        self.clock.monotonic().since(*self.asked_at.lock())
    }

    async fn over(&self) {
        let mut said_alone = false;
        loop {
            let leaving = *self.leaving.lock();
            if leaving.is_some() && self.children.is_empty() {
                return;
            }
            let alone_for = self.alone_for();
            if alone_for < ALONE_AFTER {
                said_alone = false;
            } else if leaving.is_none() && !std::mem::replace(&mut said_alone, true) {
                let (workers, go_after_s) = (self.children.list().len(), FORGOTTEN_AFTER.as_secs());
                tracing::warn!(workers, go_after_s, "no resource manager asks for this node any more");
            }
            if leaving.is_none() && alone_for >= FORGOTTEN_AFTER {
                tracing::warn!("no resource manager has asked for long: the workers go home");
                self.leave(Haste::Drain);
            }
            tokio::select! {
                () = self.clock.sleep(LOOK_EVERY) => {}
                () = self.children.gone.notified() => {}
                () = self.hurry.notified() => {}
            }
        }
    }

    async fn answer(self: Arc<Self>, mut stream: UnixStream) {
        let (reading, _) = stream.split();
        let question = match self.clock.timeout(QUESTION_MAX, wire::hear(reading)).await {
            Ok(Ok(question)) => question,
            // Whoever cannot ask needs no answer.
            Ok(Err(_)) | Err(_) => return,
        };
        let answer = self.hear(question).await;
        let _ = wire::say(&mut stream, &answer).await;
    }

    async fn hear(self: &Arc<Self>, Question { request, generation }: Question) -> Answer {
        if let Some(generation) = generation {
            let mut newest = self.newest.lock();
            if generation < *newest {
                return Answer::Failed { why: "another resource manager has asked since".into() };
            }
            *newest = generation;
        }
        *self.asked_at.lock() = self.clock.monotonic();
        self.obey(request).await
    }

    async fn obey(self: &Arc<Self>, request: Request) -> Answer {
        match request {
            Request::List => {
                // The living first: whoever ends in between is in both, and dead.
                let workers = self.children.list();
                let ended = self.children.ended();
                Answer::Have { node: self.words.clone(), workers, ended }
            }
            Request::Launch(_) if self.leaving.lock().is_some() => {
                Answer::Failed { why: "this node is about to go".into() }
            }
            Request::Launch(order) => match self.children.launch(&order).await {
                Ok(()) => Answer::Done,
                Err(error) => Answer::Failed { why: format!("the worker cannot be started: {error}") },
            },
            Request::End { worker } => {
                self.children.end(&worker);
                Answer::Done
            }
            Request::Leave { haste } => {
                self.leave(haste);
                Answer::Done
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mutirao_core::SystemClock;
    use mutirao_elastic::packing::{Amounts, Layer, NodeName};

    use super::*;

    #[tokio::test]
    async fn a_node_obeys_nobody_whose_lease_is_older_than_one_it_has_heard_of() {
        let dir = tempfile::tempdir().unwrap();
        let (name, capacity) = (NodeName("n".into()), Amounts::default());
        let words = Words { name, capacity, labels: Default::default(), layer: Layer::Cloud };
        let agent = Arc::new(Agent::open(dir.path().into(), words, SystemClock::shared()).unwrap());
        let serving = tokio::spawn(agent.clone().serve());
        let ask = async |request: Request, generation: Option<u64>| {
            wire::ask(dir.path(), &Question { request, generation }).await.unwrap()
        };
        let end = || Request::End { worker: mutirao_core::WorkerId("w1".into()) };
        assert!(matches!(ask(Request::List, Some(7)).await, Answer::Have { .. }));
        assert!(matches!(ask(end(), Some(6)).await, Answer::Failed { .. }), "it was frozen, and another acts since");
        assert!(matches!(ask(Request::List, Some(6)).await, Answer::Failed { .. }));
        assert!(matches!(ask(end(), Some(7)).await, Answer::Done));
        assert!(matches!(ask(Request::List, Some(8)).await, Answer::Have { .. }));
        assert!(matches!(ask(Request::List, None).await, Answer::Have { .. }), "one of the version before");
        assert!(matches!(ask(Request::Leave { haste: Haste::Drain }, None).await, Answer::Done));
        serving.await.unwrap();
    }
}
