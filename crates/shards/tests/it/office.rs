//! Members at work in one process, under a manual clock: three of them, one killed, one frozen, one leaving.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::clock::{Clock, ManualClock};
use mutirao_core::{Dice, Timestamp};
use mutirao_shards::store::memory::MemoryShards;
use mutirao_shards::store::{LeaseRow, Mark, MemberRow};
use mutirao_shards::{Asked, MemberId, ShardId, ShardStore, Shards, ShardsError, ShardsParts, Shared, Tenure, Terms};
use mutirao_store::StoreError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const COUNT: u32 = 16;
const STEP: Duration = Duration::from_millis(50);
/// Steps until everything must have settled: ten leases.
const STEPS_MAX: u32 = 2_000;
/// Turns of every task between two steps of the clock.
const TURNS: u32 = 20;

/// A store that answers only while its gate is open: what a frozen process sees of the world.
struct Gated {
    store: Shared,
    open: watch::Receiver<bool>,
}

impl Gated {
    async fn pass(&self) -> &Shared {
        let mut open = self.open.clone();
        let _ = open.wait_for(|open| *open).await;
        &self.store
    }
}

#[async_trait]
impl ShardStore for Gated {
    async fn found(&self, group: &str, count: u32) -> Result<u32, StoreError> {
        self.pass().await.found(group, count).await
    }
    async fn beat(&self, group: &str, member: &MemberId, address: &str) -> Result<(), StoreError> {
        self.pass().await.beat(group, member, address).await
    }
    async fn forget(&self, group: &str, member: &MemberId, beats: Option<u64>) -> Result<(), StoreError> {
        self.pass().await.forget(group, member, beats).await
    }
    async fn members(&self, group: &str) -> Result<Vec<MemberRow>, StoreError> {
        self.pass().await.members(group).await
    }
    async fn leases(&self, group: &str) -> Result<Vec<LeaseRow>, StoreError> {
        self.pass().await.leases(group).await
    }
    async fn claim(
        &self,
        group: &str,
        shard: ShardId,
        seen: Mark,
        member: &MemberId,
        lease: Duration,
    ) -> Result<Option<u64>, StoreError> {
        self.pass().await.claim(group, shard, seen, member, lease).await
    }
    async fn renew(&self, group: &str, member: &MemberId, held: &[(ShardId, u64)]) -> Result<Vec<ShardId>, StoreError> {
        self.pass().await.renew(group, member, held).await
    }
    async fn release(&self, group: &str, member: &MemberId, shard: ShardId, generation: u64) -> Result<(), StoreError> {
        self.pass().await.release(group, member, shard, generation).await
    }
}

struct Member {
    shards: Shards,
    gate: watch::Sender<bool>,
    user: JoinHandle<()>,
}

struct House {
    clock: Arc<ManualClock>,
    store: Shared,
    members: BTreeMap<&'static str, Member>,
}

