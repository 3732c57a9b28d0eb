//! A node: answers its resource manager over the socket in its folder, starts and ends workers, and outlives whoever
//! started it. It has no word with the manager; its workers speak for themselves.

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
use super::wire::{self, Answer, Haste, Request, Words};

/// Nobody has asked anything for this long: the resource manager is gone for good, so the workers are sent home. As long as
/// an orphaned worker waits for its manager.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
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

    async fn over(&self) {
        loop {
            let leaving = *self.leaving.lock();
            if leaving.is_some() && self.children.is_empty() {
                return;
            }
            if leaving.is_none() && self.clock.monotonic().since(*self.asked_at.lock()) >= FORGOTTEN_AFTER {
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
        let request = match self.clock.timeout(QUESTION_MAX, wire::hear(reading)).await {
            Ok(Ok(request)) => request,
            // Whoever cannot ask needs no answer.
            Ok(Err(_)) | Err(_) => return,
        };
        *self.asked_at.lock() = self.clock.monotonic();
        let answer = self.obey(request).await;
        let _ = wire::say(&mut stream, &answer).await;
    }

    async fn obey(self: &Arc<Self>, request: Request) -> Answer {
        match request {
            Request::List => Answer::Have { node: self.words.clone(), workers: self.children.list() },
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
