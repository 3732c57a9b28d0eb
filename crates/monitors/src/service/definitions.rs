//! Making, changing and removing monitors.

use mutirao_core::auth::Principal;
use mutirao_core::clock::ClockExt;
use mutirao_core::dice::os_random;
use mutirao_core::envelope::{Version, seal};
use mutirao_core::shard::shard_of;
use mutirao_core::{Problem, ShardId};
use mutirao_store::refused;

use super::{ANSWER_MAX, MonitorView, Monitors, missing};
use crate::SHARDS;
use crate::envelope::{CHANGES, Changed};
use crate::spec::MonitorSpec;
use crate::store::{Expected, Newcomer, Put};

/// What a change is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Based {
    /// There must not be one of this name.
    OnNothing,
    /// Whatever is there.
    OnAnything,
    On(u64),
}

impl Monitors {
    pub async fn put(
        &self,
        caller: &Principal,
        spec: MonitorSpec,
        based: Based,
    ) -> Result<(MonitorView, Put), Problem> {
        let checked = spec.clone();
        // Conditions are compiled on a thread of their own, which is waited for.
        tokio::task::spawn_blocking(move || checked.check()).await.map_err(|_| Problem::internal())??;
        self.allow(&spec)?;
        self.know_channels(caller, &spec.alerts).await?;
        self.write(caller, spec, based).await
    }

    async fn write(&self, caller: &Principal, spec: MonitorSpec, based: Based) -> Result<(MonitorView, Put), Problem> {
        let uuid = new_uuid();
        let shard = shard_of(&uuid, SHARDS);
        let name = spec.name.clone();
        let expected = match based {
            Based::OnNothing => Expected::Absent,
            Based::OnAnything => Expected::Anything,
            Based::On(revision) => Expected::Revision(revision),
        };
        let put = self.0.store.put(Newcomer { uuid, shard, spec }, expected, self.by(caller)).await.map_err(refused)?;
        match &put {
            Put::Created(row) | Put::Changed(row) => {
                let push_token = self.token_for(row).await?;
                self.notice(row.shard).await;
                Ok((MonitorView { push_token, ..self.view(row.clone()).await? }, put.clone()))
            }
            Put::Unexpected(Some(row)) if based == Based::OnNothing => {
                Err(Problem::conflict(format!("there is a monitor {name} already, at revision {}", row.revision))
                    .remedy(format!("`mutirao monitor edit {name}` changes it")))
            }
            Put::Unexpected(Some(row)) => Err(Problem::conflict(format!(
                "monitor {name} was changed by {} in the meantime and is at revision {}",
                row.changed_by, row.revision
            ))
            .remedy("look at it and try again")),
            Put::Unexpected(None) => Err(missing(&name)),
        }
    }

    pub async fn remove(&self, caller: &Principal, name: &str) -> Result<(), Problem> {
        let shard = self.row(caller, name).await?.shard;
        match self.0.store.remove(name.into(), self.by(caller)).await.map_err(refused)? {
            true => {
                self.notice(shard).await;
                Ok(())
            }
            false => Err(missing(name)),
        }
    }

    /// Says that something has changed. Whoever does not hear it finds out by itself, so nobody waits for long.
    pub(super) async fn notice(&self, shard: ShardId) {
        let body = seal(&Changed { v: Version::default(), shard: shard.0 });
        let said = self.0.clock.timeout(ANSWER_MAX, self.0.broker.announce(CHANGES, body)).await;
        if !matches!(said, Ok(Ok(()))) {
            tracing::debug!(%shard, "a change of monitors could not be said; its owner finds it");
        }
    }

    pub async fn pause(&self, caller: &Principal, name: &str) -> Result<MonitorView, Problem> {
        self.amend(caller, name, |spec| spec.paused = true).await
    }

    pub async fn resume(&self, caller: &Principal, name: &str) -> Result<MonitorView, Problem> {
        self.amend(caller, name, |spec| spec.paused = false).await
    }

    /// Whoever changes it in the same moment is not undone. What it is otherwise is not looked at: it was good once, and one that
    /// could not be made today must be paused all the same.
    async fn amend(
        &self,
        caller: &Principal,
        name: &str,
        change: impl FnOnce(&mut MonitorSpec) + Send,
    ) -> Result<MonitorView, Problem> {
        let mut row = self.row(caller, name).await?;
        change(&mut row.spec);
        self.write(caller, row.spec, Based::On(row.revision)).await.map(|(view, _)| view)
    }
}

/// Random, and written as uuids are.
pub(super) fn new_uuid() -> String {
    let mut bytes = [0u8; 16];
    os_random(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
