//! Shards at work: the loop that beats, looks around and runs errands for one member of one group, and the handle through
//! which a capability sees what it owns. All decisions are [`tenancy`](crate::tenancy)'s; this carries them out.
//!
//! Two tasks: the rounds, which talk to the store, and the warden, which takes lapsed tenures off the board even while
//! the store does not answer. Nobody's safety rests on the warden: a [`Tenure`] that ran out says so itself.

mod rounds;

use std::collections::BTreeMap;
use std::sync::Arc;

use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::ShardsError;
use crate::store::Shared;
use crate::tenancy::{Tenancy, Tenure};
use crate::terms::Terms;
use mutirao_core::shard::ShardView;
use mutirao_core::shard::{MemberId, ShardId};
use rounds::Rounds;

/// Shards of one group. Each costs a row, and a hash for each member at each look.
pub const SHARDS_MAX: u32 = 4_096;

pub type Owned = BTreeMap<ShardId, Tenure>;

pub struct ShardsParts {
    pub store: Shared,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    pub group: &'static str,
    /// Into how many shards the group is cut. Never changes once the group exists.
    pub count: u32,
    pub member: MemberId,
    /// Where this process answers, for others to route to.
    pub address: String,
    pub terms: Terms,
}

/// One process's part in owning a group; clones share it. Dropping the last one is like being killed: what was owned
/// waits for its leases to run out. To go in peace, [`leave`](Self::leave).
#[derive(Clone)]
pub struct Shards {
    office: Arc<Office>,
    /// Both tasks; they end with the last handle.
    tasks: Arc<Mutex<JoinSet<()>>>,
}

/// What the handle and the two tasks share.
struct Office {
    store: Shared,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
    group: &'static str,
    count: u32,
    member: MemberId,
    address: String,
    terms: Terms,
    tenancy: Mutex<Tenancy>,
    board: watch::Sender<Owned>,
    hurry: Notify,
    /// Why the store could not be asked, if so.
    trouble: Mutex<Option<String>>,
    /// True when the member has said goodbye and nothing is in its name.
    gone: watch::Sender<bool>,
}

impl Shards {
    /// Joins the group. Fails at once when it cannot work; later troubles of the store are waited out.
    pub async fn start(parts: ShardsParts) -> Result<Shards, ShardsError> {
        let ShardsParts { store, clock, dice, group, count, member, address, terms } = parts;
        terms.check()?;
        if !(1..=SHARDS_MAX).contains(&count) {
            return Err(ShardsError::BadCount { group: group.into(), asked: count, max: SHARDS_MAX });
        }
        let found = store.found(group, count).await?;
        if found != count {
            return Err(ShardsError::OtherCount { group: group.into(), found, asked: count });
        }
        let tenancy = Mutex::new(Tenancy::new(group, count, member.clone(), terms));
        let (board, gone) = (watch::Sender::new(Owned::new()), watch::Sender::new(false));
        let office = Arc::new(Office {
            store,
            clock,
            dice,
            group,
            count,
            member,
            address,
            terms,
            tenancy,
            board,
            hurry: Notify::new(),
            trouble: Mutex::default(),
            gone,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(Rounds::of(office.clone()).run());
        tasks.spawn(guard_the_board(office.clone()));
        Ok(Shards { office, tasks: Arc::new(Mutex::new(tasks)) })
    }

    /// What this process owns. Wakes its readers when a shard comes, goes, changes its generation or is asked to leave;
    /// a renewal only moves `until`, in silence.
    pub fn owned(&self) -> watch::Receiver<Owned> {
        self.office.board.subscribe()
    }

    /// The tenure of a shard, if it holds at this moment.
    pub fn tenure(&self, shard: ShardId) -> Option<Tenure> {
        let tenure = self.office.board.borrow().get(&shard).copied()?;
        tenure.holds(self.office.clock.monotonic()).then_some(tenure)
    }

    /// The shard of a key.
    pub fn shard_of(&self, key: &str) -> ShardId {
        mutirao_core::shard::shard_of(key, self.office.count)
    }

    /// Gives a shard back. To be called when everything done under this generation is settled: from here on its tenure is
    /// off the board. Durable on return if the store answers; if it does not, the rounds see to it. A generation that is
    /// not held any more is no error.
    pub async fn release(&self, shard: ShardId, generation: u64) {
        let office = &self.office;
        let held = office.change(|tenancy| tenancy.let_go(shard, generation));
        if !held {
            return;
        }
        let release = office.store.release(office.group, &office.member, shard, generation);
        let released = office.clock.timeout(office.terms.call_max, release).await;
        if !matches!(released, Ok(Ok(()))) {
            tracing::debug!(group = office.group, %shard, generation, "a shard was not released at once; trying again");
        }
        office.hurry.notify_one();
    }

    /// Who owns a shard, and where it answers. None while it is between two owners.
    pub fn owner_of(&self, shard: ShardId) -> Option<(MemberId, String)> {
        self.office.tenancy.lock().owner_of(shard, self.office.clock.monotonic())
    }

    /// Every shard of the group, as this member sees it.
    pub fn views(&self) -> Vec<ShardView> {
        self.office.tenancy.lock().views(self.office.clock.monotonic())
    }

    /// Why leases cannot be renewed at the moment, if so.
    pub fn trouble(&self) -> Option<String> {
        self.office.trouble.lock().clone()
    }

    pub fn member(&self) -> &MemberId {
        &self.office.member
    }

    /// Says goodbye: asks for every shard to be settled and released, and returns when all are, or when it has taken too
    /// long (then the rest wait for their leases to run out).
    pub async fn leave(&self) {
        let office = &self.office;
        office.change(|tenancy| tenancy.leave(office.clock.monotonic()));
        office.hurry.notify_one();
        let mut gone = office.gone.subscribe();
        let patience = office.terms.settle_max + office.terms.lease;
        let peaceful = office.clock.timeout(patience, async { gone.wait_for(|gone| *gone).await.is_ok() }).await;
        if peaceful.is_err() {
            tracing::warn!(
                group = office.group,
                "left before everything was settled; others take over when leases run out"
            );
        }
        self.tasks.lock().abort_all();
    }
}

impl Office {
    /// Changes what is held, and shows it before anybody else can change it again.
    fn change<T>(&self, f: impl FnOnce(&mut Tenancy) -> T) -> T {
        let mut tenancy = self.tenancy.lock();
        let value = f(&mut tenancy);
        self.show(tenancy);
        value
    }

    fn show(&self, tenancy: MutexGuard<'_, Tenancy>) {
        let told = self.board.send_if_modified(|board| {
            let same = board.len() == tenancy.held().len()
                && board.iter().zip(tenancy.held()).all(|((shard, old), (also, new))| {
                    (shard, old.generation, old.asked) == (also, new.generation, new.asked)
                });
            board.clone_from(tenancy.held());
            !same
        });
        if told {
            metrics::gauge!(crate::meters::OWNED, "group" => self.group).set(tenancy.held().len() as f64);
        }
    }
}

/// Takes tenures off the board as they run out.
async fn guard_the_board(office: Arc<Office>) {
    let mut changes = office.board.subscribe();
    loop {
        let next = changes.borrow_and_update().values().map(|tenure| tenure.until).min();
        match next {
            Some(until) => tokio::select! {
                () = office.clock.sleep_until(until) => {
                    let now = office.clock.monotonic();
                    office.change(|tenancy| tenancy.tick(now));
                }
                changed = changes.changed() => if changed.is_err() { return },
            },
            None => {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}
