//! Packets of MQTT 3.1.1 and their bytes. No I/O: [`decode`] takes what has come so far and gives the next packet, or
//! nothing yet; [`encode`] appends a packet's bytes.
//!
//! Strict where the standard says "must": reserved bits, UTF-8, lengths, identifiers that may not be zero. A packet that
//! breaks a rule is [`Malformed`] and ends its connection. A value that exists is well formed: topics are checked as they
//! are read, a packet identifier cannot be zero, and only a quality that has an identifier carries one.

mod decode;
mod encode;
mod field;
#[cfg(test)]
mod tests;

use std::num::NonZeroU16;

use bytes::Bytes;

pub use decode::decode;
pub use encode::{Unsendable, encode};

use crate::topics::{TopicFilter, TopicName};

/// A packet identifier. Zero is not one.
pub type Pid = NonZeroU16;

/// How hard a message is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    AtMostOnce = 0,
    AtLeastOnce = 1,
    ExactlyOnce = 2,
}

impl Qos {
    fn from_bits(bits: u8) -> Result<Self, Malformed> {
        match bits {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            _ => Err(Malformed::Qos),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    Connect(Connect),
    ConnAck { session_present: bool, answer: Answer },
    Publish(Publish),
    PubAck(Pid),
    PubRec(Pid),
    PubRel(Pid),
    PubComp(Pid),
    Subscribe { pid: Pid, filters: Vec<(TopicFilter, Qos)> },
    SubAck { pid: Pid, granted: Vec<Option<Qos>> },
    Unsubscribe { pid: Pid, filters: Vec<TopicFilter> },
    UnsubAck(Pid),
    PingReq,
    PingResp,
    Disconnect,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Connect {
    pub client_id: String,
    /// Begin anew, and forget everything at the end.
    pub clean: bool,
    /// Seconds; zero for never.
    pub keep_alive_s: u16,
    pub will: Option<Will>,
    pub user: Option<String>,
    pub password: Option<Bytes>,
}

/// Without the password.
impl std::fmt::Debug for Connect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connect")
            .field("client_id", &self.client_id)
            .field("clean", &self.clean)
            .field("keep_alive_s", &self.keep_alive_s)
            .field("will", &self.will)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// What is to be said when its client goes without saying so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    pub topic: TopicName,
    pub payload: Bytes,
    pub qos: Qos,
    pub retain: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    pub topic: TopicName,
    pub payload: Bytes,
    pub handling: Handling,
    pub retain: bool,
}

/// A publish's quality, with what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    AtMostOnce,
    AtLeastOnce { pid: Pid, dup: bool },
    ExactlyOnce { pid: Pid, dup: bool },
}

impl Handling {
    pub fn qos(self) -> Qos {
        match self {
            Self::AtMostOnce => Qos::AtMostOnce,
            Self::AtLeastOnce { .. } => Qos::AtLeastOnce,
            Self::ExactlyOnce { .. } => Qos::ExactlyOnce,
        }
    }
}

/// What a server says to a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted = 0,
    WrongProtocol = 1,
    ClientIdRejected = 2,
    Unavailable = 3,
    BadCredentials = 4,
    NotAuthorized = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("a packet of {bytes} bytes is longer than the {bytes_max} that are taken")]
    TooLong { bytes: usize, bytes_max: usize },
    #[error("the length of a packet takes more than four bytes")]
    Length,
    #[error("a packet of a type that does not exist")]
    Type,
    #[error("a packet with reserved flags set, or without those it must have")]
    Flags,
    #[error("a packet that ends in the middle of a field")]
    Short,
    #[error("a packet with bytes after its last field")]
    Trailing,
    #[error("a text that is not UTF-8, or with a null character")]
    Text,
    #[error("a quality of service that does not exist")]
    Qos,
    #[error("a packet identifier of zero")]
    ZeroPid,
    #[error("a topic that cannot be: {0}")]
    Topic(#[from] crate::topics::BadTopic),
    #[error("a subscribe or unsubscribe without a topic filter")]
    NoFilters,
    #[error("another protocol than MQTT")]
    Protocol,
    #[error("level {0} of the protocol; this is MQTT 3.1.1, level 4")]
    Level(u8),
    #[error("an answer to a connect, or to a subscribe, that does not exist")]
    Code,
}
