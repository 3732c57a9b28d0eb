//! How a parcel looks in a queue: the length of its head (four bytes, the highest first), the head as JSON, and then the
//! bytes of the values, one after the other. So a person can read what is asked for, a newer program can add to it, and values
//! travel as they are.
//!
//! What comes from a queue is believed no more than what comes from a client: it is checked in the same way.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use mutirao_core::{ShardId, tolerant};
use serde::{Deserialize, Serialize};

use crate::intake::Until;
use crate::write::{Change, Condition, Key, Parcel, Place, Producer, TTL_MAX, Value, Write};

/// The newest that is read.
const VERSION: u16 = 1;
/// Writes in one parcel.
pub const PARCEL_WRITES_MAX: usize = 512;

/// Why a message is no parcel.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unreadable {
    #[error("not a parcel of writes: {0}")]
    Malformed(String),
    #[error("a parcel of version {0} is newer than this program's {VERSION}; upgrade it")]
    Newer(u16),
}

fn malformed(why: impl ToString) -> Unreadable {
    Unreadable::Malformed(why.to_string())
}

#[derive(Serialize, Deserialize)]
struct Head {
    v: u16,
    producer: u64,
    number: u64,
    /// Somebody waits for it to be applied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    awaited: bool,
    writes: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    namespace: Arc<str>,
    key: String,
    /// None: the key is to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    put: Option<Put>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    only_if: Option<OnlyIf>,
}

