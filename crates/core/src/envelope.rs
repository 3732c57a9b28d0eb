//! What travels between manager and workers. JSON, because a reader must tolerate fields it does not know and name the
//! ones it lacks, and because a person with a broker console must be able to read it; a parcel of many tasks pays the
//! price of its framing once.
//!
//! Rules of evolution: a new field is optional and has a default; a field is never reused for something else; only a
//! change that an old reader must *not* guess at raises [`VERSION`], and then readers refuse what is newer than they
//! are with [`Unreadable::Newer`], which puts it with the dead letters instead of losing it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::id::{Attempt, JobKey, QueueName, SessionId, TaskKey, WorkerId};
use crate::outcome::Outcome;
use crate::shard::{JOBS_SHARDS, ShardId};
use crate::task::{Action, Needs, TaskSpec};
use crate::tolerant;

/// The newest that is read. What has nothing in it that an older reader would get wrong is written as version 1.
pub const VERSION: u16 = 2;

/// Why a message cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("not an envelope of ours: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("envelope version {found} is newer than this program's {VERSION}; upgrade it")]
    Newer { found: u16 },
}

#[derive(Deserialize)]
struct Stamp {
    v: u16,
}

/// Reads an envelope, or says why not.
pub fn open<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    match tolerant::read(bytes) {
        Ok(envelope) => Ok(envelope),
        // Only a failure pays for the second look: is it rubbish, or merely from the future?
        Err(malformed) => match serde_json::from_slice::<Stamp>(bytes) {
            Ok(Stamp { v }) if v > VERSION => Err(Unreadable::Newer { found: v }),
            _ => Err(Unreadable::Malformed(malformed)),
        },
    }
}

/// Writes an envelope. Ours always can be: no map has keys that are not texts.
pub fn seal<T: Serialize>(envelope: &T) -> Bytes {
    serde_json::to_vec(envelope).expect("envelopes are plain data").into()
}

/// A version that reads only what this program understands. By default the first, which everybody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Version(u16);

impl Version {
    /// A parcel in which tasks have several commands or variables of their own: who passes over those runs something else
    /// than was asked.
    pub const SECOND: Self = Self(2);
}

impl Default for Version {
    fn default() -> Self {
        Self(1)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let v = u16::deserialize(from)?;
        if v > VERSION {
            return Err(serde::de::Error::custom(format!("envelope version {v} is newer than {VERSION}")));
        }
        Ok(Self(v))
    }
}

/// Which parcel. The generation is its owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ParcelId {
    pub generation: u64,
    pub n: u64,
}

/// Manager → worker, on `tasks.<queue>`: tasks handed out together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parcel {
    #[serde(default)]
    pub v: Version,
    pub id: ParcelId,
    /// Where outcomes go.
    pub reply_to: String,
    /// What the tasks have in common, once for each job among them.
    pub templates: Vec<Template>,
    pub tasks: Vec<Handout>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Template {
    pub job: JobKey,
    pub trace: String,
    pub spec: Arc<TaskSpec>,
}

/// One task in a parcel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Handout {
    /// Which of the parcel's templates.
    #[serde(default)]
    pub t: u16,
    pub index: u32,
    /// The attempt's number; its generation is the parcel's.
    pub n: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// In place of the template's command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Commands that follow it, in place of those of the template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<Vec<String>>,
    /// Variables beside those of the template, or in their place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

impl Handout {
    /// Whether a reader of version 1 would run something else.
    fn is_new(&self) -> bool {
        !self.then.is_empty() || !self.env.is_empty()
    }
}

impl Parcel {
    /// The oldest version that says all that is in a parcel of these.
    pub fn version_of(templates: &[Template], tasks: &[Handout]) -> Version {
        let follows =
            |template: &Template| matches!(&template.spec.action, Action::Exec(exec) if !exec.then.is_empty());
        let new = templates.iter().any(follows) || tasks.iter().any(Handout::is_new);
        if new { Version::SECOND } else { Version::default() }
    }
}

/// Worker → manager, on the parcel's `reply_to`: what happened, many at a time. Each is confirmed before the next
/// is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reports {
    #[serde(default)]
    pub v: Version,
    pub session: SessionId,
    pub worker: WorkerId,
    /// Which of the session's messages it is, from 1, in the order in which they were sent. None from a version that did
    /// not count. The broker may lose a message, or deliver it again after later ones; this shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Parcels this session has received and now answers for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<ParcelId>,
    /// Tasks that began and have been running for longer than a moment. A short task is not worth the word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started: Vec<Started>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<Done>,
    /// The heartbeat: the session lives, and holds this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beat: Option<Beat>,
    /// It came, or goes, by way of another shard, as to and from a version that knew only one: what the session said
    /// meanwhile may have overtaken it, so what its beat does not list is not lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detour: bool,
    /// With a beat: what the worker uses. None from a version that did not measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint: Option<Box<Footprint>>,
}

