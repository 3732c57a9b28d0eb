//! Three real processes on one store: one killed, one stopped by a signal past its leases and woken again. Each says
//! every act, with the moment at which it asked whether it might; the moments are of one machine's clock, so they compare.

#![allow(clippy::disallowed_methods, reason = "waits for real processes in real time")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_shards::store::{self, postgres, sqlite};
use mutirao_shards::{Asked, MemberId, Shards, ShardsParts, Terms};
use mutirao_store::{Database, Postgres, Sqlite};
use mutirao_testkit::wait;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::postgres as postgres_corner;

const DATABASE: &str = "SHARDS_TEST_DATABASE";
const COUNT: u32 = 16;
/// Long for a test, so that a busy machine does not look like a frozen process.
const LEASE: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// One thing done under a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Act {
    shard: u32,
    generation: u64,
    at_us: u128,
    by: usize,
}

#[derive(Default)]
struct Acts(Mutex<Vec<Act>>);

impl Acts {
    /// Who acted on each shard within the last moment.
    fn owners(&self) -> BTreeMap<u32, (usize, u64)> {
        let since = SystemClock.monotonic().0.as_micros() - Duration::from_millis(500).as_micros();
        let acts = self.0.lock();
        acts.iter().filter(|act| act.at_us >= since).map(|act| (act.shard, (act.by, act.generation))).collect()
    }

    fn all_owned_by(&self, members: &[usize]) -> bool {
        let owners = self.owners();
        let working: BTreeSet<usize> = owners.values().map(|(by, _)| *by).collect();
        owners.len() == COUNT as usize && working.into_iter().eq(members.iter().copied())
    }

    /// All acts of one generation come before all of the next, and each generation has one owner.
    fn check(&self) {
        let mut acts = self.0.lock().clone();
        acts.sort_unstable_by_key(|act| (act.shard, act.at_us));
        for pair in acts.windows(2).filter(|pair| pair[0].shard == pair[1].shard) {
            assert!(pair[0].generation <= pair[1].generation, "two owners at once: {pair:?}");
            assert!(pair[0].generation != pair[1].generation || pair[0].by == pair[1].by, "{pair:?}");
        }
    }
}

struct Other(Child);

impl Other {
    fn start(database: &str, by: usize, acts: &Arc<Acts>) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::acts_on_what_it_owns", "--ignored", "--nocapture"])
            .env(DATABASE, database)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, acts) = (BufReader::new(child.stdout.take().unwrap()).lines(), acts.clone());
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // A kill may cut the last line short: without its full stop it does not count.
                let Some(act) = line.split_once("act ").and_then(|(_, act)| act.strip_suffix('.')) else { continue };
                let numbers: Vec<u128> = act.split(' ').map(|n| n.parse().unwrap()).collect();
                let [shard, generation, at_us] = numbers[..] else { panic!("{line}") };
                acts.0.lock().push(Act { shard: shard as u32, generation: generation as u64, at_us, by });
            }
        });
        Other(child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kill_one_and_freeze_another(database: &str) {
    let acts = Arc::new(Acts::default());
    let others: Vec<Other> = (0..3).map(|by| Other::start(database, by, &acts)).collect();
    assert!(wait::holds_within(SOON, || acts.all_owned_by(&[0, 1, 2])), "{:?}", acts.owners());

    // What was handed over while they started is over by now.
    std::thread::sleep(LEASE / 3);
    let before = acts.owners();
    others[0].signal(Signal::KILL);
    assert!(wait::holds_within(SOON, || acts.all_owned_by(&[1, 2])), "{:?}", acts.owners());
    let after = acts.owners();
    for (shard, (by, generation)) in &before {
        if *by == 0 {
            assert!(after[shard].1 > *generation, "shard {shard} was taken over in its old generation");
        } else {
            assert_eq!(after[shard], (*by, *generation), "shard {shard} was none of the dead one's");
        }
    }

    others[1].signal(Signal::STOP);
    assert!(wait::holds_within(SOON, || acts.all_owned_by(&[2])), "{:?}", acts.owners());
    others[1].signal(Signal::CONT);
    assert!(wait::holds_within(SOON, || acts.all_owned_by(&[1, 2])), "{:?}", acts.owners());
    acts.check();
}

#[test]
fn on_sqlite_a_kill_moves_only_its_shards_and_a_freeze_makes_no_two_owners() {
    let folder = tempfile::tempdir().unwrap();
    kill_one_and_freeze_another(folder.path().join("store.db").to_str().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_kill_moves_only_its_shards_and_a_freeze_makes_no_two_owners() {
    let Some((schema, _db)) = postgres_corner().await else { return };
    kill_one_and_freeze_another(&schema.url());
    schema.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of other tests"]
async fn acts_on_what_it_owns() {
    let Ok(database) = std::env::var(DATABASE) else { return };
    let database = if database.starts_with("postgres") {
        Database::from(Postgres::open(&database, postgres::MIGRATIONS).await.unwrap())
    } else {
        Database::from(Sqlite::open(database.as_ref(), sqlite::MIGRATIONS).unwrap())
    };
    let shards = Shards::start(ShardsParts {
        store: store::open(&database, None).await.unwrap(),
        clock: SystemClock::shared(),
        dice: Arc::new(Dice::from_os()),
        group: "g",
        count: COUNT,
        member: MemberId::mint("child"),
        address: "nowhere".into(),
        terms: Terms::of(LEASE),
    });
    let shards = shards.await.unwrap();
    loop {
        let board = shards.owned().borrow().clone();
        for (shard, tenure) in board {
            if tenure.asked == Asked::Leave {
                shards.release(shard, tenure.generation).await;
                continue;
            }
            let now = SystemClock.monotonic();
            if tenure.holds(now) {
                println!("act {shard} {} {}.", tenure.generation, now.0.as_micros());
            }
        }
        SystemClock.sleep(PAUSE).await;
    }
}
