//! Who may write and read snapshots: a host those of parts that it was given, and of nothing else. It may read those of another
//! replica of the same stage, from which it is seeded.

use async_trait::async_trait;
use mutirao_core::Problem;
use mutirao_core::auth::{Principal, Role};
use mutirao_store::refused;
use mutirao_streams::wire::{Part, SNAPSHOT_BYTES_MAX, part_of_snapshot};
use mutirao_surface::BlobGuard;

use super::Streams;

#[async_trait]
impl BlobGuard for Streams {
    async fn may_append(&self, caller: &Principal, key: &str) -> Result<(), Problem> {
        let part = named(caller, key)?;
        self.must_be_given(caller, &part, |given| *given == part).await
    }

    async fn may_read(&self, caller: &Principal, key: &str) -> Result<(), Problem> {
        let part = named(caller, key)?;
        self.must_be_given(caller, &part, |given| given.what == part.what).await
    }

    fn bytes_max(&self) -> u64 {
        SNAPSHOT_BYTES_MAX
    }
}

fn named(caller: &Principal, key: &str) -> Result<Part, Problem> {
    if caller.role != Role::Node {
        return Err(Problem::forbidden("snapshots are for hosts of streams"));
    }
    part_of_snapshot(key).ok_or_else(|| Problem::forbidden("this is no snapshot of a part"))
}

impl Streams {
    async fn must_be_given(
        &self,
        caller: &Principal,
        part: &Part,
        fits: impl Fn(&Part) -> bool + Send,
    ) -> Result<(), Problem> {
        let rows = self.0.store.parts(vec![part.stream.clone()]).await.map_err(refused)?;
        let moves = self.0.store.moves(vec![part.stream.clone()]).await.map_err(refused)?;
        let given = |row: &crate::store::PartRow| {
            row.seat.as_ref().is_some_and(|seat| seat.host == caller.id) && fits(&row.part)
        };
        let comes = |one: &crate::moving::Move| one.to == caller.id && one.begun.is_some() && fits(&one.part);
        match rows.iter().any(given) || moves.iter().any(comes) {
            true => Ok(()),
            false => Err(Problem::forbidden("this host was not given the part whose snapshot this is")),
        }
    }
}
