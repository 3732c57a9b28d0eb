//! What is asked for: a change of one key, maybe only on a condition; and the name by which it can be asked after.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use mutirao_core::{Problem, ShardId};

/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 512;
/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Characters of a value's content type.
pub const CONTENT_TYPE_CHARS_MAX: usize = 200;
/// The shortest and the longest that a value may be said to last.
pub const TTL_MIN: Duration = Duration::from_millis(1);
pub const TTL_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// What a value is when nobody says: just bytes.
pub const PLAIN_BYTES: &str = "application/octet-stream";

/// 1 to 512 bytes of UTF-8 without control characters. Keys are ordered by their bytes. A write's key is held in many places
/// on its way, so copies share the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// One that was checked when it was written.
    pub(crate) fn kept(key: Arc<str>) -> Self {
        Self(key)
    }
}

impl FromStr for Key {
    type Err = Problem;

    fn from_str(key: &str) -> Result<Self, Problem> {
        let refuse = |detail: String| Err(Problem::invalid("key", detail));
        match key.len() {
            0 => return refuse("it is empty".into()),
            1..=KEY_BYTES_MAX => {}
            bytes => return refuse(format!("{bytes} bytes are too many, the most is {KEY_BYTES_MAX}")),
        }
        match key.chars().find(|c| c.is_control()) {
            Some(c) => refuse(format!("it has a control character in it, U+{:04X}", u32::from(c))),
            None => Ok(Self(key.into())),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub namespace: Arc<str>,
    pub key: Key,
}

impl Place {
    pub fn shard(&self) -> ShardId {
        // No namespace has a slash in its name.
        mutirao_shards::shard_of(&format!("{}/{}", self.namespace, self.key), crate::SHARDS)
    }
}

/// Bytes, and what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub bytes: Bytes,
    pub content_type: Arc<str>,
}

impl Value {
    pub fn new(bytes: Bytes, content_type: Option<&str>) -> Result<Self, Problem> {
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(too_large(bytes.len()));
        }
        let content_type = content_type.unwrap_or(PLAIN_BYTES);
        if content_type.chars().count() > CONTENT_TYPE_CHARS_MAX || content_type.chars().any(char::is_control) {
            let detail = format!("more than {CONTENT_TYPE_CHARS_MAX} characters, or some that are none");
            return Err(Problem::invalid("Content-Type", detail));
        }
        // What came in is a part of its connection's buffer, or of a message with many others: ten bytes that are cached would
        // hold on to kilobytes, and no bound would know.
        Ok(Self { bytes: Bytes::copy_from_slice(&bytes), content_type: shared(content_type) })
    }
}

/// Most values are just bytes.
pub(crate) fn shared(content_type: &str) -> Arc<str> {
    static PLAIN: LazyLock<Arc<str>> = LazyLock::new(|| PLAIN_BYTES.into());
    if content_type == PLAIN_BYTES { PLAIN.clone() } else { content_type.into() }
}

pub fn too_large(bytes: usize) -> Problem {
    too_large_as(format!("{bytes} bytes are too many"))
}

/// Of one that was not read to its end.
pub fn too_large_by_at_least(bytes: usize) -> Problem {
    too_large_as(format!("{bytes} bytes or more are too many"))
}

fn too_large_as(many: String) -> Problem {
    Problem::new(413, "too-large", "the value is too large")
        .detail(format!("{many}, the most is {VALUE_BYTES_MAX}"))
        .remedy("keep large things elsewhere, and where they are here")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `lasts`: from when it is applied; then the key is gone.
    Put {
        value: Value,
        lasts: Option<Duration>,
    },
    Delete,
}

/// What must hold for a change to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    None,
    /// The key is not there.
    Absent,
    /// The key is there, at this revision.
    At(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub place: Place,
    pub change: Change,
    pub condition: Condition,
}

impl Write {
    /// What it costs to carry and to keep.
    pub fn bytes(&self) -> usize {
        let value = match &self.change {
            Change::Put { value, .. } => value.bytes.len() + value.content_type.len(),
            Change::Delete => 0,
        };
        self.place.key.as_str().len() + self.place.namespace.len() + value
    }
}

/// Whoever sends writes: one life of one process. Its parcels are numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Producer(pub u64);

/// Writes to keys of one shard that travel together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    pub producer: Producer,
    pub number: u64,
    pub writes: Vec<Write>,
}

