//! One installation, one vhost of RabbitMQ: whether this manager may use the one that its settings name.
//!
//! The vhost says whose it is (`broker`'s mark), the database says who we are and whether we have ever marked one, and the
//! signs of life of other managers say whether somebody is at work elsewhere. From these three it is decided:
//!
//! - Another's: no. Both would take each other's tasks and reports.
//! - Nobody's, though managers of this installation are at work: no, unless one of them marks it within a while, as they do
//!   when their RabbitMQ was set up anew. They use another RabbitMQ, and what this one would
//!   hand out no worker of theirs would ever see. Unless none of them has ever marked one: those are of the version before,
//!   and the first of the new version marks it for all.
//! - Nobody's, and nobody is at work: it is new, or was set up anew while all were stopped. It is marked.
//!
//! Managers that start at once agree by a turn in the database which of them marks; the others then find the mark, or find
//! that they look for it in the wrong place. An embedded broker is nobody else's, so nothing is marked there.

use std::sync::Arc;

use mutirao_broker::rabbit::{Config, Holder};
use mutirao_broker::{BrokerError, Rabbit};
use mutirao_core::{Dice, InstallationId, SystemClock};
use mutirao_shards::Shared;
use mutirao_shards::store::MemberRow;
use mutirao_store::installation::{self, Turn};
use mutirao_store::{Database, StoreError};

use crate::config::Settings;
use crate::failure::Failure;
use crate::{membership, tls};

/// A turn is lost only to another manager that starts in the same moment.
const ROUNDS_MAX: usize = 30;
/// How often nobody must be seen at work before a vhost without a mark is taken. Whoever had the turn before us may take a
/// while to its first sign of life.
const WATCHES: usize = 3;
/// The same, when another manager has just had a turn: it is starting, and may take its time.
const WATCHES_AFTER_A_TURN: usize = 5;
/// How often others must be seen at work, while the vhost stays nobody's, before it is believed that theirs is another. Each
/// takes three seconds; they look at their mark every ten, and may have to connect first.
const ELSEWHERE_WATCHES: usize = 6;

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
    /// Others are at work, it seems in another vhost. Believed when it stays so: they may be about to mark this one again.
    Elsewhere(String),
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
        (Holder::Nobody, Others::AtWork(MemberRow { member, address, .. })) => Verdict::Elsewhere(format!(
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
    enter(database, without_waiting(database), look, async || watched(leases).await).await
}

/// `unseen`: what is known of the others before anybody has looked.
async fn enter(
    database: &Database,
    unseen: Others,
    look: impl AsyncFn(&InstallationId) -> Result<Holder, BrokerError>,
    watch: impl AsyncFn() -> Result<Others, StoreError>,
) -> Result<InstallationId, Failure> {
    let (mut before, mut others, mut watches) = (None, unseen.clone(), WATCHES);
    let mut elsewhere = 0;
    for _ in 0..ROUNDS_MAX {
        let own = installation::of(database, InstallationId::random()).await.map_err(failed)?;
        if before.as_ref().is_some_and(|before| *before != own) {
            (others, watches) = (unseen.clone(), WATCHES_AFTER_A_TURN);
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
                let seen = watch().await.map_err(failed)?;
                others = if seen == Others::Silent && watches > 0 { Others::Unseen } else { seen };
            }
            Verdict::Elsewhere(line) => {
                elsewhere += 1;
                if elsewhere >= ELSEWHERE_WATCHES {
                    return Err(Failure::failed(line));
                }
                (others, watches) = (unseen.clone(), WATCHES);
            }
            Verdict::Refuse(line) => return Err(Failure::failed(line)),
        }
        before = Some(own);
    }
    Err(Failure::failed("other managers start again and again at this moment; start this one when they are up"))
}

/// For one that is restored in the place of another: the vhost is nobody's afterwards, or the other one is at work.
pub async fn take_over(settings: &Settings) -> Result<(), Failure> {
    let Some(url) = settings.broker.set() else {
        return Err(Failure::usage("--take-over is about a vhost of RabbitMQ; say which with MUTIRAO_BROKER"));
    };
    let config = Config {
        trust: tls::trust(settings, &url.0, None)?,
        ..Config::new(&url.0, SystemClock::shared(), Arc::new(Dice::from_os()))
    };
    match Rabbit::take_over(config, &InstallationId::random()).await.map_err(failed)? {
        Holder::Nobody => Ok(()),
        Holder::Us | Holder::Another(_) => Err(Failure::failed(
            "the installation that has this vhost is at work: it has marked it again; stop all its managers first, or give \
             this one a vhost of its own",
        )),
        Holder::Untold(refusal) => Err(failed(refusal)),
    }
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
        let Verdict::Elsewhere(line) = nobody(1, &at_work()) else { panic!("let in") };
        assert!(line.contains("ana@one at http://one:7070") && line.contains("--broker"), "{line}");
    }

    #[tokio::test]
    async fn a_vhost_that_those_at_work_mark_again_within_a_while_is_come_into() {
        let folder = tempfile::tempdir().unwrap();
        let sqlite = mutirao_store::Sqlite::open(&folder.path().join("db"), installation::MIGRATIONS).unwrap();
        let database = Database::Sqlite(sqlite);
        let own = installation::of(&database, InstallationId("aa".into())).await.unwrap();
        assert_eq!(installation::take_turn(&database, &own).await.unwrap(), Turn::Ours, "it has marked one before");
        for (marked_after, comes_in) in [(ELSEWHERE_WATCHES - 1, true), (ELSEWHERE_WATCHES, false)] {
            let looks = std::sync::atomic::AtomicUsize::new(0);
            let look = async |_: &InstallationId| {
                let looks = looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) / 2;
                Ok(if looks >= marked_after { Holder::Us } else { Holder::Nobody })
            };
            let came = enter(&database, Others::Unseen, look, async || Ok(at_work())).await;
            assert_eq!(came.is_ok(), comes_in, "marked after {marked_after} looks");
        }
    }
}
