//! What a process remembers of its posts: which stand where, which go on alone, and up to where each shard was fired.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mutirao_core::{Mono, ShardId, Timestamp};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::notices::Notices;
use super::takers::Takers;
use crate::SHARDS;

/// For how long a post goes on firing whose lease ran out because the store did not answer.
const ALONE_MAX: Duration = Duration::from_secs(300);

/// Whether the store answers those who renew leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreIs {
    There,
    Away,
}

/// Up to where this process has fired the instants of each shard, in milliseconds. What a store that was away does not know.
#[derive(Default)]
pub struct Fired([AtomicI64; SHARDS as usize]);

impl Fired {
    pub fn note(&self, shard: ShardId, until: Timestamp) {
        if let Some(known) = self.0.get(shard.0 as usize) {
            known.fetch_max(until.0, Ordering::Relaxed);
        }
    }

    pub fn until(&self, shard: ShardId) -> Option<Timestamp> {
        let known = self.0.get(shard.0 as usize)?.load(Ordering::Relaxed);
        (known > 0).then_some(Timestamp(known))
    }
}

/// What posts of one process share.
#[derive(Clone, Default)]
pub struct Common {
    pub notices: Arc<Notices>,
    pub takers: Arc<Mutex<Takers>>,
    pub fired: Arc<Fired>,
}

/// A post as [`run`](super::run) knows it.
pub struct Kept {
    pub generation: u64,
    pub task: AbortHandle,
    /// Told when it is alone.
    pub lapsed: CancellationToken,
    /// Since when it is alone.
    pub alone_since: Option<Mono>,
}

impl Kept {
    /// Whether it goes on. `held`: the generation by which its shard is ours, if it is.
    pub fn goes_on(&mut self, held: Option<u64>, store: StoreIs, now: Mono) -> bool {
        match held {
            Some(generation) => self.alone_since.is_none() && generation == self.generation,
            None if store == StoreIs::Away => {
                self.lapsed.cancel();
                now.since(*self.alone_since.get_or_insert(now)) < ALONE_MAX
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    #[tokio::test]
    async fn a_post_goes_on_alone_only_while_the_store_does_not_answer_and_not_for_ever() {
        let kept = || Kept {
            generation: 7,
            task: tokio::spawn(std::future::pending::<()>()).abort_handle(),
            lapsed: CancellationToken::new(),
            alone_since: None,
        };
        let mut post = kept();
        assert!(post.goes_on(Some(7), StoreIs::There, at(0)) && post.goes_on(Some(7), StoreIs::Away, at(0)));
        assert!(!post.lapsed.is_cancelled(), "it is ours");
        assert!(!kept().goes_on(Some(8), StoreIs::Away, at(0)), "a later one of ours takes over");
        assert!(!kept().goes_on(None, StoreIs::There, at(0)), "somebody else's");
        assert!(post.goes_on(None, StoreIs::Away, at(10)) && post.lapsed.is_cancelled());
        assert!(post.goes_on(None, StoreIs::Away, at(309)));
        assert!(!post.goes_on(None, StoreIs::Away, at(310)), "not for ever");
        assert!(!post.goes_on(Some(9), StoreIs::There, at(20)), "the store is back");
    }

    #[test]
    fn what_was_fired_is_known_to_whoever_comes_next_in_this_process() {
        let fired = Fired::default();
        assert_eq!(fired.until(ShardId(3)), None);
        fired.note(ShardId(3), Timestamp(9));
        fired.note(ShardId(3), Timestamp(5));
        fired.note(ShardId(99), Timestamp(5));
        assert_eq!((fired.until(ShardId(3)), fired.until(ShardId(4))), (Some(Timestamp(9)), None));
    }
}
