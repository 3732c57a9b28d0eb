//! What an applier does for the cache around each commit. When the cache fails it, what changes waits until nobody can believe
//! in its word any more: once, for a moment; then it goes on without.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice, Mono, ShardId};
use mutirao_shards::Company;

use super::{CacheError, LAPSED_AFTER, Reign, Shared};
use crate::fold::Entry;
use crate::meters;
use crate::write::Place;

/// How long one call may take; then the cache counts as away.
const ANSWER_WITHIN: Duration = Duration::from_millis(250);
/// How long a cache that failed is left alone.
const LEFT_ALONE: Duration = Duration::from_secs(1);
/// How long one that refuses is: it is full, or does not let us in, and will not be well in a moment. Each time that it takes a word
/// and then no mark, writes wait for the word to lapse.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// Whether one vouches, and since when one's word is not believed any more if one does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The word was last given at `said`.
    Vouching { reign: Reign, said: Mono },
    /// Until `believed` somebody may count on an earlier word, ours or another's.
    Silent { believed: Mono, again: Mono },
}

impl Standing {
    /// A predecessor's word may still count.
    pub fn first(now: Mono) -> Self {
        Self::Silent { believed: now.plus(LAPSED_AFTER), again: now }
    }

    /// A word was given now, and is not known to have arrived: it may still.
    pub fn saying(self, now: Mono) -> Self {
        match self {
            Self::Vouching { reign, .. } => Self::Vouching { reign, said: now },
            Self::Silent { again, .. } => Self::Silent { believed: now.plus(LAPSED_AFTER), again },
        }
    }

    /// Of a word that was refused, that which was before it: nobody has it.
    pub fn refused(self, now: Mono) -> Self {
        self.silent(now.plus(REFUSED_PAUSE))
    }

    pub fn failed(self, now: Mono) -> Self {
        self.silent(now.plus(LEFT_ALONE))
    }

    fn silent(self, again: Mono) -> Self {
        match self {
            Self::Vouching { said, .. } => Self::Silent { believed: said.plus(LAPSED_AFTER), again },
            Self::Silent { believed, .. } => Self::Silent { believed, again },
        }
    }
}

/// Whether it is known what came of each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batches {
    Known,
    /// One may be committed yet. What it marked stays so under the word under which it was marked, so no other is given.
    InDoubt,
    /// None can be any more. What they marked is forgotten with that word.
    Settled,
}

/// One shard's, for one tenure.
pub struct Warden {
    /// None: this manager has none. Others may, and count on the word that its predecessor gave there.
    cache: Option<Shared>,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
    shard: ShardId,
    generation: u64,
    standing: Standing,
    batches: Batches,
}

/// How keys were marked, for when their change is committed.
#[must_use]
pub enum Marked {
    /// `kept`: the places in their row of those of which something was kept.
    Under { reign: Reign, kept: Vec<usize> },
    /// There is no cache to be told.
    Nowhere,
}

impl Warden {
    pub fn new(
        cache: Option<Shared>,
        company: Company,
        clock: Arc<dyn Clock>,
        dice: Arc<Dice>,
        shard: ShardId,
        generation: u64,
    ) -> Self {
        let now = clock.monotonic();
        let standing = match (&cache, company) {
            (None, Company::Alone) => Standing::Silent { believed: now, again: now },
            _ => Standing::first(now),
        };
        Self { cache, clock, dice, shard, generation, standing, batches: Batches::Known }
    }

    /// A batch failed, and it is not known whether it was committed.
    pub fn is_in_doubt(&mut self) {
        self.batches = Batches::InDoubt;
    }

    /// A batch was committed: of those before it none can be any more.
    pub fn is_settled(&mut self) {
        if self.batches == Batches::InDoubt {
            self.batches = Batches::Settled;
        }
    }

    /// Whether there is somebody to be told what changes.
    pub fn tells(&self) -> bool {
        self.cache.is_some()
    }

    /// How long it may be left to itself; none: as long as one likes.
    pub fn nap(&self) -> Option<Duration> {
        let cache = self.cache.as_ref()?;
        match self.standing {
            Standing::Silent { .. } => Some(LEFT_ALONE),
            Standing::Vouching { .. } => cache.renew_every(),
        }
    }

    /// Gives the word, or gives it anew, when it is time. Only for whoever still holds the shard.
    pub async fn keep(&mut self) {
        let Some(cache) = self.cache.clone() else { return };
        let now = self.clock.monotonic();
        match self.standing {
            Standing::Silent { again, .. } if now >= again && self.batches != Batches::InDoubt => {
                self.begin(&cache).await;
            }
            Standing::Vouching { .. } if self.batches == Batches::Settled => self.begin(&cache).await,
            Standing::Vouching { reign, said } if is_due(&cache, now.since(said)) => {
                let before = self.say(now);
                let renewed = answered(&self.clock, cache.renew(self.shard, reign, now)).await;
                self.heard(before, renewed);
            }
            Standing::Silent { .. } | Standing::Vouching { .. } => {}
        }
    }

    async fn begin(&mut self, cache: &Shared) {
        // Nothing is said to one who does not even answer: what was not said, nobody believes.
        if let Err(error) = answered(&self.clock, cache.reach()).await {
            return self.note(Err(error));
        }
        let (reign, now) = (Reign { generation: self.generation, epoch: self.dice.u64() }, self.clock.monotonic());
        let before = self.say(now);
        match answered(&self.clock, cache.begin(self.shard, reign, now)).await {
            Ok(()) => (self.standing, self.batches) = (Standing::Vouching { reign, said: now }, Batches::Known),
            failed => self.heard(before, failed),
        }
    }

