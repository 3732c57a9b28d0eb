//! This process among the managers of an installation: who it is, for how long it is believed, and whether it may be there.
//!
//! Whoever holds the lock of a data folder knows that whoever held it before is dead. So each manager leaves its name
//! there, and its successor frees what it owned: a restart waits for no lease. It goes on under the same name, so that it
//! gets the shards that it had and the others keep theirs: which shard is whose follows from the names. Under another host
//! name, as another user, or where the folder may be a copy ([`before`]) it is somebody else.
//!
//! A member's name says as whom it speaks at the broker: `mutirao@host-…`, or `alone-host-…` without a RabbitMQ. So whoever
//! starts sees whether the others could believe it, and people see it in `shard list`.

mod before;

use std::path::Path;
use std::time::Duration;

use mutirao_core::{Clock, SystemClock};
use mutirao_jobs::GROUP;
use mutirao_shards::store::{MemberRow, bury};
use mutirao_shards::{MemberId, Shared, Terms};
use mutirao_store::{Database, StoreError};

use crate::failure::Failure;
use crate::machine;
use before::{Before, Spot};

const MEMBER_FILE: &str = "member";
/// What the names of those begin with who cannot share queues.
const ALONE: &str = "alone-";
const NO_BROKER: &str = "uses this database, and the two would have no broker in common; give every manager the same \
    RabbitMQ (--broker), or stop the other one";
/// Longer than the time between two signs of life.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// Whom this manager's broker reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every manager and worker that uses the same RabbitMQ, as this user of it.
    Everybody { user: String },
    /// It is inside this process: only the workers that are linked to it.
    OwnWorkers,
}

impl Reach {
    fn name_on(&self, host: &str) -> String {
        match self {
            // A host's name has no such sign in it; a user's may.
            Self::Everybody { user } => format!("{user}@{host}"),
            Self::OwnWorkers => format!("{ALONE}{host}"),
        }
    }

    /// Why the two cannot share queues, and what to do about it, if so. Of members of older programs nothing is known.
    fn clash_with(&self, other: &MemberId) -> Option<String> {
        match (self, broker_user_of(other)) {
            (Self::OwnWorkers, _) => Some(NO_BROKER.into()),
            _ if other.0.starts_with(ALONE) => Some(NO_BROKER.into()),
            (Self::Everybody { user }, Some(theirs)) if user != theirs => Some(format!(
                "is the user {theirs} at RabbitMQ, while this one is {user}: neither would believe what the other passes on; \
                 give every manager the same user (--broker), or stop the other one"
            )),
            _ => None,
        }
    }
}

/// As whom a manager speaks at RabbitMQ, by its name.
pub fn broker_user_of(member: &MemberId) -> Option<&str> {
    member.0.rsplit_once('@').map(|(user, _)| user)
}

pub struct Membership {
    pub member: MemberId,
    pub terms: Terms,
}

impl Membership {
    pub async fn take_up(leases: &Shared, database: &Database, reach: Reach, data: &Path) -> Result<Self, Failure> {
        let (name, spot) = (reach.name_on(&machine::host_name()), Spot::of(data)?);
        let file = data.join(MEMBER_FILE);
        let before = Before::read(&file).filter(|before| before.is_dead(&spot));
        if let Some(Before { member, .. }) = &before {
            for group in
                [GROUP, mutirao_monitors::GROUP, mutirao_kv::GROUP, mutirao_flows::GROUP, mutirao_conductor::GROUP]
            {
                bury(leases, group, member).await.map_err(trouble)?;
            }
        }
        let member = before.and_then(|before| before.goes_on_as(&name)).unwrap_or_else(|| MemberId::mint(&name));
        let terms = match database {
            // The lock of the data folder keeps everybody else away.
            Database::Sqlite(_) => Terms::alone(),
            Database::Postgres(_) => {
                refuse_bad_company(leases, &reach).await?;
                Terms::default()
            }
        };
        let beside = data.join(format!("{MEMBER_FILE}.new"));
        std::fs::write(&beside, Before { member: member.clone(), spot: Some(spot) }.written())?;
        std::fs::rename(&beside, &file)?;
        Ok(Self { member, terms })
    }
}

/// Managers that cannot hear or believe each other must not share queues: the tasks of one would wait for the workers of
/// another.
async fn refuse_bad_company(leases: &Shared, reach: &Reach) -> Result<(), Failure> {
    let clashes = |row: &MemberRow| reach.clash_with(&row.member).is_some();
    if !leases.members(GROUP).await.map_err(trouble)?.iter().any(clashes) {
        return Ok(());
    }
    let alive = living(leases).await.map_err(trouble)?;
    let clash = alive.iter().find_map(|row| Some((row, reach.clash_with(&row.member)?)));
    match clash {
        None => Ok(()),
        Some((other, why)) => Err(Failure::failed(format!("the manager {} at {} {why}", other.member, other.address))),
    }
}