/// What a worker and everything it runs use, and how full the memory of its machine is. What could not be measured is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory_percent: Option<u8>,
}

impl Reports {
    pub fn new(session: SessionId, worker: WorkerId) -> Self {
        Self {
            v: Version::default(),
            session,
            worker,
            number: None,
            taken: Vec::new(),
            started: Vec::new(),
            done: Vec::new(),
            beat: None,
            detour: false,
            footprint: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.started.is_empty() && self.done.is_empty() && self.beat.is_none()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    pub task: TaskKey,
    pub attempt: Attempt,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    pub task: TaskKey,
    pub attempt: Attempt,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trace: String,
    pub outcome: Outcome,
}

/// A session's heartbeat. The whole truth about what the session holds, for whoever has heard all that it said before: what
/// it is believed to hold and is not listed here, it does not hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    pub queue: QueueName,
    pub host: String,
    pub pid: u32,
    pub capacity: Needs,
    /// Takes nothing new.
    #[serde(default)]
    pub draining: bool,
    /// The session said goodbye: everything is reported, nothing is held, no further beat will come.
    #[serde(default)]
    pub leaving: bool,
    #[serde(default)]
    pub held: Vec<Held>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    pub task: TaskKey,
    pub attempt: Attempt,
    #[serde(default)]
    pub running: bool,
}

/// Manager → every worker of a queue, by fanout `control.<queue>`: transient, repeated while it matters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Control {
    #[serde(default)]
    pub v: Version,
    /// Stop every task of these jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancel_jobs: Vec<JobKey>,
    /// Stop these tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancel_tasks: Vec<TaskKey>,
    /// For each of `cancel_tasks`, in their order, the last attempt that is to stop: a later one belongs to somebody who
    /// has the task tried anew. A version that does not say it, or does not know it, means whatever attempt there is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancel_through: Vec<Attempt>,
    /// These sessions finish what they hold and go home.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drain: Vec<SessionId>,
    /// These workers take nothing new, finish what they hold, and stay until they are ended. A version that does not know
    /// this goes on as before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rest: Vec<WorkerId>,
}

impl Control {
    /// Has the workers stop this attempt at a task, and earlier ones.
    pub fn cancel(&mut self, task: TaskKey, through: Attempt) {
        self.cancel_tasks.push(task);
        self.cancel_through.push(through);
    }

    /// The tasks to stop, each with the last attempt that is meant.
    pub fn cancelled(&self) -> impl Iterator<Item = (TaskKey, Attempt)> {
        let through = self.cancel_through.iter().copied().chain(std::iter::repeat(Attempt::LAST));
        self.cancel_tasks.iter().copied().zip(through)
    }
}

/// The broker's names for a queue's three paths.
pub fn tasks_of(queue: &QueueName) -> String {
    format!("tasks.{queue}")
}

/// The shard that a queue belongs to. Its owner hands the queue's tasks out and hears of their outcomes.
pub fn shard_of(queue: &QueueName) -> ShardId {
    crate::shard::shard_of(queue.as_str(), JOBS_SHARDS)
}

/// Where the reports of a queue's workers go: to the queue's shard.
pub fn results_of(queue: &QueueName) -> String {
    results_at(shard_of(queue))
}

/// Where managers of the version before there were shards hear everything.
pub const RESULTS_FORMER: &str = "results.jobs.0";

/// Where the reports for a shard arrive.
pub fn results_at(shard: ShardId) -> String {
    format!("results.jobs.{shard}")
}

pub fn control_of(queue: &QueueName) -> String {
    format!("control.{queue}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_tolerated_and_missing_ones_have_defaults() {
        let text = br#"{"v":1,"session":"s","worker":"w","colour":"red","beat":null}"#;
        let reports: Reports = open(text).unwrap();
        assert_eq!(reports, Reports::new(SessionId("s".into()), WorkerId("w".into())));
    }

    #[test]
    fn a_newer_version_is_told_from_rubbish() {
        let newer = br#"{"v":3,"session":"s","worker":"w"}"#;
        assert!(matches!(open::<Reports>(newer), Err(Unreadable::Newer { found: 3 })));
        assert!(matches!(open::<Reports>(b"\xff\x00"), Err(Unreadable::Malformed(_))));
    }
}
