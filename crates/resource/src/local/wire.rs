//! What a resource manager and a node's agent say to each other: a line of JSON each way, one question to a connection.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::{QueueName, WorkerId};
use mutirao_elastic::packing::{Amounts, Labels, Layer, NodeName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// Bytes of one line: a listing of ten thousand workers, and some.
const LINE_BYTES_MAX: u64 = 4 << 20;
pub const SOCKET: &str = "agent.sock";

/// What is asked, and under which lease it was decided: an agent obeys nobody whose lease is older than one it has heard of.
#[derive(Serialize, Deserialize)]
pub struct Question {
    #[serde(flatten)]
    pub request: Request,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    List,
    Launch(Box<Order>),
    End {
        worker: WorkerId,
    },
    /// Take nothing more, send the workers home, and go when they have.
    Leave {
        haste: Haste,
    },
}

/// How a worker is sent home. Only ever grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Haste {
    /// Finish what runs.
    Drain,
    /// Stop what runs.
    Now,
    Kill,
}

/// A worker to start. Holds a secret, so it is never printed.
#[derive(Clone, Serialize, Deserialize)]
pub struct Order {
    pub worker: WorkerId,
    pub queue: QueueName,
    pub cpus: Cpus,
    pub memory: Bytes,
    pub token: String,
    pub url: String,
    pub pin: PathBuf,
    pub way: String,
    pub ca: Option<PathBuf>,
    pub collector: Option<String>,
    pub idle_end: Span,
    /// Of a checker or a scheduler: more that it is started with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Of a scheduler: what opens the database and the broker to it, as one line. It takes the place of the token, under a
    /// name of its own, so that an agent that knows no schedulers hands it to nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    Have {
        node: Words,
        workers: BTreeMap<WorkerId, QueueName>,
        /// Those whose process ended a short while ago.
        #[serde(default)]
        ended: BTreeSet<WorkerId>,
    },
    Done,
    Failed {
        why: String,
    },
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    pub name: NodeName,
    pub capacity: Amounts,
    #[serde(default)]
    pub labels: Labels,
    pub layer: Layer,
}

/// A socket's path may only be short, and a folder's may be long. So it is named through the opened folder.
struct Named {
    folder: std::fs::File,
}

impl Named {
    fn of(dir: &Path) -> std::io::Result<Self> {
        Ok(Self { folder: std::fs::File::open(dir)? })
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", self.folder.as_raw_fd()))
    }
}

/// To be called by the holder of the folder's lock: what a dead one left is replaced.
pub fn listen(dir: &Path) -> std::io::Result<UnixListener> {
    let _ = std::fs::remove_file(dir.join(SOCKET));
    UnixListener::bind(Named::of(dir)?.path())
}

/// Asks the agent in a folder.
pub async fn ask(dir: &Path, question: &Question) -> std::io::Result<Answer> {
    let mut stream = UnixStream::connect(Named::of(dir)?.path()).await?;
    say(&mut stream, question).await?;
    hear(stream).await
}

pub async fn say(stream: &mut UnixStream, what: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

pub async fn hear<T: DeserializeOwned>(stream: impl tokio::io::AsyncRead + Unpin) -> std::io::Result<T> {
    let mut line = Vec::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line).await?;
    Ok(serde_json::from_slice(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_and_a_resource_manager_of_the_version_before_are_understood() {
        let old: Question = serde_json::from_str(r#"{"do":"list"}"#).unwrap();
        assert!(matches!(old, Question { request: Request::List, generation: None }));
        let new = serde_json::to_string(&Question { request: Request::List, generation: Some(7) }).unwrap();
        assert!(matches!(serde_json::from_str(&new).unwrap(), Request::List), "{new}");
        let order = r#"{"do":"launch","worker":"w","queue":"q","cpus":"1","memory":"1GiB","token":"t","url":"u","pin":"p",
                        "way":"auto","ca":null,"collector":null,"idle_end":"1h","generation":3}"#;
        let launch: Question = serde_json::from_str(order).unwrap();
        assert!(matches!(&launch.request, Request::Launch(order) if order.worker.0 == "w"));
        assert_eq!(launch.generation, Some(3));
        let have = r#"{"answer":"have","node":{"name":"n","capacity":{},"layer":"edge"},"workers":{"w":"q"}}"#;
        assert!(matches!(serde_json::from_str(have).unwrap(), Answer::Have { ended, .. } if ended.is_empty()));
    }
}