/// The managers that give signs of life. It takes a while: whoever has died since is still on the list.
pub async fn living(leases: &Shared) -> Result<Vec<MemberRow>, StoreError> {
    let before = leases.members(GROUP).await?;
    SystemClock.sleep(LOOK_AGAIN).await;
    let mut now = leases.members(GROUP).await?;
    now.retain(|row| !before.contains(row));
    Ok(now)
}

fn trouble(error: StoreError) -> Failure {
    Failure::failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use mutirao_shards::store::sqlite;

    use super::*;

    fn everybody(user: &str) -> Reach {
        Reach::Everybody { user: user.into() }
    }

    fn member(reach: &Reach) -> MemberId {
        MemberId::mint(&reach.name_on("host-1"))
    }

    #[test]
    fn a_member_s_name_says_as_whom_it_speaks() {
        assert_eq!(broker_user_of(&member(&everybody("mutirao"))), Some("mutirao"));
        assert_eq!(broker_user_of(&member(&everybody("ana@lab"))), Some("ana@lab"));
        assert_eq!(broker_user_of(&member(&Reach::OwnWorkers)), None);
        assert_eq!(broker_user_of(&MemberId("host-1-0123456789abcdef".into())), None);
    }

    async fn take_up(leases: &Shared, database: &Database, data: &Path) -> MemberId {
        let taken = Membership::take_up(leases, database, Reach::OwnWorkers, data).await;
        taken.unwrap_or_else(|_| panic!("it is refused")).member
    }

    #[tokio::test]
    async fn a_manager_goes_on_under_its_name_after_a_restart_and_a_copy_of_its_folder_is_another() {
        let home = tempfile::tempdir().unwrap();
        let [data, copy] = ["data", "copy"].map(|name| home.path().join(name));
        for dir in [&data, &copy] {
            std::fs::create_dir(dir).unwrap();
        }
        let file = home.path().join("db");
        let database = Database::Sqlite(mutirao_store::Sqlite::open(&file, sqlite::MIGRATIONS).unwrap());
        let leases: Shared = mutirao_shards::store::open(&database, None).await.unwrap();
        let first = take_up(&leases, &database, &data).await;
        leases.found(GROUP, 16).await.unwrap();
        let (shard, lease) = (mutirao_shards::ShardId(3), Duration::from_secs(10));
        leases.claim(GROUP, shard, Default::default(), &first, lease).await.unwrap();

        std::fs::copy(data.join(MEMBER_FILE), copy.join(MEMBER_FILE)).unwrap();
        assert_ne!(take_up(&leases, &database, &copy).await, first);
        let owner = async || leases.leases(GROUP).await.unwrap()[0].owner.clone();
        assert_eq!(owner().await, Some(first.clone()), "whoever has the folder itself may live");

        let (file, written) = (data.join(MEMBER_FILE), std::fs::read_to_string(data.join(MEMBER_FILE)).unwrap());
        let boot = written.lines().last().unwrap();
        std::fs::write(&file, written.replace(boot, "another")).unwrap();
        assert_ne!(take_up(&leases, &database, &data).await, first, "a clone of the machine");
        assert_eq!(owner().await, Some(first.clone()), "whoever works on the original may live");
        std::fs::write(&file, &written).unwrap();

        assert_eq!(take_up(&leases, &database, &data).await, first);
        assert_eq!(owner().await, None, "what it had is free at once");
    }

    #[test]
    fn only_those_share_queues_who_can_hear_and_believe_each_other() {
        let (ana, rui) = (everybody("ana"), everybody("rui"));
        assert_eq!(ana.clash_with(&member(&ana)), None);
        let why = ana.clash_with(&member(&rui)).unwrap();
        assert!(why.contains("the user rui") && why.contains("is ana") && why.contains("--broker"), "{why}");
        for (one, other) in
            [(&ana, &Reach::OwnWorkers), (&Reach::OwnWorkers, &ana), (&Reach::OwnWorkers, &Reach::OwnWorkers)]
        {
            assert_eq!(one.clash_with(&member(other)).as_deref(), Some(NO_BROKER));
        }
        assert_eq!(ana.clash_with(&MemberId("host-1-0123456789abcdef".into())), None, "of an older program");
    }
}
