//! Who speaks in a report, and for which queue. A worker reports only in its own name; whoever knows for certain who is
//! speaking (the link, by its connection; a manager on RabbitMQ, by the user that the server vouches for) holds every
//! report against this. The link also knows the worker's queue, and lets it beat for no other.

use std::borrow::Cow;

use serde::Deserialize;

use crate::{QueueName, WorkerId};

/// What of a report says who speaks; the rest is skipped, since every report passes here. A second
/// `worker` field is an error here as it is for the reader of the report, so the two cannot disagree.
#[derive(Deserialize)]
struct Sender<'a> {
    #[serde(borrow)]
    worker: Cow<'a, str>,
    #[serde(borrow, default)]
    beat: Option<Pulse<'a>>,
}

#[derive(Deserialize)]
struct Pulse<'a> {
    #[serde(borrow)]
    queue: Cow<'a, str>,
}

/// Whether the report in `body` is in the name of `own`; the error is the reason.
///
/// ```
/// use mutirao_core::{WorkerId, sender::speaks_for_itself};
/// assert!(speaks_for_itself(&WorkerId("w1".into()), br#"{"worker":"w2"}"#).is_err());
/// ```
pub fn speaks_for_itself(own: &WorkerId, body: &[u8]) -> Result<(), String> {
    sender(own, body).map(drop)
}

/// The same, where it is known for which queue `own` was enrolled: a beat says whose tasks the session takes.
pub fn speaks_for_its_queue(own: &WorkerId, queue: &QueueName, body: &[u8]) -> Result<(), String> {
    match sender(own, body)?.beat {
        Some(beat) if beat.queue != queue.as_str() => Err(format!("a worker of queue {queue} beats for no other")),
        _ => Ok(()),
    }
}

fn sender<'a>(own: &WorkerId, body: &'a [u8]) -> Result<Sender<'a>, String> {
    match serde_json::from_slice::<Sender<'a>>(body) {
        Ok(sender) if sender.worker == own.0 => Ok(sender),
        Ok(_) => Err("a worker reports only in its own name".into()),
        Err(error) => Err(format!("not a report: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionId;
    use crate::envelope::{Reports, open, seal};

    #[test]
    fn a_worker_speaks_for_itself_only() {
        let own = WorkerId("w1".into());
        let of = |worker: &str| seal(&Reports::new(SessionId("s".into()), WorkerId(worker.into())));
        assert_eq!(speaks_for_itself(&own, &of("w1")), Ok(()));
        assert!(speaks_for_itself(&own, &of("w2")).is_err());
        assert!(speaks_for_itself(&own, b"rubbish").is_err());
    }

    #[test]
    fn a_worker_beats_for_its_own_queue_only() {
        let said =
            |queue: &str, body: &[u8]| speaks_for_its_queue(&WorkerId("w1".into()), &queue.parse().unwrap(), body);
        let beat = br#"{"worker":"w1","beat":{"queue":"a","held":[]}}"#;
        assert_eq!(said("a", beat), Ok(()));
        assert!(said("b", beat).is_err());
        for silent in [&br#"{"worker":"w1","beat":null}"#[..], br#"{"worker":"w1"}"#] {
            assert_eq!(said("a", silent), Ok(()));
        }
        assert!(said("a", br#"{"worker":"w2"}"#).is_err());
        assert!(said("a", br#"{"worker":"w1","beat":{"queue":"a"},"beat":{"queue":"b"}}"#).is_err());
    }

    #[test]
    fn a_report_with_two_senders_is_refused_by_both_readers() {
        let twice = br#"{"v":1,"session":"s","worker":"w1","worker":"w2"}"#;
        assert!(speaks_for_itself(&WorkerId("w1".into()), twice).is_err());
        assert!(open::<Reports>(twice).is_err());
    }

    #[test]
    fn an_escaped_name_is_still_the_name() {
        assert_eq!(speaks_for_itself(&WorkerId("w1".into()), br#"{"worker":"\u0077\u0031"}"#), Ok(()));
    }
}
