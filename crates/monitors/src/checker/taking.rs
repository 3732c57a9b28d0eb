//! Taking parcels of checks, and answering for them. A parcel is acknowledged once owners have heard of each of its checks:
//! should this process die before, the broker gives it to another checker, which makes what has time left. What was made of
//! it already counts once.
//!
//! - A check that comes again is not made twice: the line to the broker was cut, or its owner was killed before it had written
//!   what it heard. While it is in hand it is answered for once; after that, for as long as it could still be made, what came of
//!   it is told again.
//! - Whoever is told to stop leaves to others at once what it has not seen, and answers for the rest until it is told: should it
//!   be killed meanwhile, others make that too.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use mutirao_broker::{BrokerError, Consumer};
use mutirao_core::envelope::open;
use mutirao_core::{ShardId, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::telling::Word;
use super::{PAUSE, Shop, Waiting};
use crate::envelope::{Ask, CHECKS_MAX, Checks, Told};
use crate::grid::MonitorKey;

/// Parcels in hand, of each queue, are at most as many as checks may be under way, within these: each holds one at least.
/// Enough that services which hang keep no other parcel away; no more, because what is in hand here is made by nobody else.
const CREDIT: std::ops::RangeInclusive<usize> = 16..=2_000;
/// Checks lined up and not yet begun, for each that may be under way. Past it no more are lined up; the credit bounds what
/// the broker sends on meanwhile.
const WAITING_EACH: usize = 2;

/// Tags of parcels of one consumer that nobody has anything more to say of. No more than there are in hand.
#[derive(Debug, Default)]
struct Settled {
    tags: Mutex<Vec<u64>>,
    bell: Notify,
}

impl Settled {
    /// Cancel-safe.
    async fn some(&self) -> Vec<u64> {
        loop {
            let tags = std::mem::take(&mut *self.tags.lock());
            if !tags.is_empty() {
                return tags;
            }
            self.bell.notified().await;
        }
    }
}

/// Settled when the last of its checks is.
#[derive(Debug)]
struct Parcel {
    tag: u64,
    settled: Arc<Settled>,
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.settled.tags.lock().push(self.tag);
        self.settled.bell.notify_one();
    }
}

type Firing = (MonitorKey, Timestamp);

/// Checks that are remembered though they are not in hand any more: as many as may be unacknowledged.
const DONE_MAX: usize = *CREDIT.end() * CHECKS_MAX;

#[derive(Debug)]
enum Stand {
    /// With the parcels that it came in.
    InHand(Vec<Arc<Parcel>>),
    /// With what came of it.
    Done(Told),
}

#[derive(Debug, Default)]
struct Taken {
    stand: HashMap<Firing, Stand>,
    /// Until when each could still be made, the first that was done first.
    done: VecDeque<(Firing, Timestamp)>,
}

/// The checks in hand, and those that were.
#[derive(Clone, Debug, Default)]
pub struct Hands(Arc<Mutex<Taken>>);

/// A check in hand. Dropped once its owner knows how it ended.
#[derive(Debug)]
pub struct Hold {
    hands: Hands,
    firing: Firing,
    until: Timestamp,
    /// What came of it, if it was made.
    pub told: Option<Told>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // The parcels are let go of outside the lock.
        let _parcels = self.hands.0.lock().done(self.firing, self.until, self.told.take());
    }
}

impl Taken {
    fn done(&mut self, firing: Firing, until: Timestamp, told: Option<Told>) -> Option<Stand> {
        // One that was not made may be made when it comes again.
        let Some(told) = told else { return self.stand.remove(&firing) };
        let before = self.stand.insert(firing, Stand::Done(told));
        self.done.push_back((firing, until));
        if self.done.len() > DONE_MAX {
            self.forget_oldest();
        }
        before
    }

