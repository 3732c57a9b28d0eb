//! What kv must remember, as a trait of its own; [`sqlite`] and [`postgres`] keep it, and one suite of behaviours holds them to
//! the same promises.
//!
//! Whoever lost its shard writes nothing: every batch is fenced by the generation of its lease. What was heard of a sender
//! is written with what came of it, so a parcel that comes again changes nothing.

mod forgetting;
pub mod postgres;
pub mod sqlite;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::{Database, StoreError};

use crate::fold::{Entry, Event, Fate, Kind, Taken};
use crate::point::Point;
use crate::write::{Change, Condition, Key, PLAIN_BYTES, Parcel, Place, Producer, Value, Write, WriteId, shared};

pub use forgetting::{Bound, Forget, Forgot};
use forgetting::{Ends, GHOST_MS, weighed};

pub type Shared = Arc<dyn KvStore>;

/// The entries of a database that has had the engine's migrations applied.
pub fn open(database: &Database) -> Shared {
    match database {
        Database::Sqlite(sqlite) => Arc::new(sqlite::SqliteKv(sqlite.clone())),
        Database::Postgres(postgres) => Arc::new(postgres::PostgresKv(postgres.clone())),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applying {
    /// The shard's revision after it, what became of the parcels that were new, and the entries that are others now.
    Done { revision: u64, taken: Vec<Taken>, entries: BTreeMap<Place, Entry> },
    /// The shard has another owner; nothing was written.
    Fenced,
}

/// What is known of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Not applied, as far as is known.
    No,
    /// Not applied yet; its sender is known, and nothing that it sent later has been either.
    Coming,
    /// It was not applied and never will be: something that was sent later has been.
    Never,
    /// Nor will it be: the store refused it, and it was set aside.
    Aside,
    /// It is from before what is remembered of its sender.
    Forgotten,
    Conflict,
    /// `latest`: the key's revision now. Higher than the write's own: something else has taken its place since.
    Applied {
        revision: u64,
        latest: u64,
    },
    /// Applied, so long ago that no more is known.
    LongAgo,
}

/// How much is read at once: so many rows, and no more once their values have so many bytes together. One is always read.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub rows: u32,
    pub bytes: usize,
}

impl Extent {
    fn is_used_up(self) -> bool {
        self.rows == 0 || self.bytes == 0
    }

    fn use_for(&mut self, value: Option<&Value>) {
        let bytes = value.map_or(0, |value| value.bytes.len());
        (self.rows, self.bytes) = (self.rows.saturating_sub(1), self.bytes.saturating_sub(bytes));
    }
}

/// What a reader sees of a key at some point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub key: Key,
    pub entry: Entry,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// In the order of their keys. `next`: keys from this one on were not looked at.
    Of { found: Vec<Found>, next: Option<Key> },
    /// What happened since that point is not known any more.
    Compacted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Past {
    /// What changed something, in the order of revisions; everything up to `until` has been looked at.
    Events {
        events: Vec<Event>,
        until: u64,
    },
    Compacted,
}

/// Which keys: those of a namespace that begin so, from a key on.
#[derive(Clone, Debug)]
pub struct Range {
    pub namespace: String,
    pub prefix: String,
    pub from: Option<Key>,
}

impl Range {
    /// The first text that could be asked for.
    fn begin(&self) -> &str {
        self.from.as_ref().map_or("", Key::as_str).max(&self.prefix)
    }

    /// The first text after all that begin so; none: there is none.
    fn end(&self) -> Option<String> {
        let mut chars: Vec<char> = self.prefix.chars().collect();
        while let Some(last) = chars.pop() {
            // Code points and their bytes have the same order.
            if let Some(next) = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32) {
                chars.push(next);
                return Some(chars.into_iter().collect());
            }
        }
        None
    }
}

#[async_trait]
pub trait KvStore: Send + Sync + 'static {
    /// Applies what is new of these, in order, at this moment. One without writes has been set aside: it counts as heard.
    async fn apply(&self, fence: Fence, parcels: Vec<Parcel>, now: Timestamp) -> Result<Applying, StoreError>;
    /// Some of those whose time is over.
    async fn over(&self, shard: ShardId, now: Timestamp, rows: u32) -> Result<Vec<Place>, StoreError>;
    /// Ends these, if their time is over.
    async fn expire(&self, fence: Fence, over: Vec<Place>, now: Timestamp) -> Result<Applying, StoreError>;
    /// When the next of a shard's entries is over.
    async fn soonest(&self, shard: ShardId) -> Result<Option<Timestamp>, StoreError>;
    async fn entry(&self, place: Place) -> Result<Option<Entry>, StoreError>;
    /// What was there at a point, of as many keys that have been there at any time.
    async fn page(&self, range: Range, point: Point, extent: Extent) -> Result<Page, StoreError>;
    /// Where every shard is.
    async fn point(&self) -> Result<Point, StoreError>;
    /// What happened in a shard after a revision.
    async fn past(&self, shard: ShardId, after: u64, extent: Extent) -> Result<Past, StoreError>;
    /// `namespace`: whose write it is to be, else it is not known; none: whosever.
    async fn known(&self, write: WriteId, namespace: Option<Arc<str>>) -> Result<Known, StoreError>;
    /// Makes somebody known whose parcels are on their way for a while, so that others can tell what it sent from what
    /// nobody did; said again now and then, that it lives. Nothing of its was sent before it began.
    async fn introduce(&self, producer: Producer, begun: Timestamp, now: Timestamp) -> Result<(), StoreError>;
    /// The last parcel of each of these senders that was applied to the shard beside it, in their order.
    async fn heard(&self, asked: Vec<(ShardId, Producer)>) -> Result<Vec<Option<u64>>, StoreError>;
    /// What became of a parcel; none if it was not applied. What stood in the way of a condition is not said.
    async fn taken(&self, shard: ShardId, producer: Producer, number: u64) -> Result<Option<Taken>, StoreError>;
    /// Removes some of a shard's history, of what was deleted and heard before it, and of who has not been heard since.
    async fn compact(&self, fence: Fence, forget: Forget, rows: u32) -> Result<Forgot, StoreError>;
}

