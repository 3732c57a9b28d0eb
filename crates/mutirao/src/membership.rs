//! This process among the managers of an installation: who it is, for how long it is believed, and whether it may be there.
//!
//! Whoever holds the lock of a data folder knows that whoever held it before is dead. So each manager leaves its name
//! there, and its successor frees what it owned: a restart waits for no lease.

use std::path::Path;
use std::time::Duration;

use mutirao_core::{Clock, SystemClock};
use mutirao_jobs::GROUP;
use mutirao_shards::store::{MemberRow, bury};
use mutirao_shards::{MemberId, Shared, Terms};
use mutirao_store::{Database, StoreError};

use crate::failure::Failure;
use crate::machine;

const MEMBER_FILE: &str = "member";
/// What the names of those begin with who cannot share queues.
const ALONE: &str = "alone-";
/// Longer than the time between two signs of life.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// Whom this manager's broker reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every manager and worker that uses the same one.
    Everybody,
    /// It is inside this process: only the workers that are linked to it.
    OwnWorkers,
}

pub struct Membership {
    pub member: MemberId,
    pub terms: Terms,
}

impl Membership {
    pub async fn take_up(leases: &Shared, database: &Database, reach: Reach, data: &Path) -> Result<Self, Failure> {
        let prefix = if reach == Reach::OwnWorkers { ALONE } else { "" };
        let member = MemberId::mint(&format!("{prefix}{}", machine::host_name()));
        let file = data.join(MEMBER_FILE);
        if let Ok(before) = std::fs::read_to_string(&file) {
            bury(leases, GROUP, &MemberId(before.trim().into())).await.map_err(trouble)?;
        }
        let terms = match database {
            // The lock of the data folder keeps everybody else away.
            Database::Sqlite(_) => Terms::alone(),
            Database::Postgres(_) => {
                refuse_bad_company(leases, reach).await?;
                Terms::default()
            }
        };
        let beside = data.join(format!("{MEMBER_FILE}.new"));
        std::fs::write(&beside, format!("{member}\n"))?;
        std::fs::rename(&beside, &file)?;
        Ok(Self { member, terms })
    }
}

/// Managers that cannot hear each other must not share queues: the tasks of one would wait for the workers of another.
async fn refuse_bad_company(leases: &Shared, reach: Reach) -> Result<(), Failure> {
    let clashes = |row: &MemberRow| reach == Reach::OwnWorkers || row.member.0.starts_with(ALONE);
    let mut before = leases.members(GROUP).await.map_err(trouble)?;
    before.retain(clashes);
    if before.is_empty() {
        return Ok(());
    }
    // Whoever has died since is still on the list, and gives no sign of life.
    SystemClock.sleep(LOOK_AGAIN).await;
    let now = leases.members(GROUP).await.map_err(trouble)?;
    let alive = |row: &&MemberRow| before.iter().any(|old| old.member == row.member && old.beats != row.beats);
    match now.iter().find(alive) {
        None => Ok(()),
        Some(other) => Err(Failure::failed(format!(
            "the manager {} at {} uses this database, and the two would have no broker in common; \
             give every manager the same RabbitMQ (--broker), or stop the other one",
            other.member, other.address
        ))),
    }
}

fn trouble(error: StoreError) -> Failure {
    Failure::failed(error.to_string())
}
