//! Who was taken out, here or at another manager. Whoever does it writes it to the store, forgets it, and tells the others by
//! fanout, who forget it at once. A word that was missed is found in the store within seconds, and one that comes twice, or
//! late, changes nothing: it is about what was known until then ([`Registry::remove`](crate::registry::Registry::remove)).

use std::time::Duration;

use bytes::Bytes;
use mutirao_broker::{Heard, Shared};
use mutirao_core::Timestamp;
use mutirao_store::StoreError;
use serde::{Deserialize, Serialize};

use super::{Inner, Switchboard};
use crate::store::{Removal, Removed};

const TOPIC: &str = "nodes.removed";
/// After a subscription that could not be had.
const AGAIN: Duration = Duration::from_secs(5);
/// What was missed is looked for this far back.
const MISSED_MS: i64 = 3_600_000;

#[derive(Serialize, Deserialize)]
struct Notice {
    #[serde(flatten)]
    removal: Removal,
    /// Whose word it is.
    by: u64,
}

/// What other managers tell, for as long as there is one to hear it.
pub async fn listen(board: Switchboard, others: Shared) {
    let inner = &*board.0;
    let hearing = async {
        loop {
            let why = match others.subscribe(TOPIC).await {
                Ok(mut subscription) => loop {
                    match subscription.next().await {
                        Ok(Heard::Message(text)) => inner.hear_notice(&text),
                        Ok(Heard::Gap) => inner.catch_up().await,
                        Err(error) => break error,
                    }
                },
                Err(error) => error,
            };
            tracing::debug!(error = %why, "what other managers take out is not heard; it is looked up");
            inner.clock.sleep(AGAIN).await;
        }
    };
    tokio::select! {
        biased;
        () = inner.stopping.cancelled() => {}
        () = hearing => {}
    }
}

impl Inner {
    /// It is in the store: here it is forgotten now, and the others are told.
    pub(super) async fn removed(&self, removal: Removal) {
        self.take_out(&removal);
        let Some(others) = &self.others else { return };
        let text = serde_json::to_vec(&Notice { removal, by: self.own }).unwrap_or_default();
        if let Err(error) = others.announce(TOPIC, Bytes::from(text)).await {
            tracing::debug!(%error, "other managers were not told who was taken out; they find it in the store");
        }
    }

    fn hear_notice(&self, text: &[u8]) {
        match serde_json::from_slice::<Notice>(text) {
            Ok(notice) if notice.by == self.own => {}
            Ok(notice) => self.take_out(&notice.removal),
            // Of another version: it is in the store.
            Err(error) => tracing::debug!(%error, "what another manager took out cannot be read"),
        }
    }

    async fn catch_up(&self) {
        let since = Timestamp(self.clock.now().0 - MISSED_MS);
        if let Err(error) = self.learn_removals(since).await {
            tracing::debug!(%error, "who was taken out could not be read; it is looked up again");
        }
    }

    pub(super) async fn learn_removals(&self, since: Timestamp) -> Result<(), StoreError> {
        self.store.removals(since).await?.iter().for_each(|removal| self.take_out(removal));
        Ok(())
    }

    fn take_out(&self, removal: &Removal) {
        let at = removal.at;
        let nodes = match &removal.what {
            Removed::Node(node) => vec![node.clone()],
            Removed::Device(name) => {
                self.keys.forget(name);
                if self.is_news(name, at) {
                    self.ways().iter().for_each(|way| way.expel(name));
                }
                // Those that came later are left by `remove`.
                self.state.lock().let_in_by(name).into_iter().map(|(node, _)| node).collect()
            }
        };
        for node in nodes {
            let was_there = self.state.lock().remove(&node, at);
            if was_there && let Some(taker) = self.taker.get() {
                taker.lost(&node);
            }
        }
    }

    /// A device is expelled once for each time it was removed: it may have been let in anew since.
    fn is_news(&self, device: &str, at: Timestamp) -> bool {
        let mut expelled = self.expelled.lock();
        if expelled.get(device).is_some_and(|before| *before >= at) {
            return false;
        }
        // The store keeps them longer than anybody is behind.
        expelled.retain(|_, before| before.0 > at.0 - 2 * MISSED_MS);
        expelled.insert(device.to_owned(), at);
        true
    }
}
