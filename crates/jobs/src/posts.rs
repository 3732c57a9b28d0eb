//! The posts of this process: one for each shard that it owns, started, relieved and dropped as ownership changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mutirao_core::ShardId;
use mutirao_shards::{Asked, Tenure};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::foreman::Ending;
use crate::meters::{Depths, OPEN, WORKERS};
use crate::post::{self, Bench, Order};

const GAUGE: Duration = Duration::from_secs(5);

struct Running {
    generation: u64,
    order: watch::Sender<Order>,
    task: AbortHandle,
}

pub(crate) struct Posts {
    bench: Arc<Bench>,
    running: BTreeMap<ShardId, Running>,
    tasks: JoinSet<(ShardId, u64, Ending)>,
    /// The last generation of each shard whose post has ended: it is not begun again.
    ended: BTreeMap<ShardId, u64>,
    depths: Depths,
}

impl Posts {
    pub fn new(bench: Arc<Bench>) -> Self {
        Self {
            bench,
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            ended: BTreeMap::new(),
            depths: Depths::default(),
        }
    }

    /// Follows what is owned, for as long as anything can be.
    pub async fn run(mut self) {
        let mut owned = self.bench.shards.owned();
        let clock = self.bench.clock.clone();
        loop {
            let board = owned.borrow_and_update().clone();
            self.follow(&board);
            tokio::select! {
                changed = owned.changed() => if changed.is_err() { return },
                Some(ended) = self.tasks.join_next_with_id() => match ended {
                    Ok((_, (shard, generation, ending))) => self.relieve(shard, generation, ending),
                    Err(broke) => self.mend(broke.id(), broke.is_panic()),
                },
                () = clock.sleep(GAUGE) => self.gauge(),
            }
        }
    }

    fn follow(&mut self, board: &BTreeMap<ShardId, Tenure>) {
        // Whoever is not the owner any more stops at once.
        self.running.retain(|shard, post| {
            let mine = board.get(shard).is_some_and(|tenure| tenure.generation == post.generation);
            if !mine {
                post.task.abort();
            }
            mine
        });
        for (shard, tenure) in board {
            if self.ended.get(shard) == Some(&tenure.generation) {
                continue;
            }
            let order = match tenure.asked {
                Asked::Stay => Order::Work,
                Asked::Leave => Order::Leave,
            };
            let post = self.running.entry(*shard).or_insert_with(|| {
                let (order, orders) = watch::channel(Order::Work);
                let (bench, shard, generation) = (self.bench.clone(), *shard, tenure.generation);
                let post = async move { (shard, generation, post::run(bench, shard, generation, orders).await) };
                Running { generation, order, task: self.tasks.spawn(post) }
            });
            // Orders only grow: whoever has begun to leave goes, and comes back under another generation.
            if order == Order::Leave {
                post.order.send_if_modified(|before| std::mem::replace(before, order) != order);
            }
        }
    }

    fn relieve(&mut self, shard: ShardId, generation: u64, ending: Ending) {
        if self.running.get(&shard).is_some_and(|post| post.generation == generation) {
            self.running.remove(&shard);
        }
        self.ended.insert(shard, generation);
        match ending {
            Ending::Settled => self.release(shard, generation),
            Ending::Fenced => tracing::warn!(%shard, generation, "a shard has another owner; nothing more is written"),
        }
    }

    /// A post that broke gives its shard back, so that it begins anew from what is written.
    fn mend(&mut self, task: tokio::task::Id, broke: bool) {
        let Some((shard, generation)) =
            self.running.iter().find(|(_, post)| post.task.id() == task).map(|(shard, post)| (*shard, post.generation))
        else {
            return;
        };
        if broke {
            tracing::error!(%shard, generation, "a post broke; its shard is taken up anew");
        }
        self.running.remove(&shard);
        self.ended.insert(shard, generation);
        self.release(shard, generation);
    }

    fn release(&self, shard: ShardId, generation: u64) {
        let shards = self.bench.shards.clone();
        tokio::spawn(async move { shards.release(shard, generation).await });
    }

    /// Of what is owned here: each manager tells its own, and they add up.
    fn gauge(&mut self) {
        let (mut tasks, mut workers, mut depths) = (0, 0, BTreeMap::new());
        for (_, door) in self.bench.doors.all() {
            tasks += door.vitals.open_tasks.load(Ordering::Relaxed);
            workers += door.vitals.workers.load(Ordering::Relaxed);
            depths.extend(door.vitals.depths.lock().clone());
        }
        metrics::gauge!(OPEN).set(tasks as f64);
        metrics::gauge!(WORKERS).set(workers as f64);
        self.depths.show(depths.iter().map(|(queue, tasks)| (queue, *tasks)));
    }
}
