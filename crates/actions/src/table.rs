//! The actions of one node. Whatever is put under a name that is there already takes its place for new tasks; those that run
//! hold on to what they began with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Clock;
use mutirao_core::clock::ClockExt;
use mutirao_nodes::errand::End;
use mutirao_nodes::wire::{ACTIONS_MAX, Parameters};
use mutirao_nodes::{ActionName, Offer};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::{Action, OUTPUT_BYTES, line};

/// How long an action may take unless it says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Entry {
    pub offer: Offer,
    pub timeout: Duration,
    /// What managers are told of it.
    pub declared: Option<Parameters>,
    pub output_bytes_max: usize,
    pub action: Arc<dyn Action>,
}

impl Entry {
    pub fn new(offer: Offer, action: Arc<dyn Action>) -> Self {
        Self { offer, timeout: TIMEOUT, declared: None, output_bytes_max: OUTPUT_BYTES, action }
    }
}

pub struct Table {
    entries: RwLock<BTreeMap<ActionName, Entry>>,
    /// How often the offers have changed.
    changes: watch::Sender<u64>,
    clock: Arc<dyn Clock>,
}

/// A node has no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a node has at most {ACTIONS_MAX} actions")]
pub struct Full;

impl Table {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { entries: RwLock::default(), changes: watch::Sender::new(0), clock }
    }

    pub fn put(&self, entry: Entry) -> Result<(), Full> {
        let mut entries = self.entries.write();
        let said = |entry: &Entry| (entry.offer.clone(), entry.declared);
        let before = entries.get(&entry.offer.action).map(said);
        if before.is_none() && entries.len() >= ACTIONS_MAX {
            return Err(Full);
        }
        let news = before != Some(said(&entry));
        entries.insert(entry.offer.action.clone(), entry);
        drop(entries);
        if news {
            self.changes.send_modify(|many| *many += 1);
        }
        Ok(())
    }

    pub fn remove(&self, action: &ActionName) {
        if self.entries.write().remove(action).is_some() {
            self.changes.send_modify(|many| *many += 1);
        }
    }

    /// So many more it takes.
    pub fn room(&self) -> usize {
        ACTIONS_MAX.saturating_sub(self.entries.read().len())
    }

    pub fn has(&self, action: &ActionName) -> bool {
        self.entries.read().contains_key(action)
    }

    /// What the node says that it has, in order.
    pub fn offers(&self) -> Vec<Offer> {
        self.entries.read().values().map(|entry| entry.offer.clone()).collect()
    }

    /// And what it declares of some of them.
    pub fn declared(&self) -> BTreeMap<String, Parameters> {
        let entries = self.entries.read();
        entries.values().filter_map(|entry| Some((entry.offer.to_string(), entry.declared?))).collect()
    }

    /// Changes whenever either does.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Runs an action by its name, to its end or its deadline.
    pub async fn run(&self, action: &ActionName, data: &str) -> End {
        let Some(entry) = self.entries.read().get(action).cloned() else {
            return End::Failed(format!("this node has no {action}"));
        };
        match self.clock.timeout(entry.timeout, entry.action.run(data)).await {
            Err(_) => End::Failed(format!("it took longer than {}ms", entry.timeout.as_millis())),
            Ok(Err(why)) => End::Failed(line(&why)),
            Ok(Ok(output)) if output.len() > entry.output_bytes_max => {
                End::Failed(format!("it gave back {} bytes, the most is {}", output.len(), entry.output_bytes_max))
            }
            Ok(Ok(output)) => End::Ok(output),
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use mutirao_core::clock::ManualClock;
    use mutirao_core::{SystemClock, Timestamp};
    use tokio::sync::Semaphore;

    use super::*;

    /// Says its name once it is let.
    struct Says(&'static str, Arc<Semaphore>);

    #[async_trait]
    impl Action for Says {
        async fn run(&self, _: &str) -> Result<String, String> {
            let _let = self.1.acquire().await.map_err(|error| error.to_string())?;
            Ok(self.0.into())
        }
    }

    fn entry(name: &str, version: u32, says: &'static str, gate: &Arc<Semaphore>) -> Entry {
        let action = format!("urn:n:Action:{name}").parse().unwrap();
        Entry::new(Offer { action, version }, Arc::new(Says(says, gate.clone())))
    }

    #[tokio::test]
    async fn a_new_version_takes_new_tasks_and_running_ones_finish_on_the_old() {
        let table = Arc::new(Table::new(SystemClock::shared()));
        let (shut, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(1)));
        let name: ActionName = "urn:n:Action:a".parse().unwrap();
        table.put(entry("a", 1, "old", &shut)).unwrap();
        let mut changes = table.changes();
        let running = tokio::spawn({
            let (table, name) = (table.clone(), name.clone());
            async move { table.run(&name, "{}").await }
        });
        tokio::task::yield_now().await;
        table.put(entry("a", 2, "new", &open)).unwrap();
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert_eq!(table.run(&name, "{}").await, End::Ok("new".into()));
        shut.add_permits(1);
        assert_eq!(running.await.unwrap(), End::Ok("old".into()));
        assert_eq!(table.offers(), ["urn:n:Action:a@2".parse().unwrap()]);
        table.put(entry("a", 2, "newer", &open)).unwrap();
        assert!(!changes.has_changed().unwrap(), "nobody need be told");
        table.remove(&name);
        assert!(changes.has_changed().unwrap());
        let End::Failed(why) = table.run(&name, "{}").await else { panic!("it is gone") };
        assert_eq!(why, "this node has no urn:n:Action:a");
    }

    #[tokio::test]
    async fn what_takes_too_long_or_says_too_much_fails_in_a_line() {
        let clock = ManualClock::starting_at(Timestamp(0));
        let table = Arc::new(Table::new(clock.clone()));
        let (shut, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(1)));
        table.put(Entry { output_bytes_max: 3, ..entry("a", 0, "four", &open) }).unwrap();
        table.put(entry("b", 0, "x", &shut)).unwrap();
        let much = table.run(&"urn:n:Action:a".parse().unwrap(), "{}").await;
        assert_eq!(much, End::Failed("it gave back 4 bytes, the most is 3".into()));
        let late = tokio::spawn({
            let table = table.clone();
            async move { table.run(&"urn:n:Action:b".parse().unwrap(), "{}").await }
        });
        tokio::task::yield_now().await;
        clock.advance(TIMEOUT);
        assert_eq!(late.await.unwrap(), End::Failed("it took longer than 30000ms".into()));
    }

    #[test]
    fn managers_are_told_what_an_action_declares_and_when_that_changes() {
        let table = Table::new(SystemClock::shared());
        let gate = Arc::new(Semaphore::new(1));
        let declaring = |retry| {
            let declared = Some(Parameters { timeout: 5_000, retry });
            table.put(Entry { declared, ..entry("a", 2, "x", &gate) }).unwrap();
        };
        let changes = table.changes();
        table.put(entry("b", 0, "x", &gate)).unwrap();
        declaring(1);
        declaring(1);
        assert_eq!(*changes.borrow(), 2, "the same again is no news");
        declaring(2);
        assert_eq!(*changes.borrow(), 3);
        let urn = table.offers()[0].to_string();
        assert_eq!(table.declared(), [(urn, Parameters { timeout: 5_000, retry: 2 })].into());
    }
}
