//! What the manager must remember of streams, as a trait of its own; [`sqlite`] and [`postgres`] keep it, and one suite of
//! behaviours holds them to the same promises.
//!
//! What people do is written by whichever manager they asked. What an owner decides is fenced by the generation of its shard:
//! whoever lost that writes nothing. Hosts' beats are written by whoever hears them.

pub mod postgres;
pub mod sqlite;

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::{Database, StoreError};
use mutirao_streams::mark::Place;
use mutirao_streams::wire::{HostView, Part, Report, Snapshot, StreamId, Usage, What};
use serde::{Deserialize, Serialize};

use crate::moving::{Begun, Move};
use crate::placing::Seat;

pub type Shared = Arc<dyn StreamStore>;

/// The streams of a database that has had the migrations applied.
pub fn open(database: &Database) -> Shared {
    match database {
        Database::Sqlite(sqlite) => Arc::new(sqlite::SqliteStreams(sqlite.clone())),
        Database::Postgres(postgres) => Arc::new(postgres::PostgresStreams(postgres.clone())),
    }
}

/// Who changes something, when.
#[derive(Clone, Debug)]
pub struct By {
    pub namespace: String,
    pub who: String,
    pub at: Timestamp,
}

impl By {
    fn event(&self, what: &str, detail: &str) -> Event {
        Event { at: self.at, who: self.who.clone(), what: what.into(), detail: detail.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamState {
    Running,
    /// Sources take nothing; what is under way goes on to its end.
    Paused,
    /// It is being taken down.
    Deleted,
}

impl StreamState {
    pub fn as_str(self) -> &'static str {
        match self {
            StreamState::Running => "running",
            StreamState::Paused => "paused",
            StreamState::Deleted => "deleted",
        }
    }

    /// What was done to bring it there.
    fn done(self) -> &'static str {
        match self {
            StreamState::Running => "resume",
            StreamState::Paused => "pause",
            StreamState::Deleted => "delete",
        }
    }

    fn of(text: &str) -> Result<Self, String> {
        [StreamState::Running, StreamState::Paused, StreamState::Deleted]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("\"{text}\" is no state of a stream"))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct StreamRow {
    pub id: StreamId,
    pub namespace: String,
    pub name: String,
    pub owner: String,
    pub shard: ShardId,
    pub definition: String,
    pub state: StreamState,
    /// In whose place it came.
    pub follows: Option<StreamId>,
    pub deployed_at: Timestamp,
    pub changed_at: Timestamp,
    pub changed_by: String,
}

/// What a definition says, without how it is written.
pub type Sameness = [u8; 32];

/// A stream to be deployed.
#[derive(Clone, Debug)]
pub struct NewStream {
    pub id: StreamId,
    pub by: By,
    pub name: String,
    pub shard: ShardId,
    pub definition: String,
    pub sameness: Sameness,
    pub over: Over,
}

/// What is done with one of the same name that says something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Refuse,
    Replace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deployed {
    Made(StreamId),
    /// It is there, and says the same.
    Unchanged(StreamId),
    Replaced {
        was: StreamId,
        is: StreamId,
    },
    /// It is there, and says something else; nothing was written.
    Differs(StreamId),
    /// There are as many as there may be.
    Full,
}

/// Streams of an installation, at most: each costs its owner a look every half second.
pub const STREAMS_MAX: u32 = 1_000;

/// Where a part is.
#[derive(Clone, Debug, PartialEq)]
pub struct PartRow {
    pub part: Part,
    pub seat: Option<Seat>,
    pub epoch: u64,
    /// Why it is there, or nowhere.
    pub why: String,
    pub since: Timestamp,
}

/// What a host is to run, with what is needed of its stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Seated {
    pub part: Part,
    pub epoch: u64,
    pub state: StreamState,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HostRow {
    pub host: HostView,
    pub boot: u64,
    /// How often it was heard.
    pub beats: u64,
    pub heard_at: Timestamp,
    pub node: Usage,
    pub reports: Vec<Report>,
}

/// A snapshot that is in the blobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub part: Part,
    pub epoch: u64,
    pub snapshot: Snapshot,
    /// Since when nobody is told of it any more.
    pub retired_at: Option<Timestamp>,
}

/// Something that happened to a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Event {
    pub at: Timestamp,
    /// A person, or the manager that decided.
    pub who: String,
    /// `deploy`, `pause`, `place`, …
    pub what: String,
    pub detail: String,
}