    /// How it stood before.
    fn say(&mut self, now: Mono) -> Standing {
        let before = self.standing;
        self.standing = before.saying(now);
        before
    }

    fn heard(&mut self, before: Standing, said: Result<(), CacheError>) {
        if matches!(said, Err(CacheError::Refused(_))) {
            self.standing = before;
        }
        self.note(said);
    }

    fn note(&mut self, done: Result<(), CacheError>) {
        if let Err(error) = done {
            meters::cache_failed();
            tracing::debug!(%error, shard = self.shard.0, "the cache is not told for now");
            let now = self.clock.monotonic();
            self.standing = match error {
                CacheError::Refused(_) => self.standing.refused(now),
                CacheError::Lapsed | CacheError::Unreachable(_) => self.standing.failed(now),
            };
        }
    }

    /// Before a commit that changes these. When it returns, nobody finds in the cache what they were.
    pub async fn mark(&mut self, places: &[Place]) -> Marked {
        if let (Standing::Vouching { reign, .. }, Some(cache)) = (self.standing, &self.cache) {
            match answered(&self.clock, cache.mark(self.shard, reign, places)).await {
                Ok(kept) => return Marked::Under { reign, kept },
                Err(error) => self.note(Err(error)),
            }
        }
        if let Standing::Silent { believed, .. } = self.standing {
            self.clock.sleep_until(believed).await;
        }
        Marked::Nowhere
    }

    /// After the commit: these were marked, in this row, and are now what `changed` says, or what they were. What nobody has
    /// read is not kept: it would cost as much as writing it does.
    pub async fn offer(&mut self, marked: Marked, places: Vec<Place>, mut changed: BTreeMap<Place, Entry>) {
        let (Marked::Under { reign, kept }, Some(cache)) = (marked, &self.cache) else { return };
        let mut entries: Vec<(Place, Option<Entry>)> = places.into_iter().map(|place| (place, None)).collect();
        for n in kept {
            // Whatever a cache says of its own, it is held against what it was asked.
            if let Some((place, entry)) = entries.get_mut(n) {
                *entry = changed.remove(place);
            }
        }
        let offered = answered(&self.clock, cache.offer(self.shard, reign, &entries)).await;
        self.note(offered);
    }
}

fn is_due(cache: &Shared, since: Duration) -> bool {
    cache.renew_every().is_some_and(|every| since >= every)
}

async fn answered<T: Send>(
    clock: &Arc<dyn Clock>,
    call: impl Future<Output = Result<T, CacheError>> + Send,
) -> Result<T, CacheError> {
    let late = |_| CacheError::Unreachable("it does not answer in time".into());
    clock.timeout(ANSWER_WITHIN, call).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use async_trait::async_trait;
    use mutirao_core::Timestamp;
    use mutirao_core::clock::ManualClock;

    use super::super::{Cache, Looked, Token};
    use super::*;

    /// Counts first words; whatever was marked under one had lapsed by then.
    #[derive(Default)]
    struct Counting(AtomicU64);

    #[async_trait]
    impl Cache for Counting {
        async fn look(&self, _place: &Place, _token: Token) -> Looked {
            Looked::Past
        }

        async fn fill(&self, _place: &Place, _token: Token, _entry: &Entry) {}

        fn renew_every(&self) -> Option<Duration> {
            None
        }

        async fn reach(&self) -> Result<(), CacheError> {
            Ok(())
        }

        async fn begin(&self, _shard: ShardId, _reign: Reign, _said: Mono) -> Result<(), CacheError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }

        async fn renew(&self, _shard: ShardId, _reign: Reign, _said: Mono) -> Result<(), CacheError> {
            Ok(())
        }

        async fn mark(&self, _shard: ShardId, _reign: Reign, _places: &[Place]) -> Result<Vec<usize>, CacheError> {
            Err(CacheError::Lapsed)
        }

        async fn offer(&self, _: ShardId, _: Reign, _: &[(Place, Option<Entry>)]) -> Result<(), CacheError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn no_word_is_given_anew_while_a_batch_may_be_committed_yet_and_another_once_none_can_be() {
        let (clock, cache) = (ManualClock::starting_at(Timestamp(0)), Arc::new(Counting::default()));
        let (told, dice) = (cache.clone(), Arc::new(Dice::seeded(1)));
        let mut warden = Warden::new(Some(cache), Company::Others, clock.clone(), dice, ShardId(0), 1);
        let begun = || told.0.load(Ordering::SeqCst);
        clock.advance(LAPSED_AFTER);
        warden.keep().await;
        warden.is_in_doubt();
        warden.keep().await;
        assert_eq!(begun(), 1, "the word under which it was marked stays");
        clock.advance(LAPSED_AFTER);
        assert!(matches!(warden.mark(&[]).await, Marked::Nowhere), "it has lapsed");
        clock.advance(LAPSED_AFTER);
        warden.keep().await;
        assert_eq!(begun(), 1);
        warden.is_settled();
        warden.keep().await;
        assert_eq!(begun(), 2);
        warden.is_in_doubt();
        warden.is_settled();
        warden.keep().await;
        assert_eq!(begun(), 3, "what it marked is forgotten with the word");
        warden.is_settled();
        warden.keep().await;
        assert_eq!(begun(), 3, "once");
    }
}
