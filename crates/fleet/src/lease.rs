//! A resource manager's lease, passed on to the store of shards: it owns the one shard of its group as managers own theirs,
//! only that its calls come over HTTP.

use std::time::Duration;

use mutirao_core::Problem;
use mutirao_core::limits::NAME_CHARS_MAX;
use mutirao_elastic::protocol::{GROUP, LeaseAnswer, LeaseCall, LeaseSeen, MemberSeen};
use mutirao_shards::store::Mark;
use mutirao_shards::{MemberId, ShardId, Shared};
use mutirao_store::StoreError;

use crate::service::refused;
use crate::store::SHARD;

/// Longer, and a resource manager that died would be missed for too long.
const LEASE_MAX: Duration = Duration::from_secs(600);
/// There is one shard; more are a slip.
const HELD_MAX: usize = 16;

pub async fn call(leases: &Shared, call: LeaseCall) -> Result<LeaseAnswer, Problem> {
    check(&call)?;
    carry_out(leases, call).await.map_err(refused)
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
