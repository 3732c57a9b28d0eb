//! What every store of leases must do, whatever is behind it.

use std::time::Duration;

use mutirao_shards::store::{LeaseRow, Mark, MemberRow};
use mutirao_shards::{MemberId, ShardId, Shared};

const LEASE: Duration = Duration::from_millis(1_234);
const ONE: ShardId = ShardId(1);

pub async fn run(store: &Shared) {
    a_group_is_cut_once(store).await;
    members_count_their_beats_until_they_are_forgotten(store).await;
    only_a_silent_member_is_struck_off_by_others(store).await;
    a_claim_needs_the_lease_to_be_as_it_was_seen(store).await;
    a_renewal_is_for_the_owner_of_the_generation_only(store).await;
    a_release_is_for_the_owner_of_the_generation_only(store).await;
    of_many_who_claim_at_once_one_succeeds(store).await;
    groups_do_not_see_each_other(store).await;
}

fn member(name: &str) -> MemberId {
    MemberId(name.into())
}

fn mark(generation: u64, beats: u64) -> Mark {
    Mark { generation, beats }
}

async fn claim(store: &Shared, group: &str, seen: Mark, who: &str) -> Option<u64> {
    store.claim(group, ONE, seen, &member(who), LEASE).await.unwrap()
}

async fn renew(store: &Shared, group: &str, who: &str, held: &[(ShardId, u64)]) -> Vec<ShardId> {
    store.renew(group, &member(who), held).await.unwrap()
}

async fn lease(store: &Shared, group: &str) -> (Option<MemberId>, Mark) {
    let leases = store.leases(group).await.unwrap();
    let [LeaseRow { shard: ONE, owner, mark, lease: LEASE }] = &leases[..] else { panic!("{leases:?}") };
    (owner.clone(), *mark)
}

async fn a_group_is_cut_once(store: &Shared) {
    assert_eq!(store.found("cut", 16).await.unwrap(), 16);
    assert_eq!(store.found("cut", 8).await.unwrap(), 16);
    assert_eq!(store.found("other cut", 8).await.unwrap(), 8);
}

async fn members_count_their_beats_until_they_are_forgotten(store: &Shared) {
    let g = "beats";
    store.beat(g, &member("b"), "there").await.unwrap();
    store.beat(g, &member("a"), "here").await.unwrap();
    store.beat(g, &member("a"), "elsewhere").await.unwrap();
    let row = |name: &str, address: &str, beats| MemberRow { member: member(name), address: address.into(), beats };
    assert_eq!(store.members(g).await.unwrap(), [row("a", "elsewhere", 2), row("b", "there", 1)]);
    store.forget(g, &member("a"), None).await.unwrap();
    store.forget(g, &member("nobody"), None).await.unwrap();
    assert_eq!(store.members(g).await.unwrap(), [row("b", "there", 1)]);
}

async fn only_a_silent_member_is_struck_off_by_others(store: &Shared) {
    let (g, a) = ("silent", member("a"));
    store.beat(g, &a, "here").await.unwrap();
    store.beat(g, &a, "here").await.unwrap();
    store.forget(g, &a, Some(1)).await.unwrap();
    assert_eq!(store.members(g).await.unwrap().len(), 1, "it has beaten since");
    store.forget(g, &a, Some(2)).await.unwrap();
    assert_eq!(store.members(g).await.unwrap(), []);
}

async fn a_claim_needs_the_lease_to_be_as_it_was_seen(store: &Shared) {
    let g = "claims";
    assert_eq!(store.leases(g).await.unwrap(), []);
    assert_eq!(claim(store, g, mark(1, 0), "a").await, None, "there is nothing like that");
    assert_eq!(claim(store, g, mark(0, 0), "a").await, Some(1));
    assert_eq!(lease(store, g).await, (Some(member("a")), mark(1, 0)));
    assert_eq!(claim(store, g, mark(0, 0), "b").await, None, "it was claimed since");
    assert_eq!(renew(store, g, "a", &[(ONE, 1)]).await, [ONE]);
    assert_eq!(claim(store, g, mark(1, 0), "b").await, None, "it was renewed since");
    assert_eq!(lease(store, g).await, (Some(member("a")), mark(1, 1)));
    assert_eq!(claim(store, g, mark(1, 1), "b").await, Some(2));
    assert_eq!(lease(store, g).await, (Some(member("b")), mark(2, 0)));
    assert_eq!(claim(store, g, mark(2, 0), "b").await, Some(3), "one's own as well");
}

async fn a_renewal_is_for_the_owner_of_the_generation_only(store: &Shared) {
    let g = "renewals";
    claim(store, g, mark(0, 0), "a").await;
    claim(store, g, mark(1, 0), "a").await;
    assert_eq!(renew(store, g, "a", &[(ONE, 1)]).await, []);
    assert_eq!(renew(store, g, "b", &[(ONE, 2)]).await, []);
    assert_eq!(renew(store, g, "a", &[]).await, []);
    assert_eq!(renew(store, g, "a", &[(ShardId(7), 1), (ONE, 2), (ShardId(0), 2)]).await, [ONE]);
    assert_eq!(lease(store, g).await, (Some(member("a")), mark(2, 1)));
}

async fn a_release_is_for_the_owner_of_the_generation_only(store: &Shared) {
    let g = "releases";
    let release = async |who: &str, generation| store.release(g, &member(who), ONE, generation).await.unwrap();
    claim(store, g, mark(0, 0), "a").await;
    claim(store, g, mark(1, 0), "a").await;
    release("a", 1).await;
    release("b", 2).await;
    assert_eq!(lease(store, g).await, (Some(member("a")), mark(2, 0)));
    release("a", 2).await;
    release("a", 2).await;
    assert_eq!(lease(store, g).await, (None, mark(2, 0)));
    assert_eq!(renew(store, g, "a", &[(ONE, 2)]).await, [], "what was given back is not renewed");
    assert_eq!(claim(store, g, mark(2, 0), "b").await, Some(3), "the generation goes on");
}

async fn of_many_who_claim_at_once_one_succeeds(store: &Shared) {
    let g = "races";
    let mut seen = mark(0, 0);
    for round in 1..=20 {
        let racers: Vec<_> = (0..8)
            .map(|n| {
                let (store, who) = (store.clone(), member(&format!("m{n}")));
                tokio::spawn(async move { store.claim(g, ONE, seen, &who, LEASE).await.unwrap() })
            })
            .collect();
        let mut won = Vec::new();
        for racer in racers {
            won.extend(racer.await.unwrap());
        }
        assert_eq!(won, [round]);
        seen = lease(store, g).await.1;
    }
}

async fn groups_do_not_see_each_other(store: &Shared) {
    claim(store, "left", mark(0, 0), "a").await;
    store.beat("left", &member("a"), "here").await.unwrap();
    assert_eq!(store.leases("right").await.unwrap(), []);
    assert_eq!(store.members("right").await.unwrap(), []);
    assert_eq!(claim(store, "right", mark(0, 0), "b").await, Some(1));
}
