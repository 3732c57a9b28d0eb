//! Whoever wants to know the same at the same time shares one question. Whoever comes while it is being asked does not get that
//! answer, since it may be from before something that they know of: they share the next one.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

struct Flight<T> {
    /// Questions begun so far.
    begun: AtomicU64,
    /// The last answer, and which question it is of. Held by whoever asks: the others wait for their turn.
    last: tokio::sync::Mutex<Option<(u64, T)>>,
}

pub struct Flights<K, T>(Mutex<HashMap<K, Arc<Flight<T>>>>);

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash, T: Clone> Flights<K, T> {
    /// The answer to a question that was begun after this call.
    pub async fn share<F: Future<Output = T>>(&self, key: &K, ask: impl FnOnce() -> F) -> T {
        let boarded = self.board(key);
        let flight = &boarded.flight;
        let arrived = flight.begun.load(Ordering::SeqCst);
        let mut last = flight.last.lock().await;
        let shared = last.as_ref().filter(|(of, _)| *of > arrived).map(|(_, answer)| answer.clone());
        if let Some(answer) = shared {
            return answer;
        }
        let this = flight.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let answer = ask().await;
        *last = Some((this, answer.clone()));
        answer
    }

    fn board(&self, key: &K) -> Boarded<'_, K, T> {
        let fresh = || Arc::new(Flight { begun: AtomicU64::new(0), last: tokio::sync::Mutex::new(None) });
        let flight = self.0.lock().entry(key.clone()).or_insert_with(fresh).clone();
        Boarded { flights: self, key: key.clone(), flight }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

/// A place in a flight; the last one out forgets it, also one that was given up.
struct Boarded<'a, K: Eq + Hash, T> {
    flights: &'a Flights<K, T>,
    key: K,
    flight: Arc<Flight<T>>,
}

impl<K: Eq + Hash, T> Drop for Boarded<'_, K, T> {
    fn drop(&mut self) {
        let mut all = self.flights.0.lock();
        // The map's and this one.
        if Arc::strong_count(&self.flight) == 2 {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn those_who_come_together_share_an_answer_that_none_of_them_is_too_late_for() {
        let flights: Arc<Flights<&str, u64>> = Arc::default();
        let asked = Arc::new(AtomicU64::new(0));
        let (release, held) = oneshot::channel::<()>();
        let first = {
            let (flights, asked) = (flights.clone(), asked.clone());
            tokio::spawn(async move {
                flights
                    .share(&"a", || async move {
                        let n = asked.fetch_add(1, Ordering::SeqCst) + 1;
                        let _ = held.await;
                        n
                    })
                    .await
            })
        };
        while asked.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // The first question is on its way: its answer is too old for those who come now, and one is enough for them all.
        let later: Vec<_> = (0..10)
            .map(|_| {
                let (flights, asked) = (flights.clone(), asked.clone());
                tokio::spawn(async move {
                    flights.share(&"a", || async move { asked.fetch_add(1, Ordering::SeqCst) + 1 }).await
                })
            })
            .collect();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
        assert_eq!(first.await.unwrap(), 1);
        for one in later {
            assert_eq!(one.await.unwrap(), 2);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert!(flights.is_empty(), "nothing is kept of what is over");
    }
}
