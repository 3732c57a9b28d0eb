//! What hosts and managers say to each other, and how a running stream is named: parts, epochs, logs, topics, blobs.
//!
//! A **host** is a process on a node that runs parts, as a worker is one that takes tasks. A **part** is a source, a replica of
//! a stage, or a sink, as it runs on one host. Every second a host says how its parts are ([`Beat`]) and hears which it is to
//! run ([`Orders`]): all of them each time, so that a lost word costs a second. A host that hears nothing goes on with what it
//! has: data flows while managers are away.
//!
//! **Logs.** Each stage and each sink reads one log, to which all that it reads append ([`Part::log`]). Nothing else passes
//! between parts, but for announcements of how far readers are ([`Progress`]), by which writers stay within what a log keeps.
//!
//! **Epochs.** Each time a part is given to a host its epoch grows: a host that hears of another one begins the part anew. What a
//! source wrote under an earlier one is believed all the same, since a message goes to one taker; records that put a former
//! writer out can be written ([`mark`](crate::mark)), and no source does.

use std::collections::BTreeMap;
use std::fmt;

use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};

/// How often a host beats.
pub const BEAT_MS: u64 = 1_000;
/// A host that was not heard of for so long is gone: its parts are given to others.
pub const LEASE_MS: u64 = 5_000;
/// Everything of streams at the broker begins with this.
pub const PREFIX: &str = "streams.";
/// Snapshots in the blobs begin with this.
pub const BLOBS: &str = "streams/";
/// The largest snapshot.
pub const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

/// A stream as it was deployed: short and opaque. Another deployment under the same name is another stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamId(pub String);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which of a graph's lists a part is of, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Source(u32),
    Stage(u32),
    Sink(u32),
}

/// One part. Sources and sinks have one replica, number nought.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Part {
    pub stream: StreamId,
    pub what: What,
    pub replica: u32,
}

impl Part {
    /// What it reads, and others append to. Sources read nothing of ours.
    pub fn log(&self) -> Option<String> {
        log_of(&self.stream, self.what)
    }
}

/// `streams.s7f3k9q2.stage.0`
pub fn log_of(stream: &StreamId, what: What) -> Option<String> {
    match what {
        What::Source(_) => None,
        What::Stage(n) => Some(format!("{PREFIX}{stream}.stage.{n}")),
        What::Sink(n) => Some(format!("{PREFIX}{stream}.sink.{n}")),
    }
}

/// Where readers of a stream's logs announce how far they are.
pub fn progress_of(stream: &StreamId) -> String {
    format!("{PREFIX}{stream}.progress")
}

/// How far a reader of a log is: postcard, several times a second, by whoever reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub reader: Part,
    /// The first offset that it may have to read again: that of its last snapshot.
    pub needed: u64,
    /// The offset that it reads next.
    pub next: u64,
    /// Bytes of a record, on average of late: what an offset costs.
    pub record_bytes: u64,
    /// Of those whose records it read since it told them last: about each second.
    pub latencies: Vec<Latency>,
}

/// How long events took through a part, as its reader sees it: from when the one before it had sent them until they were read
/// behind it. Microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub of: Part,
    pub events: u64,
    pub us_mean: u64,
    pub us_p95: u64,
    /// Until it was taken in hand, and from then on.
    pub wait_us_mean: u64,
    pub service_us_mean: u64,
}

/// A host, as it describes itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HostView {
    /// The id of its key; for one inside a manager, the manager's name.
    pub id: String,
    pub name: String,
    pub standing: Standing,
    pub layer: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    pub cores: u32,
    pub memory_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// In a manager: at hand are the installation's own MQTT and AMQP.
    Inside,
    Apart,
}

/// What a host says, each second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    pub host: HostView,
    /// Another one each time that it starts: what it had under way before is gone.
    pub boot: u64,
    pub parts: Vec<Report>,
    pub node: Usage,
    /// Streams whose definition it has.
    pub knows: Vec<StreamId>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub part: Part,
    pub epoch: u64,
    pub state: State,
    /// The offset that it reads next.
    #[serde(default)]
    pub next: u64,
    /// The newest snapshot that is in the blobs, of a stage, a source or a sink.
    #[serde(default)]
    pub snapshot: Option<Snapshot>,
    #[serde(default)]
    pub measures: Measures,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "why")]
pub enum State {
    Starting,
    Running,
    /// It cannot go on by itself yet, and keeps trying.
    Waiting(String),
    /// It reads on from a snapshot and is not there yet.
    CatchingUp,
    /// A source that will say no more, or a part behind it that has heard all.
    Ended,
    /// It cannot go on until somebody changes something.
    Failed(String),
}

/// What a part remembered at one offset of its log; of sources and sinks, how far they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Everything before it is in the snapshot, and nothing after.
    pub offset: u64,
    /// In the blobs.
    pub key: String,
    pub bytes: u64,
    pub taken_at: Timestamp,
}

