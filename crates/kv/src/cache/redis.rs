//! Values at hand in Redis, for all managers. What [`slots`](super::slots) does in one step is a script here, which Redis runs
//! in one step; but most looks need none, since what they look for is there. A shard's keys have its number in braces, so that
//! they stay together in a cluster, and the server's run before them ([`link`]). How they look is in [`packing`].
//!
//! A Redis that does not answer within a moment is left alone for a second by whoever reads: then the store is asked.

mod link;
mod packing;
mod way;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice, Mono, ShardId};
use mutirao_tls::Trust;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Script, Value as Said};

use super::{Cache, CacheError, LEASE, Looked, Reign, Token, VOUCHED_FOR, nothing};
use crate::fold::Entry;
use crate::meters;
use crate::write::{Key, Place};
use link::{Link, ServerClock, said};
use packing::{hex, of_reign, pack, unpack};
use way::Way;

const CONNECT_WITHIN: Duration = Duration::from_millis(500);
const ANSWER_WITHIN: Duration = Duration::from_millis(100);
/// Several of these are in the time that a word counts.
const RENEW_EVERY: Duration = Duration::from_millis(500);
const LEFT_ALONE: Duration = Duration::from_secs(1);
/// How much longer than it may a word may seem to count to the server, whose clock was looked at a moment ago: a part of what is
/// allowed for with [`LAPSED_AFTER`](super::LAPSED_AFTER).
const CLOCKS_APART_MAX: Duration = Duration::from_millis(250);
const NO_ADDRESS: &str =
    "it is not the address of a Redis: write it like redis://user:password@host:6379/0, or rediss:// for TLS";
/// How long a value is kept that nobody writes, and that there is none.
const KEPT: Duration = Duration::from_secs(600);
const NOTHING_KEPT: Duration = Duration::from_secs(5);
const REASON_CHARS_MAX: usize = 120;

pub struct Redis {
    way: Way,
    prefix: String,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
    link: Mutex<Option<Link>>,
    /// Milliseconds of our clock until which it is left alone.
    alone_until: AtomicU64,
    /// Whether it refused the last word; told once.
    refuses: AtomicBool,
    scripts: Scripts,
}

struct Scripts {
    look: Script,
    fill: Script,
    begin: Script,
    renew: Script,
    mark: Script,
    offer: Script,
}

impl Redis {
    /// Connects when it is first asked. `trust`: who is believed, if the address wants the way to be encrypted.
    pub fn new(
        url: &str,
        trust: &Trust,
        prefix: &str,
        clock: Arc<dyn Clock>,
        dice: Arc<Dice>,
    ) -> Result<Self, CacheError> {
        let way = Way::read(url, trust).ok_or_else(|| CacheError::Unreachable(NO_ADDRESS.into()))?;
        let scripts = Scripts {
            look: Script::new(include_str!("redis/look.lua")),
            fill: Script::new(include_str!("redis/fill.lua")),
            begin: Script::new(include_str!("redis/begin.lua")),
            renew: Script::new(include_str!("redis/renew.lua")),
            mark: Script::new(include_str!("redis/mark.lua")),
            offer: Script::new(include_str!("redis/offer.lua")),
        };
        let (link, alone_until, refuses) = (Mutex::default(), AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self { way, prefix: prefix.into(), clock, dice, link, alone_until, refuses, scripts })
    }

    /// What is there, for people: its version.
    pub async fn version(&self) -> Result<String, CacheError> {
        let mut link = self.link().await?;
        let info = self.info(&mut link.connection).await?;
        let version = said(&info, "redis_version");
        version.map(str::to_owned).ok_or_else(|| CacheError::Unreachable("it does not say its version".into()))
    }

    /// Whether it does what is asked of it. For whoever has the prefix to themselves.
    pub async fn try_out(&self) -> Result<(), CacheError> {
        let place = Place { namespace: "tried".into(), key: Key::kept("out".into()) };
        let (shard, reign) = (place.shard(), Reign { generation: 1, epoch: self.dice.u64() });
        self.begin(shard, reign, self.clock.monotonic()).await?;
        self.mark(shard, reign, std::slice::from_ref(&place)).await?;
        let mut link = self.link().await?;
        let (word, slot) = (link.word(shard), link.slot(shard, &place));
        self.glance(&mut link, &word, &slot).await?;
        self.offer(shard, reign, &[(place, Some(nothing()))]).await
    }

    async fn info(&self, connection: &mut MultiplexedConnection) -> Result<String, CacheError> {
        let mut ask = redis::cmd("INFO");
        self.in_time(ask.arg("server").query_async(connection)).await
    }

