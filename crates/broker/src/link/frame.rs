//! What travels over a link. A WebSocket message is one or more frames; a frame is a postcard head, the sizes of its
//! bodies, and the bodies themselves, which are never copied out of the message they came in (but for small ones).
//!
//! Postcard does not describe itself, so a reader cannot skip what it does not know: a change to the heads is a new
//! [`SUBPROTOCOL`], which a server offers beside the old one for as long as old peers live. Not so a question that is added at
//! the end of [`Ask`]: managers are upgraded before those who link to them, so none is asked what it does not know.

use bytes::{Buf, Bytes};
use mutirao_core::limits::MESSAGE_BYTES_MAX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{BrokerError, Counts, Deletion, Letters};

/// Offered and selected in the WebSocket handshake.
pub const SUBPROTOCOL: &str = "mutirao.link.v1";

/// What a body is reckoned at beside its bytes, so that many empty ones have a bound too.
const BODY_COST: usize = 16;
/// Reckoned bytes of the bodies of one frame: one body of the largest size, or many small ones.
pub(super) const FRAME_COST_MAX: usize = MESSAGE_BYTES_MAX + BODY_COST;
/// Bytes of one WebSocket message: a frame's bodies, its head, and what was coalesced before it.
pub(super) const WS_BYTES_MAX: usize = MESSAGE_BYTES_MAX + (2 << 20);
/// Bodies smaller than this are copied out, so that one of them does not keep a large message alive.
const SLICE_BYTES_MIN: usize = 4 << 10;

/// Client to server. A `channel` is a consumer or a subscription, numbered by the client; an `id` is answered once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ask {
    Publish {
        id: u64,
        queue: String,
    },
    Consume {
        channel: u64,
        queue: String,
        credit: u32,
    },
    Subscribe {
        channel: u64,
        topic: String,
    },
    AckThrough {
        channel: u64,
        tag: u64,
    },
    Reject {
        channel: u64,
        tag: u64,
        reason: String,
    },
    /// The consumer or subscription was dropped.
    Close {
        channel: u64,
    },
    Counts {
        id: u64,
        queue: String,
    },
    DeadLetters {
        id: u64,
        queue: String,
        limit: u32,
    },
    Announce {
        id: u64,
        topic: String,
    },
    Append {
        id: u64,
        log: String,
    },
    Read {
        id: u64,
        log: String,
        offset: u64,
        limit: u32,
    },
    Extent {
        id: u64,
        log: String,
    },
    /// Nobody waits for this read any more.
    Forget {
        id: u64,
    },
    Delete {
        id: u64,
        queue: String,
    },
    CountDeadLetters {
        id: u64,
        queue: String,
    },
    RemoveDeadLetters {
        id: u64,
        queue: String,
        which: Letters,
    },
    AckEach {
        channel: u64,
        tags: Vec<u64>,
    },
    /// Nothing more for this consumer, and back with what came after `seen`.
    Retire {
        channel: u64,
        seen: u64,
    },
    /// Appends, and need not know where.
    Add {
        id: u64,
        log: String,
    },
    Trim {
        id: u64,
        log: String,
        before: u64,
    },
    ForgetLog {
        id: u64,
        log: String,
    },
}

