//! What people are told when something is not as they asked.

use std::borrow::Borrow;

use mutirao_core::Problem;
use mutirao_store::StoreError;

use crate::fold::Fate;
use crate::intake::Answer;
use crate::outbox::queue_of;
use crate::service::{WriteState, WriteView};
use crate::write::{Key, Named, Standing, WriteId};

/// The members of a problem that tells of a write in doubt, named as those of [`WriteView`].
pub const WRITE: &str = "write";
pub const STATE: &str = "state";

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
        Answer::SetAside { id } => Err(set_aside(id)),
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
        Answer::Unsent => {
            Err(Problem::unavailable("RabbitMQ confirms nothing; this was not sent, and nothing was written")
                .remedy("send it again in a moment"))
        }
        Answer::Late => {
            Err(Problem::unavailable("the server's database did not answer for some seconds; nothing was written")
                .remedy("send it again in a moment"))
        }
        Answer::Broken => {
            Err(in_doubt(Problem::unavailable("the manager is stopping; whether this was written is not known"), None))
        }
        Answer::Unknown { id, why } => {
            tracing::warn!(why, "the database cannot be reached");
            let detail = "the server's database cannot be reached; whether this was written is not known";
            Err(in_doubt(Problem::unavailable(detail), Some(id)))
        }
        Answer::Refused(error) => Err(error.problem()),
    }
}

fn unfit(detail: impl Into<String>) -> Problem {
    Problem::new(412, "condition-failed", "the condition does not hold")
        .detail(detail)
        .remedy("read the key, and decide anew")
}

fn set_aside(id: WriteId) -> Problem {
    Problem::new(500, "set-aside", "the write was set aside")
        .detail("the server's database refuses it again and again; nothing of it was written, and nothing will be")
        .remedy(format!(
            "it is with the dead letters, mutirao.{}.dead at RabbitMQ; the server's log says why",
            queue_of(id.shard)
        ))
        .member(STATE, "set_aside")
        .member(WRITE, id.to_string())
}

pub(crate) fn full() -> Problem {
    Problem::busy("more writes wait than may", 1).remedy("send them more slowly")
}

/// Too many ask for what is not applied yet.
pub(crate) fn crowded() -> Problem {
    Problem::busy("more wait for writes to be applied than may", 1).remedy("ask again in a moment, or wait less")
}

/// None: it was not sent yet, as far as is known.
pub(crate) fn unconfirmed(id: Option<WriteId>) -> Problem {
    in_doubt(Problem::unavailable("the write was not confirmed in time; whether it will be made is not known"), id)
}

/// Programs are told as they are of a write that was made: its state, and the name to ask by if it has one.
fn in_doubt(problem: Problem, id: Option<WriteId>) -> Problem {
    let problem = problem.member(STATE, "in_doubt");
    match id.map(|id| id.in_doubt().to_string()) {
        Some(name) => problem.remedy(format!("ask after it with `mutirao kv write {name}`")).member(WRITE, name),
        None => problem.remedy("read the key when the server is well again"),
    }
}

/// Why something could not be read: nobody wrote anything, so nothing is said of that.
pub(crate) fn unread(error: impl Borrow<StoreError>) -> Problem {
    match error.borrow() {
        StoreError::Unreachable { why } => {
            tracing::debug!(why, "the database cannot be reached");
            Problem::unavailable("the server's database cannot be reached, so this cannot be read now")
                .remedy("try again in a moment")
        }
        StoreError::Busy { waiting } => Problem::busy(format!("{waiting} calls wait for the store"), 1),
        StoreError::Locked => Problem::unavailable("somebody else has locked what this reads in the server's database")
            .remedy("try again; pg_stat_activity in that database shows who has it"),
        StoreError::Denied { why, remedy } => {
            Problem::unavailable(format!("the server's database does not let this be read: {why}")).remedy(*remedy)
        }
        other => other.problem(),
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
    let problem = Problem::not_found(format!("no write {write} was applied"));
    match write.standing {
        Standing::Confirmed => problem.remedy("it may still be on its way: wait for it with ?wait=30s"),
        // Nobody is about to make it: whoever took it has gone.
        Standing::InDoubt => problem.remedy("it was not made, unless that was longer ago than kv.keep; read the key"),
    }
}

pub(crate) fn forgotten(write: Named) -> Problem {
    Problem::new(410, "forgotten", "what became of this write is not known any more")
        .detail(format!("{write} was applied and is forgotten since, or was never made"))
        .remedy("read the key; kv.keep says for how long writes can be asked after")
}

/// The store goes back in time where a backup of it is restored. Whoever watches does as if it had fallen behind.
pub(crate) fn ahead() -> Problem {
    Problem::new(410, "compacted", "that cursor is ahead of everything that is here")
        .detail("it is of another installation, or of before a backup was restored")
        .remedy("begin anew without a cursor")
}

pub(crate) fn compacted() -> Problem {
    Problem::new(410, "compacted", "what happened since that cursor is not known any more")
        .remedy("begin anew without a cursor; kv.keep says for how long the past is kept")
}
