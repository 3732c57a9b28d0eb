//! A resource manager's lease, passed on to the store of shards: it owns the one shard of its group as managers own theirs,
//! only that its calls come over HTTP. A name belongs to whoever used it first: nobody else beats, claims, renews or releases
//! in it, and nobody else's generation is good for what it was claimed under.

use std::time::Duration;

use mutirao_core::Problem;
use mutirao_core::limits::NAME_CHARS_MAX;
use mutirao_elastic::protocol::{GROUP, LeaseAnswer, LeaseCall, LeaseSeen, MemberSeen};
use mutirao_shards::store::Mark;
use mutirao_shards::{MemberId, ShardId, Shared};
use mutirao_store::{StoreError, refused};

use crate::routes::Asker;
use crate::service::not_the_owner;
use crate::store::{self, SHARD};

/// Longer, and a resource manager that died would be missed for too long.
const LEASE_MAX: Duration = Duration::from_secs(600);
/// There is one shard; more are a slip.
const HELD_MAX: usize = 16;

pub async fn call(
    leases: &Shared,
    names: &store::Shared,
    call: LeaseCall,
    asker: &Asker,
) -> Result<LeaseAnswer, Problem> {
    check(&call)?;
    if let Some(member) = spoken_for(&call)
        && names.named(member, &asker.manager).await.map_err(refused)? != asker.manager
    {
        return Err(Problem::forbidden("this name in the lease belongs to another resource manager"));
    }
    carry_out(leases, call).await.map_err(refused)
}

/// Whether the generation is the current one, and the caller's. Looked at before the transaction that is fenced by it: a
/// generation has one owner for ever, so this cannot become wrong in between.
pub async fn must_hold(leases: &Shared, names: &store::Shared, generation: u64, asker: &Asker) -> Result<(), Problem> {
    let rows = leases.leases(GROUP).await.map_err(refused)?;
    let current = rows.into_iter().find(|row| row.shard == SHARD && row.mark.generation == generation);
    // One that was released is nobody's, until somebody claims the next.
    let Some(owner) = current.and_then(|row| row.owner) else { return Err(not_the_owner()) };
    match names.named(&owner.0, &asker.manager).await.map_err(refused)? == asker.manager {
        true => Ok(()),
        false => Err(not_the_owner()),
    }
}

/// In whose name a call is made. Whoever has not beaten since it was seen may be forgotten by everybody.
fn spoken_for(call: &LeaseCall) -> Option<&str> {
    match call {
        LeaseCall::Found { .. } | LeaseCall::Members | LeaseCall::Leases => None,
        LeaseCall::Forget { beats: Some(_), .. } => None,
        LeaseCall::Beat { member, .. }
        | LeaseCall::Forget { member, beats: None }
        | LeaseCall::Claim { member, .. }
        | LeaseCall::Renew { member, .. }
        | LeaseCall::Release { member, .. } => Some(member),
    }
}

fn check(call: &LeaseCall) -> Result<(), Problem> {
    let name = |member: &str| match member.chars().count() {
        1..=NAME_CHARS_MAX if !member.contains('\0') => Ok(()),
        _ => Err(Problem::invalid("member", format!("must have 1 to {NAME_CHARS_MAX} characters"))),
    };
    let the_shard = |shard: u32| match shard == SHARD.0 {
        true => Ok(()),
        false => Err(Problem::invalid("shard", format!("there is one shard, {SHARD}"))),
    };
    match call {
        LeaseCall::Found { count } if *count != 1 => Err(Problem::invalid("count", "there is one shard")),
        LeaseCall::Found { .. } | LeaseCall::Members | LeaseCall::Leases => Ok(()),
        LeaseCall::Beat { member, address } => match address.chars().count() <= NAME_CHARS_MAX {
            true => name(member),
            false => Err(Problem::invalid("address", format!("has more than {NAME_CHARS_MAX} characters"))),
        },
        LeaseCall::Forget { member, .. } => name(member),
        LeaseCall::Claim { shard, member, lease_ms, .. } => {
            if !(1..=LEASE_MAX.as_millis() as u64).contains(lease_ms) {
                let detail = format!("must be between 1 and {} ms", LEASE_MAX.as_millis());
                return Err(Problem::invalid("lease_ms", detail));
            }
            the_shard(*shard).and_then(|()| name(member))
        }
        LeaseCall::Renew { held, .. } if held.len() > HELD_MAX => Err(Problem::invalid("held", "there is one shard")),
        LeaseCall::Renew { member, .. } => name(member),
        LeaseCall::Release { member, shard, .. } => the_shard(*shard).and_then(|()| name(member)),
    }
}

async fn carry_out(leases: &Shared, call: LeaseCall) -> Result<LeaseAnswer, StoreError> {
    Ok(match call {
        LeaseCall::Found { count } => LeaseAnswer::Count { count: leases.found(GROUP, count).await? },
        LeaseCall::Beat { member, address } => {
            leases.beat(GROUP, &MemberId(member), &address).await?;
            LeaseAnswer::Done
        }
        LeaseCall::Forget { member, beats } => {
            leases.forget(GROUP, &MemberId(member), beats).await?;
            LeaseAnswer::Done
        }
        LeaseCall::Members => {
            let members = leases.members(GROUP).await?.into_iter();
            let seen = |row: mutirao_shards::store::MemberRow| MemberSeen {
                member: row.member.0,
                address: row.address,
                beats: row.beats,
            };
            LeaseAnswer::Members { members: members.map(seen).collect() }
        }
        LeaseCall::Leases => {
            let seen = |row: mutirao_shards::store::LeaseRow| LeaseSeen {
                shard: row.shard.0,
                owner: row.owner.map(|owner| owner.0),
                generation: row.mark.generation,
                beats: row.mark.beats,
                lease_ms: row.lease.as_millis() as u64,
            };
            LeaseAnswer::Leases { leases: leases.leases(GROUP).await?.into_iter().map(seen).collect() }
        }
        LeaseCall::Claim { shard, generation, beats, member, lease_ms } => {
            let (seen, lease) = (Mark { generation, beats }, Duration::from_millis(lease_ms));
            let claimed = leases.claim(GROUP, ShardId(shard), seen, &MemberId(member), lease).await?;
            LeaseAnswer::Claimed { generation: claimed }
        }
        LeaseCall::Renew { member, held } => {
            let held: Vec<_> = held.into_iter().map(|(shard, generation)| (ShardId(shard), generation)).collect();
            let kept = leases.renew(GROUP, &MemberId(member), &held).await?;
            LeaseAnswer::Renewed { shards: kept.into_iter().map(|shard| shard.0).collect() }
        }
        LeaseCall::Release { member, shard, generation } => {
            leases.release(GROUP, &MemberId(member), ShardId(shard), generation).await?;
            LeaseAnswer::Done
        }
    })
}
