//! What people are told when something is not as they asked.

use mutirao_core::Problem;

use crate::fold::Fate;
use crate::intake::Answer;
use crate::service::{WriteState, WriteView};
use crate::write::{Key, Named, WriteId};

pub(crate) fn told(answer: Answer) -> Result<WriteView, Problem> {
    match answer {
        Answer::Settled { id, fate: Fate::Applied { revision } } => {
            Ok(WriteView { write: id.to_string(), state: WriteState::Applied, revision: Some(revision) })
        }
        Answer::Queued { id } => Ok(WriteView { write: id.to_string(), state: WriteState::Queued, revision: None }),
        Answer::Settled { fate: Fate::Conflict { there: Some(revision) }, .. } => {
            Err(unfit(format!("the key is there, at revision {revision}; nothing was written")))
        }
        Answer::Settled { fate: Fate::Conflict { there: None }, .. } => {
            Err(unfit("the key is not there; nothing was written"))
        }
        Answer::Unfit => Err(unfit("it did not when the write was applied; nothing was written")),
        Answer::Full => Err(full()),
        Answer::Unconfirmed { id, why } => {
            tracing::warn!(why, "RabbitMQ does not confirm writes");
            Err(unconfirmed(Some(id)))
        }
        Answer::RefusedByBroker(why) => {
            tracing::error!(why, "RabbitMQ refuses writes");
            Err(Problem::unavailable("RabbitMQ refuses the writes of keys; nothing was written")
                .remedy("`mutirao doctor` on the server says what it lacks"))
        }
        Answer::Lost => {
            Err(Problem::unavailable("the key's writes have gone to another manager; this one was not written")
                .remedy("send it again"))
        }
        Answer::Broken => Err(Problem::unavailable("the manager is stopping; whether this was written is not known")
            .remedy("read the key when it is back")),
        Answer::Unknown { id, why } => {
            tracing::warn!(why, "the database cannot be reached");
            Err(Problem::unavailable("the server's database cannot be reached; whether this was written is not known")
                .remedy(format!("ask after it with `mutirao kv write {}`", id.in_doubt())))
        }
        Answer::Refused(error) => Err(error.problem()),
    }
}

fn unfit(detail: impl Into<String>) -> Problem {
    Problem::new(412, "condition-failed", "the condition does not hold")
        .detail(detail)
        .remedy("read the key, and decide anew")
}

pub(crate) fn full() -> Problem {
    Problem::busy("more writes wait than may", 1).remedy("send them more slowly")
}

/// None: it was not sent yet, as far as is known.
pub(crate) fn unconfirmed(id: Option<WriteId>) -> Problem {
    let problem = Problem::unavailable("the write was not confirmed in time; whether it will be made is not known");
    match id {
        Some(id) => problem.remedy(format!("ask after it with `mutirao kv write {}`", id.in_doubt())),
        None => problem.remedy("read the key when the server is well again"),
    }
}

pub(crate) fn missing(key: &Key) -> Problem {
    let key: String = key.as_str().chars().take(100).collect();
    Problem::not_found(format!("there is nothing under \"{key}\"")).remedy("`mutirao kv list` shows what there is")
}

pub(crate) fn not_yet(detail: String) -> Problem {
    Problem::new(504, "not-yet", "what was asked for has not been applied yet").detail(detail)
}

pub(crate) fn unknown(write: Named) -> Problem {
    Problem::not_found(format!("no write {write} was applied"))
        .remedy("it may still be on its way: wait for it with ?wait=30s")
}

pub(crate) fn forgotten(write: Named) -> Problem {
    Problem::new(410, "forgotten", "what became of this write is not known any more")
        .detail(format!("{write} was applied and is forgotten since, or was never made"))
        .remedy("read the key; kv.keep says for how long writes can be asked after")
}

pub(crate) fn compacted() -> Problem {
    Problem::new(410, "compacted", "what happened since that cursor is not known any more")
        .remedy("begin anew without a cursor; kv.keep says for how long the past is kept")
}