/// Of a part, over the second before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measures {
    pub events_in: u64,
    pub events_out: u64,
    /// That did not fit, or came too late, since it started.
    pub unfit: u64,
    pub late: u64,
    /// From when what it reads was sent to when it was read on by the next, by the document's definition. Microseconds, of
    /// those that ended in this second; nought when there were none.
    pub latency_us_mean: u64,
    pub latency_us_p95: u64,
    /// The part of it before it was taken in hand, and the part after.
    pub wait_us_mean: u64,
    pub service_us_mean: u64,
    /// Records that lie before it, unread.
    pub queue: u64,
    /// The share of the second in which it waited for those after it.
    pub held_back: f64,
    /// Share of one core.
    pub cpu: f64,
    pub memory_bytes: u64,
    /// Through logs and to the outside.
    pub network_bytes: u64,
    pub disk_bytes: u64,
}

/// Of a node, over the second before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Share of each core that was busy, and that waited for disks.
    pub cpus: Vec<f64>,
    pub io_wait: Vec<f64>,
    /// How many cores may be used, where a control group says so. Then `cpus` are as many as that, rounded up, and only what the
    /// group used; so are memory and disks, where it tells them. Nought where all may be used.
    pub cores: f64,
    pub memory_bytes: u64,
    pub memory_total_bytes: u64,
    pub disk_bytes: u64,
    pub network_bytes: u64,
}

/// What a host is to run. All of it: a part that is not here is stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    pub parts: Vec<Order>,
    /// Definitions (YAML, of one stream each) of those that the host does not know.
    pub definitions: Vec<(StreamId, String)>,
    /// What a log keeps at most. Writers stay within a part of it.
    #[serde(default = "log_bytes_usual")]
    pub log_bytes: u64,
}

/// Of managers that do not say it.
fn log_bytes_usual() -> u64 {
    1 << 30
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    pub part: Part,
    pub epoch: u64,
    pub mode: Mode,
    /// To begin from, the newest first; with none, from the beginning of its log.
    pub snapshots: Vec<Snapshot>,
    /// For each log that it appends to, what its reader needed last, as far as the manager knows.
    #[serde(default)]
    pub needed: Vec<(String, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Run,
    /// Sources take nothing more; what is under way goes on to its end.
    Pause,
}

/// What a sink hands to the manager, which alone may keep keys and start flows for it. A row is named by its number, so that
/// one that is handed over twice counts once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    pub part: Part,
    pub epoch: u64,
    pub items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// `offset.row` in the sink's log.
    pub number: String,
    /// The key, of a kv sink.
    #[serde(default)]
    pub key: Option<String>,
    /// The whole event, or the field that is kept.
    pub value: serde_json::Value,
}

/// What became of a delivery: each item was taken, or is refused for good.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delivered {
    #[serde(default)]
    pub refused: Vec<Refusal>,
}

/// An item that will never be taken, however often it is handed over: a key that is none, a flow that refuses the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    pub number: String,
    pub why: String,
}

/// The most items of one delivery.
pub const ITEMS_MAX: usize = 1_000;

impl What {
    /// `stage-0`
    fn folder(self) -> String {
        match self {
            What::Source(n) => format!("source-{n}"),
            What::Stage(n) => format!("stage-{n}"),
            What::Sink(n) => format!("sink-{n}"),
        }
    }

    fn of_folder(text: &str) -> Option<What> {
        let (kind, n) = text.split_once('-')?;
        let n = n.parse().ok()?;
        match kind {
            "source" => Some(What::Source(n)),
            "stage" => Some(What::Stage(n)),
            "sink" => Some(What::Sink(n)),
            _ => None,
        }
    }
}

/// The blob of a snapshot: `streams/s7f3k9q2/stage-0/1/3-4242-9f31/state`, of a part's replica, its epoch, the offset that
/// it stands for and the boot of the host that took it, so that no two are ever written to the same place. Each has a folder
/// of its own, by which it is removed.
pub fn snapshot_key(part: &Part, epoch: u64, offset: u64, boot: u64) -> String {
    let Part { stream, what, replica } = part;
    format!("{BLOBS}{stream}/{}/{replica}/{epoch}-{offset}-{boot:x}/state", what.folder())
}

/// Whose snapshot a blob is, if it is one.
pub fn part_of_snapshot(key: &str) -> Option<Part> {
    let rest = key.strip_prefix(BLOBS)?.strip_suffix("/state")?;
    let mut pieces = rest.split('/');
    let (stream, what, replica, own) = (pieces.next()?, pieces.next()?, pieces.next()?, pieces.next()?);
    if pieces.next().is_some() || own.is_empty() || stream.is_empty() {
        return None;
    }
    let (what, replica) = (What::of_folder(what)?, replica.parse().ok()?);
    Some(Part { stream: StreamId(stream.to_owned()), what, replica })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_says_whose_it_is_and_other_blobs_are_none() {
        for what in [What::Source(3), What::Stage(0), What::Sink(12)] {
            let part = Part { stream: StreamId("s7f3k9q2".into()), what, replica: 2 };
            let key = snapshot_key(&part, 7, 4_242, 0x9f31);
            assert_eq!(part_of_snapshot(&key), Some(part), "{key}");
        }
        for other in ["streams/s/stage-0/1/state", "logs/j/1/1-1/stdout", "streams/s/stage-0/1/a/b/state", "streams/"] {
            assert_eq!(part_of_snapshot(other), None, "{other}");
        }
    }
}
