//! Who speaks in a report. A worker reports only in its own name; whoever knows for certain who is speaking (the link,
//! by its connection; a manager on RabbitMQ, by the user that the server vouches for) holds every report against this.

use std::borrow::Cow;

use serde::Deserialize;

use crate::WorkerId;

/// The one field of a report that says who speaks; the rest is skipped, since every report passes here. A second
/// `worker` field is an error here as it is for the reader of the report, so the two cannot disagree.
#[derive(Deserialize)]
struct Sender<'a> {
    #[serde(borrow)]
    worker: Cow<'a, str>,
}

/// Whether the report in `body` is in the name of `own`; the error is the reason.
///
/// ```
/// use mutirao_core::{WorkerId, sender::speaks_for_itself};
/// assert!(speaks_for_itself(&WorkerId("w1".into()), br#"{"worker":"w2"}"#).is_err());
/// ```
pub fn speaks_for_itself(own: &WorkerId, body: &[u8]) -> Result<(), String> {
    match serde_json::from_slice::<Sender<'_>>(body) {
        Ok(sender) if sender.worker == own.0 => Ok(()),
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