    async fn link(&self) -> Result<Link, CacheError> {
        if let Some(link) = self.link.lock().clone() {
            return Ok(link);
        }
        let late = |_| CacheError::Unreachable("it does not let us in in time".into());
        let mut connection = self.clock.timeout(CONNECT_WITHIN, self.way.connect()).await.map_err(late)??;
        let clock = self.its_clock(&mut connection).await?;
        let info = self.info(&mut connection).await?;
        let link = Link::new(connection, &self.prefix, &info, clock)?;
        *self.link.lock() = Some(link.clone());
        Ok(link)
    }

    async fn its_clock(&self, connection: &mut MultiplexedConnection) -> Result<ServerClock, CacheError> {
        let asking = redis::cmd("TIME");
        let (seconds, micros): (u64, u64) = self.in_time(asking.query_async(connection)).await?;
        // Read after it was answered: however long that took, words count for less by it and not for more.
        Ok(ServerClock { server_ms: seconds * 1_000 + micros / 1_000, ours: self.clock.monotonic() })
    }

    /// For whoever is about to give a first word: by the server's clock as it is now.
    async fn link_by_its_clock(&self) -> Result<Link, CacheError> {
        let kept = self.link.lock().clone();
        let Some(mut link) = kept else { return self.link().await };
        let clock = self.its_clock(&mut link.connection).await?;
        link.set_clock(clock);
        if let Some(kept) = self.link.lock().as_mut() {
            kept.set_clock(clock);
        }
        Ok(link)
    }

    async fn in_time<T: Send>(
        &self,
        call: impl Future<Output = redis::RedisResult<T>> + Send,
    ) -> Result<T, CacheError> {
        let late = |_| CacheError::Unreachable("it does not answer in time".into());
        let said = self.clock.timeout(ANSWER_WITHIN, call).await.map_err(late).and_then(|said| said.map_err(failed));
        if said.is_err() {
            // What is still on its way there dies with the connection.
            *self.link.lock() = None;
        }
        said
    }

    /// For readers, who need not: none while it is left alone.
    async fn at_leisure(&self) -> Option<Link> {
        let now = self.clock.monotonic().0.as_millis() as u64;
        if now < self.alone_until.load(Ordering::Relaxed) {
            return None;
        }
        match self.link().await {
            Ok(link) => Some(link),
            Err(error) => {
                self.leave_alone(&error);
                None
            }
        }
    }

    fn leave_alone(&self, error: &CacheError) {
        meters::cache_failed();
        tracing::debug!(%error, "the cache is left alone for a moment");
        let until = self.clock.monotonic().plus(LEFT_ALONE).0.as_millis() as u64;
        self.alone_until.store(until, Ordering::Relaxed);
    }

    /// What is there, if it counts. Most that is looked for does, and this costs Redis a sixth of what a script does. The word is asked
    /// for first. So either nothing was marked in between, or what is found was put there since: it was right at a moment after
    /// the question in any case.
    async fn glance(&self, link: &mut Link, word: &str, slot: &str) -> Result<Option<Entry>, CacheError> {
        type Found = ((Option<Vec<u8>>, Option<Vec<u8>>), Option<Vec<u8>>);
        let mut both = redis::pipe();
        both.cmd("HMGET").arg(word).arg("epoch").arg(slot).cmd("GET").arg(slot);
        let ((epoch, changing), found): Found = self.in_time(both.query_async(&mut link.connection)).await?;
        let (Some(epoch), None, Some(found)) = (epoch, changing, found) else { return Ok(None) };
        Ok(of_reign(found, &epoch).and_then(|packed| unpack(&packed)))
    }

    /// In one step, also whether the key may be filled in.
    async fn look_closely(
        &self,
        link: &mut Link,
        word: String,
        slot: String,
        token: Token,
    ) -> Result<Looked, CacheError> {
        let mut script = self.scripts.look.key(word);
        script.key(slot).arg(hex(token.0)).arg(LEASE.as_millis() as u64);
        Ok(match self.in_time(script.invoke_async(&mut link.connection)).await? {
            Said::BulkString(found) => unpack(&Bytes::from(found)).map_or(Looked::Past, Looked::Hit),
            Said::Int(1) => Looked::Miss(token),
            _ => Looked::Past,
        })
    }

    async fn tell(&self, link: &mut Link, script: &mut redis::ScriptInvocation<'_>) -> Result<(), CacheError> {
        let done: bool = self.in_time(script.invoke_async(&mut link.connection)).await?;
        if done { Ok(()) } else { Err(CacheError::Lapsed) }
    }