#[derive(Serialize, Deserialize)]
struct Put {
    bytes: usize,
    content_type: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lasts_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OnlyIf {
    Absent,
    At(u64),
}

/// `until`: what its givers wait for, so that whoever applies it knows whether there is haste.
pub fn encode(parcel: &Parcel, until: Until) -> Bytes {
    let line = |write: &Write| Line {
        namespace: write.place.namespace.clone(),
        key: write.place.key.as_str().into(),
        put: match &write.change {
            Change::Put { value, lasts } => Some(Put {
                bytes: value.bytes.len(),
                content_type: value.content_type.clone(),
                lasts_ms: lasts.map(|lasts| lasts.as_millis() as u64),
            }),
            Change::Delete => None,
        },
        only_if: match write.condition {
            Condition::None => None,
            Condition::Absent => Some(OnlyIf::Absent),
            Condition::At(revision) => Some(OnlyIf::At(revision)),
        },
    };
    let head = Head {
        v: VERSION,
        producer: parcel.producer.0,
        number: parcel.number,
        awaited: until == Until::Applied,
        writes: parcel.writes.iter().map(line).collect(),
    };
    let head = serde_json::to_vec(&head).expect("a head is plain data");
    let values: usize = parcel.writes.iter().map(Write::bytes).sum();
    let mut all = BytesMut::with_capacity(4 + head.len() + values);
    all.put_u32(u32::try_from(head.len()).expect("a parcel has few writes"));
    all.put_slice(&head);
    for write in &parcel.writes {
        if let Change::Put { value, .. } = &write.change {
            all.put_slice(&value.bytes);
        }
    }
    all.freeze()
}

/// A parcel for this shard, and what its givers wait for.
pub fn decode(message: &Bytes, shard: ShardId) -> Result<(Parcel, Until), Unreadable> {
    let length = message.first_chunk::<4>().ok_or_else(|| malformed("it is too short"))?;
    let length = u32::from_be_bytes(*length) as usize;
    let head = message.get(4..4 + length).ok_or_else(|| malformed("its head is cut off"))?;
    let head = read_head(head)?;
    if head.number == 0 || i64::try_from(head.number).is_err() {
        return Err(malformed(format!("{} is no number of a parcel", head.number)));
    }
    if head.writes.is_empty() || head.writes.len() > PARCEL_WRITES_MAX {
        return Err(malformed(format!("{} writes: from 1 to {PARCEL_WRITES_MAX} go into one", head.writes.len())));
    }
    let mut values = message.slice(4 + length..);
    let writes = head.writes.into_iter().map(|line| read_write(line, &mut values, shard)).collect::<Result<_, _>>()?;
    if !values.is_empty() {
        return Err(malformed(format!("{} bytes belong to no value", values.len())));
    }
    let until = if head.awaited { Until::Applied } else { Until::Durable };
    Ok((Parcel { producer: Producer(head.producer), number: head.number, writes }, until))
}

fn read_head(head: &[u8]) -> Result<Head, Unreadable> {
    #[derive(Deserialize)]
    struct Stamp {
        v: u16,
    }
    let read: Result<Head, _> = tolerant::read(head);
    // What is newer may lack what this program looks for.
    let v = read.as_ref().map_or_else(|_| serde_json::from_slice(head).map_or(0, |Stamp { v }| v), |head| head.v);
    if v > VERSION { Err(Unreadable::Newer(v)) } else { read.map_err(malformed) }
}

fn read_write(line: Line, values: &mut Bytes, shard: ShardId) -> Result<Write, Unreadable> {
    let key: Key = line.key.parse().map_err(|problem: mutirao_core::Problem| malformed(problem.line()))?;
    if line.namespace.is_empty() || line.namespace.contains('/') || line.namespace.chars().any(char::is_control) {
        return Err(malformed("the namespace is not one"));
    }
    let place = Place { namespace: line.namespace, key };
    if place.shard() != shard {
        return Err(malformed(format!("the key {} is of shard {}, not of {}", place.key, place.shard().0, shard.0)));
    }
    let change = match line.put {
        None => Change::Delete,
        Some(put) if put.bytes > values.len() => return Err(malformed("its values are cut off")),
        Some(put) => {
            let bytes = values.split_to(put.bytes);
            let value = Value::new(bytes, Some(&put.content_type)).map_err(|problem| malformed(problem.line()))?;
            let lasts = put.lasts_ms.map(Duration::from_millis);
            if lasts.is_some_and(|lasts| lasts > TTL_MAX) {
                return Err(malformed("a value lasts ten years at most"));
            }
            Change::Put { value, lasts }
        }
    };
    let condition = match line.only_if {
        None => Condition::None,
        Some(OnlyIf::Absent) => Condition::Absent,
        Some(OnlyIf::At(revision)) => Condition::At(revision),
    };
    Ok(Write { place, change, condition })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(key: &str) -> Place {
        Place { namespace: "default".into(), key: key.parse().unwrap() }
    }

    fn writes() -> impl Strategy<Value = Write> {
        let value =
            (proptest::collection::vec(any::<u8>(), 0..50), "[a-z/]{0,12}", proptest::option::of(1..10_000_u64));
        let change = prop_oneof![
            Just(Change::Delete),
            value.prop_map(|(bytes, content_type, ms)| Change::Put {
                value: Value::new(bytes.into(), Some(&content_type)).unwrap(),
                lasts: ms.map(Duration::from_millis),
            })
        ];
        let condition =
            prop_oneof![Just(Condition::None), Just(Condition::Absent), any::<u64>().prop_map(Condition::At)];
        (change, condition).prop_map(|(change, condition)| Write { place: place("a/ü"), change, condition })
    }

    proptest! {
        #[test]
        fn parcels_are_read_as_they_were_written(writes in proptest::collection::vec(writes(), 1..20), producer: u64, number in 1..i64::MAX as u64) {
            let parcel = Parcel { producer: Producer(producer), number, writes };
            for until in [Until::Durable, Until::Applied] {
                let read = decode(&encode(&parcel, until), place("a/ü").shard());
                prop_assert_eq!(read.unwrap(), (parcel.clone(), until));
            }
        }

        #[test]
        fn rubbish_is_refused_and_breaks_nothing(writes in proptest::collection::vec(writes(), 1..4), at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
            let whole = encode(&Parcel { producer: Producer(1), number: 1, writes }, Until::Durable);
            let shard = place("a/ü").shard();
            prop_assert!(decode(&whole.slice(..cut.index(whole.len())), shard).is_err(), "cut off");
            let mut other = whole.to_vec();
            *other.get_mut(at.index(whole.len())).unwrap() = byte;
            let _ = decode(&other.into(), shard);
        }
    }

    fn head(text: &str) -> Result<(Parcel, Until), Unreadable> {
        let mut all = BytesMut::new();
        all.put_u32(text.len() as u32);
        all.put_slice(text.as_bytes());
        decode(&all.freeze(), place("a").shard())
    }

    #[test]
    fn what_a_newer_program_added_is_passed_over_and_what_it_changed_is_refused() {
        let line = r#"{"namespace": "default", "key": "a", "colour": "red"}"#;
        assert!(head(&format!(r#"{{"v": 1, "producer": 1, "number": 1, "since": 3, "writes": [{line}]}}"#)).is_ok());
        assert_eq!(head(r#"{"v": 2, "pages": []}"#), Err(Unreadable::Newer(2)));
    }

    #[test]
    fn what_no_client_could_have_asked_for_is_refused() {
        let parcel = |line: &str| head(&format!(r#"{{"v": 1, "producer": 1, "number": 1, "writes": [{line}]}}"#));
        assert!(parcel(r#"{"namespace": "default", "key": "a"}"#).is_ok());
        let elsewhere = (0..).map(|n| format!("k{n}")).find(|key| place(key).shard() != place("a").shard()).unwrap();
        for bad in [
            "",
            r#"{"namespace": "default", "key": ""}"#,
            r#"{"namespace": "a/b", "key": "a"}"#,
            &format!(r#"{{"namespace": "default", "key": "{elsewhere}"}}"#),
            r#"{"namespace": "default", "key": "a", "put": {"bytes": 1, "content_type": ""}}"#,
            r#"{"namespace": "default", "key": "a", "put": {"bytes": 0, "content_type": "a\u0000"}}"#,
        ] {
            assert!(parcel(bad).is_err(), "{bad}");
        }
        assert!(head(r#"{"v": 1, "producer": 1, "number": 0, "writes": []}"#).is_err());
    }
}