/// Server to client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Tell {
    Done {
        id: u64,
        answer: Answer,
    },
    Failed {
        id: u64,
        error: BrokerError,
    },
    /// The consumer or subscription works.
    Opened {
        channel: u64,
    },
    /// It does not, or no longer.
    Ended {
        channel: u64,
        error: BrokerError,
    },
    /// One (tag, redelivered) for each body.
    Deliveries {
        channel: u64,
        tags: Vec<(u64, bool)>,
    },
    Heard {
        channel: u64,
    },
    Gap {
        channel: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    Nothing,
    Counts(Counts),
    /// One reason for each body.
    DeadLetters(Vec<String>),
    Offset(u64),
    Extent(u64, u64),
    /// One offset for each body.
    Records(Vec<u64>),
    Deleted(Deletion),
    /// Of dead letters: so many are there, or were removed.
    Number(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame<H> {
    pub head: H,
    pub bodies: Vec<Bytes>,
}

impl<H> Frame<H> {
    pub fn bare(head: H) -> Self {
        Self { head, bodies: Vec::new() }
    }

    /// What the frame is reckoned at when buffers are bounded.
    pub fn cost(&self) -> usize {
        BODY_COST + self.bodies.iter().map(body_cost).sum::<usize>()
    }
}

pub(super) fn body_cost(body: &Bytes) -> usize {
    body.len() + BODY_COST
}

/// How many of `costs`, from the front, come to no more than `most`: at least one if there is one.
pub(super) fn fitting(most: usize, costs: impl Iterator<Item = usize>) -> usize {
    let mut total = 0;
    let mut count = 0;
    for cost in costs {
        total += cost;
        if total > most && count > 0 {
            break;
        }
        count += 1;
    }
    count
}

/// A peer sent what cannot be read; the connection is of no more use.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Rubbish {
    #[error("the head of a frame cannot be read: {0}")]
    Head(postcard::Error),
    #[error("a frame promises {promised} bytes and has {left}")]
    Short { promised: u64, left: usize },
    #[error("{0} does not have the bodies it speaks of")]
    Bodies(&'static str),
    #[error("channel {0} is open already")]
    Channel(u64),
    #[error("text where binary was expected")]
    Text,
}

pub(super) fn pack<H: Serialize>(frame: &Frame<H>, mut into: Vec<u8>) -> Vec<u8> {
    let bytes: usize = frame.bodies.iter().map(Bytes::len).sum();
    into.reserve(bytes + 8 * frame.bodies.len() + 64);
    let sizes: Vec<u32> = frame.bodies.iter().map(|body| body.len() as u32).collect();
    let mut into = postcard::to_extend(&(&frame.head, sizes), into).expect("heads are plain data and vectors grow");
    for body in &frame.bodies {
        into.extend_from_slice(body);
    }
    into
}

/// Takes the next frame off the front of a message.
pub(super) fn unpack<H: DeserializeOwned>(message: &mut Bytes) -> Result<Frame<H>, Rubbish> {
    let ((head, sizes), rest) = postcard::take_from_bytes::<(H, Vec<u32>)>(message).map_err(Rubbish::Head)?;
    let left = rest.len();
    message.advance(message.len() - left);
    let promised: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
    if promised > left as u64 {
        return Err(Rubbish::Short { promised, left });
    }
    let cut = |size: u32| {
        let body = message.split_to(size as usize);
        if body.len() < SLICE_BYTES_MIN { Bytes::copy_from_slice(&body) } else { body }
    };
    let bodies = sizes.into_iter().map(cut).collect();
    Ok(Frame { head, bodies })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_that_travel_together_come_apart_again() {
        let large = Frame {
            head: Ask::Publish { id: 7, queue: "tasks.a".into() },
            bodies: vec![Bytes::new(), "x".into(), vec![9; SLICE_BYTES_MIN + 1].into()],
        };
        let ack = Frame::bare(Ask::AckThrough { channel: 3, tag: u64::MAX });
        let mut message = Bytes::from(pack(&ack, pack(&large, Vec::new())));
        assert_eq!(unpack(&mut message), Ok(large));
        assert_eq!(unpack(&mut message), Ok(ack));
        assert!(message.is_empty());
    }

    #[test]
    fn a_frame_is_cut_before_it_grows_too_large_but_never_to_nothing() {
        assert_eq!(fitting(FRAME_COST_MAX, [FRAME_COST_MAX + 1, 1].into_iter()), 1);
        assert_eq!(fitting(FRAME_COST_MAX, [FRAME_COST_MAX / 2; 3].into_iter()), 2);
        assert_eq!(fitting(FRAME_COST_MAX, std::iter::empty()), 0);
    }

    proptest! {
        #[test]
        fn rubbish_is_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut message = Bytes::from(bytes);
            while !message.is_empty() && unpack::<Ask>(&mut message).is_ok() {}
        }
    }
}