/// By which a write can be asked after: where it went, in whose which parcel, at which place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteId {
    pub shard: ShardId,
    pub producer: Producer,
    pub number: u64,
    pub index: u32,
}

impl fmt::Display for WriteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{:x}-{:016x}-{:x}-{:x}", self.shard.0, self.producer.0, self.number, self.index)
    }
}

impl FromStr for WriteId {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        text.strip_prefix('w').and_then(Self::read).ok_or_else(|| no_id(text))
    }
}

impl WriteId {
    /// What is after the first letter.
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut hex = || {
            let part = parts.next()?;
            // `from_str_radix` would take a sign.
            let plain = part.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| u64::from_str_radix(part, 16).ok())?
        };
        let (shard, producer, number, index) = (hex()?, hex()?, hex()?, hex()?);
        let shard = u32::try_from(shard).ok().filter(|shard| *shard < crate::SHARDS)?;
        let id = Self {
            shard: ShardId(shard),
            producer: Producer(producer),
            number: i64::try_from(number).ok()? as u64,
            index: index.try_into().ok()?,
        };
        parts.next().is_none().then_some(id)
    }
}

fn no_id(text: &str) -> Problem {
    let shown: String = text.chars().take(80).collect();
    Problem::invalid("id", format!("\"{shown}\" is not the id of a write"))
        .remedy("take it from the answer to the write")
}

/// What the giver of a write was told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// That it is durable: it will be applied, or has been.
    Confirmed,
    /// That nobody knows.
    InDoubt,
}

/// A write as its giver knows it. What it was told is a part of the name, since nobody else may remember: so any manager
/// can tell what is on its way from what may never have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub id: WriteId,
    pub standing: Standing,
}

impl WriteId {
    pub fn confirmed(self) -> Named {
        Named { id: self, standing: Standing::Confirmed }
    }

    pub fn in_doubt(self) -> Named {
        Named { id: self, standing: Standing::InDoubt }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id.to_string();
        match self.standing {
            Standing::Confirmed => f.write_str(&id),
            Standing::InDoubt => write!(f, "d{}", &id[1..]),
        }
    }
}

impl FromStr for Named {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        match text.strip_prefix('d') {
            Some(rest) => WriteId::read(rest).map(WriteId::in_doubt).ok_or_else(|| no_id(text)),
            None => text.parse().map(WriteId::confirmed),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_that_cannot_be_kept_are_refused() {
        for bad in ["", "a\0b", "a\nb", &"x".repeat(KEY_BYTES_MAX + 1)] {
            assert!(bad.parse::<Key>().is_err(), "{bad:?}");
        }
        for good in ["a", "users/7/näme", "/", "..", &"x".repeat(KEY_BYTES_MAX)] {
            assert_eq!(good.parse::<Key>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn values_are_bounded() {
        assert_eq!(Value::new(Bytes::from(vec![0; VALUE_BYTES_MAX + 1]), None).unwrap_err().status, 413);
        assert!(Value::new(Bytes::new(), Some("a\nb")).is_err());
        assert_eq!(Value::new(Bytes::new(), None).unwrap().content_type.as_ref(), PLAIN_BYTES);
    }

    #[test]
    fn a_value_holds_on_to_nothing_but_itself() {
        let buffer = Bytes::from(vec![7; 8_192]);
        let value = Value::new(buffer.slice(100..110), None).unwrap();
        assert_eq!(value.bytes, [7; 10].as_slice());
        assert!(buffer.is_unique(), "the buffer it came in can be used again");
    }

    proptest! {
        #[test]
        fn ids_are_read_as_they_were_written(shard in 0..crate::SHARDS, producer: u64, number in 0..i64::MAX as u64, index: u32) {
            let id = WriteId { shard: ShardId(shard), producer: Producer(producer), number, index };
            prop_assert_eq!(id.to_string().parse::<WriteId>().unwrap(), id);
            for named in [id.confirmed(), id.in_doubt()] {
                prop_assert_eq!(named.to_string().parse::<Named>().unwrap(), named);
            }
        }

        #[test]
        fn rubbish_is_no_id(text in "\\PC{0,40}") {
            if let Ok(named) = text.parse::<Named>() {
                prop_assert!(named.id.shard.0 < crate::SHARDS);
            }
        }
    }
}