    /// Those that nobody would make any more.
    fn forget_past(&mut self, now: Timestamp) {
        while self.done.front().is_some_and(|(_, until)| *until < now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((oldest, _)) = self.done.pop_front()
            && let Entry::Occupied(same) = self.stand.entry(oldest)
            && matches!(same.get(), Stand::Done(_))
        {
            same.remove();
        }
    }
}

/// What is to be done with a check that arrives.
#[derive(Debug)]
enum Arrived {
    New(Hold),
    /// Whoever has it in hand answers for this parcel as well.
    InHand,
    /// It was made: this came of it, and is to be told again.
    Done(Told, Hold),
}

impl Hands {
    fn take(&self, ask: &Ask, parcel: &Arc<Parcel>) -> Arrived {
        let firing = (ask.monitor, ask.at);
        let hold = |told| Hold { hands: self.clone(), firing, until: ask.until, told };
        let mut taken = self.0.lock();
        // Time goes on with what is due.
        taken.forget_past(ask.at);
        match taken.stand.entry(firing) {
            Entry::Occupied(mut same) => match same.get_mut() {
                Stand::InHand(parcels) => {
                    parcels.push(parcel.clone());
                    Arrived::InHand
                }
                Stand::Done(told) => {
                    let told = told.clone();
                    same.insert(Stand::InHand(vec![parcel.clone()]));
                    Arrived::Done(told.clone(), hold(Some(told)))
                }
            },
            Entry::Vacant(new) => {
                new.insert(Stand::InHand(vec![parcel.clone()]));
                Arrived::New(hold(None))
            }
        }
    }
}

impl Shop {
    /// Until told to stop.
    pub(super) async fn take(self: Arc<Self>, queue: String, stop: CancellationToken) {
        let credit = self.parts.bounds.under_way_max.clamp(*CREDIT.start(), *CREDIT.end()) as u32;
        loop {
            let consumer = tokio::select! {
                consumer = self.parts.broker.consume(&queue, credit) => consumer,
                () = stop.cancelled() => return,
            };
            let ended = match consumer {
                Ok(consumer) => self.take_from(consumer, &stop).await,
                Err(error) => Err(error),
            };
            match ended {
                Ok(()) | Err(BrokerError::Closed) => return,
                Err(error) => tracing::debug!(queue, %error, "no checks can be taken; trying again"),
            }
            tokio::select! {
                () = self.parts.clock.sleep(PAUSE) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn take_from(
        self: &Arc<Self>,
        mut consumer: Box<dyn Consumer>,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let (settled, mut last, mut in_hand) = (Arc::new(Settled::default()), 0, 0);
        loop {
            let deliveries = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                tags = settled.some() => {
                    consumer.ack_each(&tags).await?;
                    in_hand -= tags.len();
                    continue;
                }
                deliveries = async {
                    self.room_to_wait().await;
                    consumer.next().await
                } => deliveries?,
            };
            for delivery in deliveries {
                match open::<Checks>(&delivery.body) {
                    Ok(parcel) => {
                        in_hand += 1;
                        self.line_up(parcel, Arc::new(Parcel { tag: delivery.tag, settled: settled.clone() }))
                    }
                    Err(unreadable) => consumer.reject(delivery.tag, &unreadable.to_string()).await?,
                }
                last = delivery.tag;
            }
            self.pump();
        }
        consumer.retire(last).await?;
        while in_hand > 0 {
            let tags = settled.some().await;
            consumer.ack_each(&tags).await?;
            in_hand -= tags.len();
        }
        Ok(())
    }

    fn line_up(&self, Checks { shard, checks, .. }: Checks, parcel: Arc<Parcel>) {
        self.tally.taken(checks.len());
        for ask in checks {
            let hold = match self.hands.take(&ask, &parcel) {
                Arrived::New(hold) => hold,
                Arrived::InHand => continue,
                Arrived::Done(told, hold) => {
                    // Without room it is told no more: it was told before.
                    if let Some(room) = self.tellers.room(ShardId(shard)) {
                        room.say(Word::Told(told), hold);
                    }
                    continue;
                }
            };
            let host = ask.check.host();
            let beyond = self.queue.lock().0.push(&host, Waiting { shard: ShardId(shard), ask, hold });
            if let Err(one) = beyond {
                self.tellers.miss(one.shard, one.hold);
            }
        }
    }

    async fn room_to_wait(&self) {
        loop {
            let rung = self.bell.notified();
            if self.queue.lock().0.waiting() < self.parts.bounds.under_way_max.saturating_mul(WAITING_EACH) {
                return;
            }
            rung.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Verdict;

    fn ask(monitor: u64) -> Ask {
        Ask {
            monitor: MonitorKey(monitor),
            at: Timestamp(1_000),
            until: Timestamp(2_000),
            timeout_ms: 500,
            retries: 0,
            check: Arc::new(serde_json::from_str(r#"{"tcp": {"address": "127.0.0.1:1"}}"#).unwrap()),
            when: Arc::default(),
        }
    }

    fn told(ask: &Ask) -> Told {
        let (monitor, at) = (ask.monitor, ask.at);
        Told { monitor, at, verdict: Verdict::Good, took_us: None, detail: None, certificate_days: None }
    }

    fn new(hands: &Hands, ask: &Ask, parcel: &Arc<Parcel>) -> Hold {
        match hands.take(ask, parcel) {
            Arrived::New(hold) => hold,
            other => panic!("{other:?}"),
        }
    }

    fn make(hands: &Hands, ask: &Ask, parcel: &Arc<Parcel>) {
        new(hands, ask, parcel).told = Some(told(ask));
    }

    #[tokio::test]
    async fn a_parcel_is_settled_with_the_last_of_its_checks() {
        let (hands, settled) = (Hands::default(), Arc::new(Settled::default()));
        let parcel = |tag| Arc::new(Parcel { tag, settled: settled.clone() });
        let (first, second) = (parcel(1), parcel(2));
        let [a, b, c] = [(1, &first), (2, &first), (3, &second)].map(|(n, parcel)| new(&hands, &ask(n), parcel));
        drop((first, second));
        drop(b);
        assert!(settled.tags.lock().is_empty());
        drop(c);
        assert_eq!(settled.some().await, [2], "what was taken before it takes longer");
        drop(a);
        assert_eq!(settled.some().await, [1]);
    }

    #[tokio::test]
    async fn what_comes_again_after_it_was_told_is_told_again_and_what_is_remembered_is_bounded() {
        let (hands, settled) = (Hands::default(), Arc::new(Settled::default()));
        let parcel = |tag| Arc::new(Parcel { tag, settled: settled.clone() });
        make(&hands, &ask(1), &parcel(1));
        assert_eq!(settled.some().await, [1]);
        for tag in [2, 3] {
            let Arrived::Done(again, hold) = hands.take(&ask(1), &parcel(tag)) else { panic!("it was made") };
            assert_eq!(again, told(&ask(1)));
            assert!(settled.tags.lock().is_empty(), "its owner has not heard of it again");
            drop(hold);
            assert_eq!(settled.some().await, [tag]);
        }
        for n in 2..DONE_MAX as u64 + 10 {
            make(&hands, &ask(n), &parcel(n));
        }
        assert_eq!(hands.0.lock().stand.len(), DONE_MAX);
        assert!(hands.0.lock().done.len() <= DONE_MAX);
        let later = Ask { at: Timestamp(2_001), until: Timestamp(3_000), ..ask(1) };
        drop(new(&hands, &later, &parcel(1)));
        assert_eq!(hands.0.lock().stand.len(), 0, "nobody would make any of them any more");
    }

    #[tokio::test]
    async fn what_was_not_made_may_be_made_when_it_comes_again() {
        let (hands, settled) = (Hands::default(), Arc::new(Settled::default()));
        let parcel = |tag| Arc::new(Parcel { tag, settled: settled.clone() });
        drop(new(&hands, &ask(1), &parcel(1)));
        drop(new(&hands, &ask(1), &parcel(2)));
        assert_eq!(settled.some().await, [1, 2]);
    }

    #[tokio::test]
    async fn what_comes_again_while_it_is_in_hand_is_made_once_and_settles_both_parcels() {
        let (hands, settled) = (Hands::default(), Arc::new(Settled::default()));
        let hold = new(&hands, &ask(1), &Arc::new(Parcel { tag: 1, settled: settled.clone() }));
        let again = hands.take(&ask(1), &Arc::new(Parcel { tag: 2, settled: settled.clone() }));
        assert!(matches!(again, Arrived::InHand));
        assert!(settled.tags.lock().is_empty());
        drop(hold);
        assert_eq!(settled.some().await, [1, 2]);
    }
}