/// Everything of some shards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    pub streams: Vec<StreamRow>,
    pub parts: Vec<PartRow>,
    pub snapshots: Vec<Kept>,
    pub moves: Vec<Move>,
}

/// What an owner writes at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// As they are from now on.
    pub parts: Vec<PartRow>,
    /// Moves as they are from now on, and parts whose moves have ended.
    pub moves: Vec<Move>,
    pub moved: Vec<Part>,
    pub snapshots: Vec<Kept>,
    pub retired: Vec<(String, Timestamp)>,
    /// Snapshots whose blobs are gone.
    pub removed: Vec<String>,
    /// Streams of which nothing is left.
    pub gone: Vec<StreamId>,
    pub events: Vec<(StreamId, Event)>,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        *self == Batch::default()
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Durable,
    /// The shard has another owner; nothing was written.
    Fenced,
}

#[async_trait]
pub trait StreamStore: Send + Sync + 'static {
    /// All or nothing, with its line in the history.
    async fn deploy(&self, new: NewStream) -> Result<Deployed, StoreError>;
    /// By its name, unless it was deleted.
    async fn stream(&self, namespace: String, name: String) -> Result<Option<StreamRow>, StoreError>;
    /// Whatever its state.
    async fn by_id(&self, ids: Vec<StreamId>) -> Result<Vec<StreamRow>, StoreError>;
    /// By name, those after this one that were not deleted.
    async fn streams(&self, namespace: String, after: String, rows: u32) -> Result<Vec<StreamRow>, StoreError>;
    /// What it is from now on, with its line in the history; what it was, or none where there is none of that name.
    async fn set_state(&self, by: By, name: String, to: StreamState) -> Result<Option<StreamRow>, StoreError>;
    /// Of a name, the newest first.
    async fn history(&self, namespace: String, name: String, rows: u32) -> Result<Vec<Event>, StoreError>;

    /// Counts a beat, and says how many there were.
    async fn beat(&self, row: HostRow) -> Result<u64, StoreError>;
    async fn hosts(&self) -> Result<Vec<HostRow>, StoreError>;
    /// Asks for a move; false if one of the same part was asked for already, which is left as it is.
    async fn ask_move(&self, by: By, asked: Move) -> Result<bool, StoreError>;
    async fn moves(&self, streams: Vec<StreamId>) -> Result<Vec<Move>, StoreError>;
    /// What a host is to run in this life of it, copies of what moves to it included.
    async fn seated(&self, seat: Seat) -> Result<Vec<Seated>, StoreError>;
    async fn parts(&self, streams: Vec<StreamId>) -> Result<Vec<PartRow>, StoreError>;
    /// Those that are not retired.
    async fn snapshots(&self, streams: Vec<StreamId>) -> Result<Vec<Kept>, StoreError>;

    /// Without definitions: these never change, and are read once.
    async fn held(&self, shards: Vec<ShardId>) -> Result<Held, StoreError>;
    async fn write(&self, fence: Fence, batch: Arc<Batch>) -> Result<Fate, StoreError>;
    /// The number of the last row of a sink that was handed over for good.
    async fn handed_over(&self, stream: StreamId, sink: u32) -> Result<Option<Place>, StoreError>;
    /// One that is not after the last changes nothing.
    async fn hand_over(&self, stream: StreamId, sink: u32, last: Place) -> Result<(), StoreError>;

    /// Removes history of before, and hosts that nobody heard of since and that run nothing.
    async fn sweep(&self, before: Timestamp, rows: u32) -> Result<u64, StoreError>;
}

/// `source`, `stage`, `sink`, as they are kept.
fn columns(what: What) -> (&'static str, i64) {
    match what {
        What::Source(n) => ("source", i64::from(n)),
        What::Stage(n) => ("stage", i64::from(n)),
        What::Sink(n) => ("sink", i64::from(n)),
    }
}

fn part(stream: String, kind: &str, n: i64, replica: i64) -> Result<Part, String> {
    let n = n as u32;
    let what = match kind {
        "source" => What::Source(n),
        "stage" => What::Stage(n),
        "sink" => What::Sink(n),
        other => return Err(format!("\"{other}\" is no kind of part")),
    };
    Ok(Part { stream: StreamId(stream), what, replica: replica as u32 })
}

/// Of a move: epochs begin with one.
fn begun(boot: i64, epoch: i64) -> Option<Begun> {
    (epoch > 0).then_some(Begun { boot: boot as u64, epoch: epoch as u64 })
}

fn seat(host: Option<String>, boot: i64) -> Option<Seat> {
    host.map(|host| Seat { host, boot: boot as u64 })
}
