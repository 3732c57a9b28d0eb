//! One installation, one vhost of RabbitMQ: whether this manager may use the one that its settings name.
//!
//! The vhost says whose it is (`broker`'s mark), the database says who we are and whether we have ever marked one, and the
//! signs of life of other managers say whether somebody is at work elsewhere. From these three it is decided:
//!
//! - Another's: no. Both would take each other's tasks and reports.
//! - Nobody's, though managers of this installation are at work: no. They use another RabbitMQ, and what this one would
//!   hand out no worker of theirs would ever see. Unless none of them has ever marked one: those are of the version before,
//!   and the first of the new version marks it for all.
//! - Nobody's, and nobody is at work: it is new, or was set up anew while all were stopped. It is marked.
//!
//! Managers that start at once agree by a turn in the database which of them marks; the others then find the mark, or find
//! that they look for it in the wrong place. An embedded broker is nobody else's, so nothing is marked there.

use mutirao_broker::BrokerError;
use mutirao_broker::rabbit::Holder;
use mutirao_core::InstallationId;
use mutirao_shards::Shared;
use mutirao_shards::store::MemberRow;
use mutirao_store::installation::{self, Turn};
use mutirao_store::{Database, StoreError};

use crate::failure::Failure;
use crate::membership;

/// A turn is lost only to another manager that starts in the same moment.
const ROUNDS_MAX: usize = 20;
/// How often nobody must be seen at work before a vhost without a mark is taken.
const WATCHES: usize = 1;
/// The same, when another manager has just had a turn: it is starting, and may take its time.
const WATCHES_AFTER_A_TURN: usize = 5;

/// Other managers of this installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Others {
    /// Nobody has looked: it takes a while.
    Unseen,
    Silent,
    /// One that gave a sign of life.
    AtWork(MemberRow),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    ComeIn,
    /// Mark it first, if the turn is ours.
    Mark,
    /// See who is at work, then look again.
    Watch,
    Refuse(String),
}

/// `markings`: how often this installation has marked a vhost.
pub fn judge(holder: &Holder, markings: u64, others: &Others) -> Verdict {
    match (holder, others) {
        (Holder::Us, _) => Verdict::ComeIn,
        (Holder::Another(refusal) | Holder::Untold(refusal), _) => Verdict::Refuse(refusal.to_string()),
        (Holder::Nobody, _) if markings == 0 => Verdict::Mark,
        (Holder::Nobody, Others::Unseen) => Verdict::Watch,
        (Holder::Nobody, Others::Silent) => Verdict::Mark,
        (Holder::Nobody, Others::AtWork(MemberRow { member, address, .. })) => Verdict::Refuse(format!(
            "the manager {member} at {address} uses this database and another RabbitMQ or vhost than this one, whose tasks \
             no worker would get; give every manager the same broker (--broker), or stop the others first"
        )),
    }
}

/// What is known of the others without waiting.
pub fn without_waiting(database: &Database) -> Others {
    match database {
        // The lock of the data folder keeps everybody else away.
        Database::Sqlite(_) => Others::Silent,
        Database::Postgres(_) => Others::Unseen,
    }
}

/// Waits for signs of life.
pub async fn watched(leases: &Shared) -> Result<Others, StoreError> {
    let alive = membership::living(leases).await?;
    Ok(alive.into_iter().next().map_or(Others::Silent, Others::AtWork))
}

/// As whom to connect, once this manager may; the connection then makes the mark if it is not there. `look` says whose the
/// vhost is.
pub async fn come_in(
    database: &Database,
    leases: &Shared,
    look: impl AsyncFn(&InstallationId) -> Result<Holder, BrokerError>,
) -> Result<InstallationId, Failure> {
    let (mut before, mut others, mut watches) = (None, without_waiting(database), WATCHES);
    for _ in 0..ROUNDS_MAX {
        let own = installation::of(database, InstallationId::random()).await.map_err(failed)?;
        if before.as_ref().is_some_and(|before| *before != own) {
            (others, watches) = (without_waiting(database), WATCHES_AFTER_A_TURN);
        }
        let holder = look(&own.id).await.map_err(failed)?;
        match judge(&holder, own.markings, &others) {
            Verdict::ComeIn => return Ok(own.id),
            Verdict::Mark => match installation::take_turn(database, &own).await.map_err(failed)? {
                Turn::Ours => return Ok(own.id),
                Turn::Anothers => {}
            },
            Verdict::Watch => {
                watches = watches.saturating_sub(1);
                let seen = watched(leases).await.map_err(failed)?;
                others = if seen == Others::Silent && watches > 0 { Others::Unseen } else { seen };
            }
            Verdict::Refuse(line) => return Err(Failure::failed(line)),
        }
        before = Some(own);
    }
    Err(Failure::failed("other managers start again and again at this moment; start this one when they are up"))
}

fn failed(error: impl std::error::Error) -> Failure {
    Failure::failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use mutirao_core::shard::MemberId;

    use super::*;

    fn at_work() -> Others {
        Others::AtWork(MemberRow { member: MemberId("ana@one".into()), address: "http://one:7070".into(), beats: 3 })
    }

    fn refusal(line: &str) -> BrokerError {
        BrokerError::Refused { what: "the vhost".into(), why: line.into() }
    }

    #[test]
    fn our_own_vhost_is_used_and_another_s_never() {
        for markings in [0, 1, 7] {
            for others in [Others::Unseen, Others::Silent, at_work()] {
                assert_eq!(judge(&Holder::Us, markings, &others), Verdict::ComeIn);
                for holder in [Holder::Another(refusal("bb")), Holder::Untold(refusal("bb"))] {
                    let Verdict::Refuse(line) = judge(&holder, markings, &others) else { panic!("{holder:?}") };
                    assert!(line.contains("bb"), "{line}");
                }
            }
        }
    }

    #[test]
    fn nobody_s_vhost_is_taken_unless_others_of_us_are_at_work_elsewhere() {
        let nobody = |markings, others: &Others| judge(&Holder::Nobody, markings, others);
        for others in [Others::Unseen, Others::Silent, at_work()] {
            assert_eq!(nobody(0, &others), Verdict::Mark, "new, or upgraded one by one");
        }
        assert_eq!(nobody(1, &Others::Unseen), Verdict::Watch);
        assert_eq!(nobody(1, &Others::Silent), Verdict::Mark, "set up anew while all were stopped");
        let Verdict::Refuse(line) = nobody(1, &at_work()) else { panic!("let in") };
        assert!(line.contains("ana@one at http://one:7070") && line.contains("--broker"), "{line}");
    }
}