    /// One that refuses does so to every shard, again and again: that is said once.
    fn heed(&self, begun: &Result<(), CacheError>) {
        match begun {
            Err(CacheError::Refused(why)) => {
                if !self.refuses.swap(true, Ordering::Relaxed) {
                    tracing::warn!(why, "the cache refuses what it is told; until it does not, reads ask the database");
                }
            }
            Ok(()) => {
                if self.refuses.swap(false, Ordering::Relaxed) {
                    tracing::info!("the cache is told of changes again");
                }
            }
            Err(CacheError::Lapsed | CacheError::Unreachable(_)) => {}
        }
    }
}

/// Whether it is the address of a Redis; says how to write one, and not what was written.
pub fn check_url(url: &str) -> Result<(), String> {
    Way::read(url, &Trust::nobody()).map(drop).ok_or_else(|| NO_ADDRESS.into())
}

fn failed(error: redis::RedisError) -> CacheError {
    match error.code() {
        // The server's own words, which hold no address.
        Some(code) => {
            let why = format!("{code} {}", error.detail().unwrap_or_default());
            CacheError::Refused(why.chars().take(REASON_CHARS_MAX).collect())
        }
        // The client's may hold it, with the password.
        None => CacheError::Unreachable(error.category().into()),
    }
}

/// A word that counts for longer than that from now is by another clock than the server's.
fn ahead_max_ms() -> u64 {
    (VOUCHED_FOR + CLOCKS_APART_MAX).as_millis() as u64
}

fn kept(entry: &Entry) -> u64 {
    let long = if entry.value.is_some() { KEPT } else { NOTHING_KEPT };
    long.as_millis() as u64
}

#[async_trait]
impl Cache for Redis {
    async fn look(&self, place: &Place, token: Token) -> Looked {
        let Some(mut link) = self.at_leisure().await else { return Looked::Past };
        let shard = place.shard();
        let (word, slot) = (link.word(shard), link.slot(shard, place));
        let looked = match self.glance(&mut link, &word, &slot).await {
            Ok(Some(entry)) => return Looked::Hit(entry),
            Ok(None) => self.look_closely(&mut link, word, slot, token).await,
            Err(error) => Err(error),
        };
        looked.unwrap_or_else(|error| {
            self.leave_alone(&error);
            Looked::Past
        })
    }

    async fn fill(&self, place: &Place, token: Token, entry: &Entry) {
        let Some(mut link) = self.at_leisure().await else { return };
        let shard = place.shard();
        let mut script = self.scripts.fill.key(link.word(shard));
        script.key(link.slot(shard, place)).arg(hex(token.0)).arg(pack(entry)).arg(kept(entry));
        if let Err(error) = self.in_time::<bool>(script.invoke_async(&mut link.connection)).await {
            self.leave_alone(&error);
        }
    }

    fn renew_every(&self) -> Option<Duration> {
        Some(RENEW_EVERY)
    }

    async fn reach(&self) -> Result<(), CacheError> {
        let mut link = self.link().await?;
        let ping = redis::cmd("PING");
        self.in_time::<String>(ping.query_async(&mut link.connection)).await.map(drop)
    }

    async fn begin(&self, shard: ShardId, reign: Reign, said: Mono) -> Result<(), CacheError> {
        let mut link = self.link_by_its_clock().await?;
        let mut script = self.scripts.begin.key(link.word(shard));
        script.arg(reign.generation).arg(hex(reign.epoch)).arg(link.until(said)).arg(ahead_max_ms());
        let begun = self.tell(&mut link, &mut script).await;
        self.heed(&begun);
        begun
    }

    async fn renew(&self, shard: ShardId, reign: Reign, said: Mono) -> Result<(), CacheError> {
        let mut link = self.link().await?;
        let mut script = self.scripts.renew.key(link.word(shard));
        script.arg(hex(reign.epoch)).arg(link.until(said)).arg(ahead_max_ms());
        self.tell(&mut link, &mut script).await
    }

    async fn mark(&self, shard: ShardId, reign: Reign, places: &[Place]) -> Result<Vec<usize>, CacheError> {
        let mut link = self.link().await?;
        let mut script = self.scripts.mark.key(link.word(shard));
        script.arg(hex(reign.epoch));
        for place in places {
            script.key(link.slot(shard, place));
        }
        let kept: Option<Vec<usize>> = self.in_time(script.invoke_async(&mut link.connection)).await?;
        kept.ok_or(CacheError::Lapsed)
    }

    async fn offer(&self, shard: ShardId, reign: Reign, entries: &[(Place, Option<Entry>)]) -> Result<(), CacheError> {
        let mut link = self.link().await?;
        let mut script = self.scripts.offer.key(link.word(shard));
        script.arg(hex(reign.epoch));
        for (n, (place, entry)) in entries.iter().enumerate() {
            script.key(link.slot(shard, place));
            if let Some(entry) = entry {
                script.arg(n).arg(pack(entry)).arg(kept(entry));
            }
        }
        self.tell(&mut link, &mut script).await
    }
}