type Owners = BTreeMap<ShardId, (&'static str, u64)>;

impl House {
    async fn of(names: &[&'static str]) -> House {
        let clock = ManualClock::starting_at(Timestamp(0));
        let mut house = House { clock, store: Arc::new(MemoryShards::default()), members: BTreeMap::new() };
        for name in names {
            house.join(name).await;
        }
        house.settle().await;
        house
    }

    fn parts(&self, name: &'static str, store: Shared) -> ShardsParts {
        ShardsParts {
            store,
            clock: self.clock.clone(),
            dice: Arc::new(Dice::seeded(name.len() as u64)),
            group: "g",
            count: COUNT,
            member: MemberId(name.into()),
            address: format!("{name}.example:7070"),
            terms: Terms::default(),
        }
    }

    async fn join(&mut self, name: &'static str) {
        let (gate, open) = watch::channel(true);
        let store = Arc::new(Gated { store: self.store.clone(), open });
        let shards = Shards::start(self.parts(name, store)).await.unwrap();
        let user = tokio::spawn(settle_when_asked(shards.clone()));
        self.members.insert(name, Member { shards, gate, user });
    }

    /// As by SIGKILL: nothing is said to anybody.
    fn kill(&mut self, name: &'static str) {
        self.members.remove(name).unwrap().user.abort();
    }

    fn owners(&self) -> Owners {
        let now = self.clock.monotonic();
        let mut owners = Owners::new();
        for (name, member) in &self.members {
            for (shard, tenure) in member.shards.owned().borrow().iter().filter(|(_, tenure)| tenure.holds(now)) {
                let other = owners.insert(*shard, (name, tenure.generation));
                assert_eq!(other, None, "shard {shard} has two owners, {name} is one");
            }
        }
        owners
    }

    async fn step(&self) {
        self.clock.advance(STEP);
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }

    /// Lets time pass until everybody owns something, nobody is asked to leave and every shard is owned.
    async fn settle(&self) {
        self.settle_without("nobody").await;
    }

    async fn settle_without(&self, idle: &str) {
        for _ in 0..STEPS_MAX {
            self.step().await;
            let asked = |member: &Member| member.shards.owned().borrow().values().any(|t| t.asked == Asked::Leave);
            let owners = self.owners();
            let idlers = self.members.keys().filter(|name| of(&owners, name).next().is_none());
            if owners.len() == COUNT as usize
                && idlers.eq(self.members.keys().filter(|name| **name == idle))
                && !self.members.values().any(asked)
            {
                return;
            }
        }
        panic!("not settled after {STEPS_MAX} steps: {:?}", self.owners());
    }
}

/// A user that has nothing to settle.
async fn settle_when_asked(shards: Shards) {
    let mut owned = shards.owned();
    while owned.changed().await.is_ok() {
        let asked: Vec<(ShardId, u64)> = {
            let board = owned.borrow_and_update();
            board.iter().filter(|(_, t)| t.asked == Asked::Leave).map(|(s, t)| (*s, t.generation)).collect()
        };
        for (shard, generation) in asked {
            shards.release(shard, generation).await;
        }
    }
}

fn of<'a>(owners: &'a Owners, name: &'a str) -> impl Iterator<Item = ShardId> + 'a {
    owners.iter().filter(move |(_, (owner, _))| *owner == name).map(|(shard, _)| *shard)
}

fn moved(before: &Owners, after: &Owners) -> Vec<ShardId> {
    before.iter().filter(|(shard, owner)| after.get(shard) != Some(owner)).map(|(shard, _)| *shard).collect()
}

#[tokio::test]
async fn a_killed_member_moves_only_its_own_shards_to_the_next_generation() {
    let mut house = House::of(&["a", "b", "c"]).await;
    let before = house.owners();
    house.kill("b");
    house.settle().await;
    let after = house.owners();
    assert!(of(&before, "b").count() > 0);
    assert_eq!(moved(&before, &after), of(&before, "b").collect::<Vec<_>>());
    assert!(of(&before, "b").all(|shard| after[&shard].1 == before[&shard].1 + 1));
}

#[tokio::test]
async fn a_frozen_member_owns_nothing_from_before_others_take_over_and_wakes_up_to_that() {
    let house = House::of(&["a", "b", "c"]).await;
    let (before, b) = (house.owners(), &house.members["b"]);
    let kept: Vec<_> = b.shards.owned().borrow().clone().into_iter().collect();
    b.gate.send_replace(false);
    // `owners` sees to it at every step that nobody has what another still believes in.
    house.settle_without("b").await;
    let now = house.clock.monotonic();
    assert!(!kept.is_empty() && kept.iter().all(|(_, tenure)| !tenure.holds(now)), "also in the hands of its user");
    assert_eq!(moved(&before, &house.owners()), of(&before, "b").collect::<Vec<_>>());

    b.gate.send_replace(true);
    for _ in 0..5 {
        house.step().await;
        let is_over = |(shard, old): &(ShardId, Tenure)| {
            b.shards.tenure(*shard).is_none_or(|tenure| tenure.generation > old.generation)
        };
        assert!(kept.iter().all(is_over), "what was lost is not believed in");
    }
    for _ in 0..100 {
        house.step().await;
    }
    house.settle().await;
    let after = house.owners();
    assert_eq!(
        of(&after, "b").collect::<Vec<_>>(),
        of(&before, "b").collect::<Vec<_>>(),
        "it gets back what is its due"
    );
    assert!(of(&after, "b").all(|shard| after[&shard].1 == before[&shard].1 + 2));
}

#[tokio::test]
async fn a_leaving_member_is_relieved_of_everything_before_it_is_gone() {
    let mut house = House::of(&["a", "b", "c"]).await;
    let (before, b) = (house.owners(), house.members["b"].shards.clone());
    let left = tokio::spawn(async move { b.leave().await });
    let mut steps = 0;
    while !left.is_finished() {
        house.step().await;
        house.owners();
        steps += 1;
        assert!(STEP * steps < Terms::default().lease, "it waited for its leases to run out");
    }
    house.kill("b");
    house.settle().await;
    assert_eq!(moved(&before, &house.owners()), of(&before, "b").collect::<Vec<_>>());
    let members = house.store.members("g").await.unwrap();
    assert_eq!(members.iter().map(|row| row.member.0.as_str()).collect::<Vec<_>>(), ["a", "c"]);
}

#[tokio::test]
async fn the_last_to_leave_leaves_everything_free() {
    let house = House::of(&["a"]).await;
    let a = house.members["a"].shards.clone();
    let left = tokio::spawn(async move { a.leave().await });
    for _ in 0..20 {
        house.step().await;
    }
    assert!(left.is_finished(), "nobody is there to wait for");
    assert!(house.store.leases("g").await.unwrap().iter().all(|row| row.owner.is_none()));
}

#[tokio::test]
async fn everybody_knows_who_owns_what_and_where() {
    let house = House::of(&["a", "b", "c"]).await;
    for _ in 0..100 {
        house.step().await;
    }
    for (shard, (owner, generation)) in house.owners() {
        for member in house.members.values() {
            let expected = (MemberId(owner.into()), format!("{owner}.example:7070"));
            assert_eq!(member.shards.owner_of(shard), Some(expected));
            let view = &member.shards.views()[shard.0 as usize];
            assert_eq!((view.shard, view.generation), (shard, generation));
            assert_eq!(view.owner, Some(MemberId(owner.into())));
            let left_ms = view.expires_in_ms.unwrap();
            assert!((5_000..=10_000).contains(&left_ms), "{left_ms}");
        }
    }
}

#[tokio::test]
async fn readers_of_the_board_are_not_woken_by_renewals() {
    let house = House::of(&["a"]).await;
    let mut owned = house.members["a"].shards.owned();
    let before = owned.borrow_and_update().clone();
    for _ in 0..100 {
        house.step().await;
    }
    assert!(!owned.has_changed().unwrap());
    let after = owned.borrow().clone();
    assert!(before.iter().all(|(shard, tenure)| after[shard].until > tenure.until), "and they do happen");
}

#[tokio::test]
async fn a_group_cut_otherwise_and_terms_that_cannot_work_are_refused() {
    let house = House::of(&["a"]).await;
    let parts = |count, terms| ShardsParts { count, terms, ..house.parts("b", house.store.clone()) };
    let other = Shards::start(parts(8, Terms::default())).await.err().unwrap();
    assert!(matches!(other, ShardsError::OtherCount { found: COUNT, asked: 8, .. }), "{other}");
    let none = Shards::start(parts(0, Terms::default())).await.err().unwrap();
    assert!(matches!(none, ShardsError::BadCount { .. }), "{none}");
    let terms = Terms { margin: Duration::ZERO, ..Terms::default() };
    let bad = Shards::start(parts(COUNT, terms)).await.err().unwrap();
    assert!(matches!(bad, ShardsError::BadTerms { .. }), "{bad}");
}
