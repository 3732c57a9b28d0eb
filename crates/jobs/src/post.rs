//! A post: everything that works on one shard under one tenure. It reads back what the shard holds, opens its door to
//! questions, and then drives the foreman, with dispatch, reports, settler and recall as its hands, until it is relieved.
//! Dropping a post ends all of them at once.

mod aside;
mod drive;

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::Shared as Broker;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice, ShardId};
use mutirao_shards::{Fence, Shards};
use mutirao_store::StoreError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::GROUP;
use crate::desk::Now;
use crate::dispatch::Dispatch;
use crate::doors::{Door, Doors};
use crate::foreman::{Ending, Foreman};
use crate::news::News;
use crate::question::Answer;
use crate::recall::Reader;
use crate::reports::Intake;
use crate::roll::{Roll, RollCall};
use crate::settings::JobsSettings;
use crate::settler::{Settler, Vitals};
use crate::store::Shared as Store;
use crate::waits::Waits;
use crate::{ear, reports};
use drive::{Channels, Drive, Hold};

const ASKS_MAX: usize = 1_024;
const OUTGOING_MAX: usize = 8;
/// Between two tries at reading a shard back.
const RECALL_PAUSE: Duration = Duration::from_millis(500);
/// How long the last acknowledgement may take: a report that is not acknowledged comes again, which does no harm.
const PARTING: Duration = Duration::from_secs(1);

/// What a post is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Work,
    /// Take nothing new, settle what is in hand, and go.
    Leave,
}

/// What all posts of a process share.
pub(crate) struct Bench {
    pub store: Store,
    pub broker: Broker,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    pub settings: JobsSettings,
    pub shards: Shards,
    pub news: News,
    pub doors: Doors,
    pub roll: Option<Arc<dyn Roll>>,
}

pub(crate) async fn run(
    bench: Arc<Bench>,
    shard: ShardId,
    generation: u64,
    mut orders: watch::Receiver<Order>,
) -> Ending {
    let mut reader = Reader::new(bench.store.clone(), shard);
    let foreman = tokio::select! {
        foreman = recalled(&bench, &mut reader, shard, generation) => foreman,
        // Nothing is in hand yet.
        _ = orders.wait_for(|order| *order == Order::Leave) => return Ending::Settled,
    };
    orders.mark_changed();
    let (clock, vitals) = (bench.clock.clone(), Arc::new(Vitals::default()));
    let (ask, asks) = mpsc::channel(ASKS_MAX);
    let (incoming_in, incoming) = mpsc::channel(reports::CREDIT as usize);
    let (outgoing, outgoing_out) = mpsc::channel(OUTGOING_MAX);
    let (back_in, back) = mpsc::channel(OUTGOING_MAX);
    let (settled, settled_out) = watch::channel(reports::Mark::default());
    let (settlements, settlements_out) = mpsc::channel(1);
    let (said_in, said) = mpsc::channel(1);
    let (errands, errands_out) = mpsc::channel(1);
    let (found_in, found) = mpsc::channel(1);
    let settler = Settler {
        store: bench.store.clone(),
        fence: Fence { group: GROUP, shard, generation },
        clock: clock.clone(),
        vitals: vitals.clone(),
        news: bench.news.clone(),
    };
    // All of these end with the drive, which holds the other ends of their channels.
    let mut parts = JoinSet::new();
    parts.spawn(settler.run(settlements_out, said_in));
    parts.spawn(reader.run(errands_out, found_in));
    let waits = Arc::new(Waits::default());
    let intake = Intake {
        store: bench.store.clone(),
        broker: bench.broker.clone(),
        shard,
        clock: clock.clone(),
        waits: waits.clone(),
        roll_call: RollCall::by(bench.roll.clone()),
        vitals: vitals.clone(),
    };
    parts.spawn(reports::run(intake, incoming_in, settled_out));
    let hold = Hold { shards: bench.shards.clone(), shard, generation };
    let ours = Arc::new({
        let hold = hold.clone();
        move || hold.holds()
    });
    let dispatch = Dispatch::new(bench.store.clone(), bench.broker.clone(), clock.clone(), waits, ours);
    parts.spawn(dispatch.run(outgoing_out, back_in));
    // But this one, which listens for as long as it lives.
    let mut ears = JoinSet::new();
    ears.spawn(ear::listen(bench.broker.clone(), shard, clock.clone(), ask.clone()));

    let door = bench.doors.open(shard, Door { generation, asks: ask, vitals: vitals.clone() });
    let drive = Drive { foreman, hold, broker: bench.broker.clone(), clock: clock.clone(), vitals };
    let channels = Channels { orders, asks, incoming, outgoing, back, settled, settlements, said, errands, found };
    let ending = drive.run(channels).await;
    drop(door);
    if ending == Ending::Settled {
        let parted = clock.timeout(PARTING, async { while parts.join_next().await.is_some() {} }).await;
        if parted.is_err() {
            tracing::debug!(%shard, "a post was closed before its last reports were acknowledged");
        }
    }
    ending
}

/// A foreman who knows what the store has; tried until it can be read.
async fn recalled(
    bench: &Bench,
    reader: &mut Reader,
    shard: ShardId,
    generation: u64,
) -> Foreman<oneshot::Sender<Answer>> {
    let mut told = false;
    loop {
        match reader.everything(generation).await {
            Ok(recalled) => {
                let jobs = recalled.jobs.len();
                let now = Now { wall: bench.clock.now(), mono: bench.clock.monotonic() };
                let JobsSettings { lease, parcel_patience, .. } = bench.settings;
                let foreman = Foreman::new(recalled, lease, parcel_patience, bench.dice.u64(), now);
                if jobs > 0 {
                    tracing::info!(%shard, generation, jobs, tasks = foreman.desk().open_tasks(), "jobs recalled");
                }
                return foreman;
            }
            // Every shard meets a lack of rights, and the store says it for all of them.
            Err(error) if told || matches!(error, StoreError::Denied { .. }) => {
                tracing::debug!(%shard, %error, "a shard cannot be read back")
            }
            Err(error) => {
                told = true;
                tracing::warn!(%shard, %error, "a shard cannot be read back; trying again until it can");
            }
        }
        bench.clock.sleep(RECALL_PAUSE).await;
    }
}