/// A parcel as its rows tell it: `conflicts` are the revisions of those whose condition did not hold.
fn taken_of(producer: Producer, number: u64, first: u64, writes: u32, conflicts: &HashSet<u64>) -> Taken {
    let fate = |revision: u64| match conflicts.contains(&revision) {
        true => Fate::Conflict { there: None },
        false => Fate::Applied { revision },
    };
    Taken { producer, number, first, fates: (first..first + u64::from(writes)).map(fate).collect() }
}

/// What is there of a sender's parcels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfSender {
    /// The lowest number of a parcel.
    pub oldest: Option<u64>,
    /// The highest, 0 when it has only introduced itself.
    pub last: Option<u64>,
    pub introduced: bool,
    /// None of its parcels was removed so far.
    pub whole: bool,
}

/// Of a write whose parcel is not there.
pub(crate) fn without_parcel(number: u64, of_sender: OfSender) -> Known {
    match of_sender {
        OfSender { oldest: Some(oldest), whole: false, .. } if number < oldest => Known::Forgotten,
        // The oldest go first, so there are no gaps but those that always were.
        OfSender { last: Some(last), .. } if number < last => Known::Never,
        OfSender { introduced: true, .. } if number > 0 => Known::Coming,
        _ => Known::No,
    }
}

fn number_of(kind: Kind) -> i64 {
    match kind {
        Kind::Put => 0,
        Kind::Delete => 1,
        Kind::Expire => 2,
        Kind::Nothing => 3,
        Kind::Conflict => 4,
    }
}

fn kind_of(number: i64) -> Kind {
    match number {
        0 => Kind::Put,
        1 => Kind::Delete,
        2 => Kind::Expire,
        3 => Kind::Nothing,
        _ => Kind::Conflict,
    }
}

fn value_of(bytes: Option<Vec<u8>>, content_type: Option<&str>) -> Option<Value> {
    let content_type = shared(content_type.unwrap_or(PLAIN_BYTES));
    bytes.map(|bytes| Value { bytes: Bytes::from(bytes), content_type })
}

/// The keys of which it matters what is there, each once: a value that is put on no condition takes the place of whatever was.
fn decisive(parcels: &[Parcel]) -> BTreeSet<Place> {
    let depends = |write: &&Write| write.condition != Condition::None || write.change == Change::Delete;
    parcels.iter().flat_map(|parcel| &parcel.writes).filter(depends).map(|write| write.place.clone()).collect()
}

/// Of keys and what the newest rows say, what was there at the point: the row itself if it is old enough, else what the
/// history says.
fn at_point(row: Found, shard: ShardId, point: &Point) -> Result<Option<Found>, Found> {
    if row.entry.revision > point.at(shard) {
        return Err(row);
    }
    Ok(Some(row).filter(|row| row.entry.value.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(prefix: &str) -> Option<String> {
        Range { namespace: "n".into(), prefix: prefix.into(), from: None }.end()
    }

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        assert_eq!(end(""), None);
        assert_eq!(end("a").as_deref(), Some("b"));
        assert_eq!(end("a/").as_deref(), Some("a0"));
        assert_eq!(end("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!(end("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(end("\u{10ffff}"), None);
    }

    #[test]
    fn what_is_not_there_was_never_made_or_is_forgotten_or_comes() {
        let of = |oldest, last, introduced| OfSender { oldest, last, introduced, whole: false };
        let known = |number, oldest, last, introduced| without_parcel(number, of(oldest, last, introduced));
        assert_eq!(known(5, None, None, false), Known::No, "nobody of that name");
        assert_eq!(known(5, None, Some(0), true), Known::Coming);
        assert_eq!(known(0, None, Some(0), true), Known::No, "no write is in an introduction");
        assert_eq!(known(5, Some(3), Some(4), true), Known::Coming);
        assert_eq!(known(5, Some(3), Some(4), false), Known::No, "whoever commits by hand has nothing on its way");
        assert_eq!(known(5, Some(3), Some(7), true), Known::Never);
        assert_eq!(known(5, Some(3), Some(7), false), Known::Never);
        assert_eq!(known(2, Some(3), Some(7), true), Known::Forgotten);
        let whole = OfSender { whole: true, ..of(Some(3), Some(7), true) };
        assert_eq!(without_parcel(2, whole), Known::Never, "nothing was removed that it could have been");
    }

    #[test]
    fn a_page_goes_on_from_its_key_and_begins_with_the_prefix() {
        let range = |from: Option<&str>| Range {
            namespace: "n".into(),
            prefix: "b/".into(),
            from: from.map(|key| key.parse().unwrap()),
        };
        assert_eq!(range(None).begin(), "b/");
        assert_eq!(range(Some("a")).begin(), "b/");
        assert_eq!(range(Some("b/7")).begin(), "b/7");
    }
}
