//! Results on their way: kept on disk until somebody else has them.

use std::sync::Arc;
use std::time::Duration;

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
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// For the packet around a result.
const ENVELOPE_BYTES: usize = 1 << 10;

pub struct Results {
    spool: Arc<Mutex<Spool>>,
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
        let spool = Arc::new(Mutex::new(spool));
        Self { spool, freed: Notify::new(), line, under_way: Semaphore::new(UNDER_WAY_MAX), clock, dice }
    }

    /// Until one more result can be kept: nothing is run whose result has nowhere to go.
    pub async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            if self.spool.lock().has_room() {
                return;
            }
            freed.await;
        }
    }

    /// Its number, once it is on disk.
    pub async fn keep(&self, text: String) -> Option<u64> {
        let spool = self.spool.clone();
        // It waits for the disk.
        let kept = tokio::task::spawn_blocking(move || spool.lock().put(text)).await;
        match kept {
            Ok(Ok(number)) => Some(number),
            Ok(Err(error)) => {
                tracing::warn!("a result cannot be kept on disk until it is sent: {error}");
                None
            }
            Err(_) => None,
        }
    }

    /// Of one that is still kept.
    pub fn text(&self, number: u64) -> Option<String> {
        self.spool.lock().text(number).map(str::to_owned)
    }

    /// Somebody else has it.
    pub fn gone(&self, number: u64) {
        self.spool.lock().gone(number);
        self.freed.notify_waiters();
    }

    /// Until it is said.
    pub async fn say(&self, text: String) {
        let Ok(_turn) = self.under_way.acquire().await else { return };
        let mut pause = PAUSE_MIN;
        while let Err(why) = self.line.result(text.clone()).await {
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
            tasks.spawn(self.clone().send(Kept { key, number, text }));
        }
    }
}
