//! Whether anybody takes the checks of a queue. Checks that nobody takes are worth nothing, and would fill the broker: after
//! a while they are not handed out any more, until somebody comes. What a moment without takers says is nothing: whoever was
//! cut off comes back.
//!
//! [`Takers`] is pure; [`watch`] asks the broker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{Counts, Shared as Broker};
use mutirao_core::{Clock, Mono};
use parking_lot::Mutex;

/// How often the broker is asked.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// For how long checks are handed out though nobody is there.
const NOBODY_FOR: Duration = Duration::from_secs(30);
/// Parcels that may wait in a queue. Those who take are too few, and what waits is worth more than what would wait behind.
const READY_MAX: u64 = 1_000;
/// A queue that nobody has wanted for so long is not asked about.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
struct Seen {
    wanted_at: Mono,
    nobody_since: Option<Mono>,
    full: bool,
}

/// Whether to hand checks out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    Out,
    /// Nobody has been there for long.
    Nobody,
    /// Too many wait.
    Full,
}

/// Whether its checks are to be made in one place, and not anywhere: `checks.http.MARK`.
fn is_of_a_place(queue: &str) -> bool {
    queue.matches('.').count() >= 2
}

#[derive(Debug, Default)]
pub struct Takers(HashMap<Arc<str>, Seen>);

impl Takers {
    /// Somebody has checks for this queue.
    pub fn wanted(&mut self, queue: &Arc<str>, now: Mono) -> Going {
        let seen = self.0.entry(queue.clone()).or_insert(Seen { wanted_at: now, nobody_since: None, full: false });
        seen.wanted_at = now;
        match seen.nobody_since {
            Some(since) if now.since(since) >= NOBODY_FOR => Going::Nobody,
            _ if seen.full => Going::Full,
            _ => Going::Out,
        }
    }

    pub fn noted(&mut self, queue: &Arc<str>, counts: Counts, now: Mono) {
        let Some(seen) = self.0.get_mut(queue) else { return };
        seen.nobody_since = (counts.consumers == 0).then(|| seen.nobody_since.unwrap_or(now));
        seen.full = counts.ready >= READY_MAX;
    }

    /// Those to ask about, and those that nobody has wanted here and nobody has taken from for long, which are said once.
    /// Whoever fires elsewhere has seen by then that nobody takes, and fires no more.
    fn queues(&mut self, now: Mono) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let forgotten = self.0.extract_if(|_, seen| now.since(seen.wanted_at) >= FORGOTTEN_AFTER);
        let deserted = |seen: &Seen| seen.nobody_since.is_some_and(|since| now.since(since) >= NOBODY_FOR);
        let forgotten = forgotten.filter(|(_, seen)| deserted(seen)).map(|(queue, _)| queue).collect();
        (self.0.keys().cloned().collect(), forgotten)
    }
}

/// For as long as it is not dropped.
pub async fn watch(takers: Arc<Mutex<Takers>>, broker: Broker, clock: Arc<dyn Clock>) {
    loop {
        clock.sleep(LOOK_EVERY).await;
        let (queues, forgotten) = takers.lock().queues(clock.monotonic());
        remove(&forgotten, &broker).await;
        for queue in queues {
            match broker.counts(&queue).await {
                Ok(counts) => takers.lock().noted(&queue, counts, clock.monotonic()),
                Err(error) => tracing::debug!(%queue, %error, "who takes checks is not known for the moment"),
            }
        }
    }
}

/// Places come and go with what people write, and queues that nobody needs would stay in the broker for good. One that
/// somebody takes from stays; one that is named again comes again.
async fn remove(forgotten: &[Arc<str>], broker: &Broker) {
    for queue in forgotten.iter().filter(|queue| is_of_a_place(queue)) {
        if let Err(error) = broker.delete(queue).await {
            tracing::debug!(%queue, %error, "a queue of checks that nobody wants could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    fn counts(consumers: u64, ready: u64) -> Counts {
        Counts { consumers, ready, ..Counts::default() }
    }

    #[test]
    fn checks_that_nobody_takes_are_handed_out_for_a_while_and_again_once_somebody_comes() {
        let (mut takers, queue) = (Takers::default(), Arc::from("checks.http"));
        assert_eq!(takers.wanted(&queue, at(0)), Going::Out, "nothing is known yet");
        takers.noted(&queue, counts(0, 3), at(5));
        takers.noted(&queue, counts(0, 9), at(30));
        assert_eq!(takers.wanted(&queue, at(34)), Going::Out);
        assert_eq!(takers.wanted(&queue, at(35)), Going::Nobody);
        takers.noted(&queue, counts(1, 9), at(40));
        assert_eq!(takers.wanted(&queue, at(41)), Going::Out);
        takers.noted(&queue, counts(0, 9), at(45));
        assert_eq!(takers.wanted(&queue, at(70)), Going::Out, "it begins anew");
    }

    /// Nobody has wanted them for long: the one of a place is gone, the one of a kind stays, and so does one that is taken from.
    #[tokio::test]
    async fn queues_of_places_that_nobody_wants_are_removed() {
        let broker: Broker = mutirao_broker::Memory::new(None, mutirao_broker::Limits::default());
        let names = ["checks.http", "checks.http.00ff", "checks.tcp.00ff", "checks.dns.00ff"];
        let nobody_since = |name| (name != "checks.dns.00ff").then(|| at(1));
        let mut takers = Takers::default();
        for name in names {
            broker.publish(name, vec!["x".into()]).await.unwrap();
            takers.0.insert(name.into(), Seen { wanted_at: at(0), nobody_since: nobody_since(name), full: false });
        }
        let _taken_from = broker.consume("checks.tcp.00ff", 1).await.unwrap();
        let (_, forgotten) = takers.queues(Mono(FORGOTTEN_AFTER));
        assert_eq!(forgotten.len(), names.len() - 1, "of one it is not known that nobody takes from it");
        remove(&forgotten, &broker).await;
        let mut left = Vec::new();
        for name in names {
            left.push(broker.counts(name).await.unwrap().ready + broker.counts(name).await.unwrap().unacked);
        }
        assert_eq!(left, [1, 0, 1, 1]);
    }

    #[test]
    fn a_queue_in_which_too_many_wait_gets_no_more_and_one_that_nobody_wants_is_forgotten() {
        let (mut takers, queue) = (Takers::default(), Arc::from("checks.tcp"));
        takers.wanted(&queue, at(0));
        takers.noted(&queue, counts(1, READY_MAX), at(5));
        assert_eq!(takers.wanted(&queue, at(6)), Going::Full);
        takers.noted(&queue, counts(1, 10), at(10));
        assert_eq!(takers.wanted(&queue, at(11)), Going::Out);
        assert_eq!(takers.queues(at(100)), (vec![queue.clone()], vec![]));
        takers.noted(&queue, counts(0, 10), at(150));
        assert_eq!(takers.queues(at(200)), (vec![], vec![queue]));
        assert_eq!(takers.queues(at(201)), (vec![], vec![]), "it is said once");
    }
}
