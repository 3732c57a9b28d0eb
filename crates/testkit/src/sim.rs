//! A thousand simulated disasters: managers, workers, store, broker, clients and the network between them in one thread,
//! under one seed, with time that passes only when something happens.
//!
//! What is real: who owns which shard (`shards::tenancy`), what an owner does and in which order (`jobs::foreman`), which
//! task goes next and what every report means (`jobs::desk`), what a worker holds and says (`worker`'s desk), the life of a
//! task, the envelopes. What is a model, with the rules of the real one: the store ([`rows`] keeps the rules of
//! `jobs::store`, leases are the shards' own memory store), the broker ([`queue`]), what carries messages between cores and
//! broker ([`manager`]'s outbox and intake), the rounds for leases, and a worker's loops ([`worker`]).
//!
//! What goes wrong is in [`disasters`] and [`weather`]; what must hold all the same is in [`oracle`]. That the oracle would
//! notice is proved with [`Flaw`]s put into the models.
//!
//! A failure names its seed. `MUTIRAO_SIM_SEED=17 cargo nextest run -p mutirao-testkit sim` replays it, with what happened
//! last; `MUTIRAO_SIM_SEEDS=20000 cargo test -p mutirao-testkit sim` looks harder.
//!
//! What is *not* here: sockets, SQL and processes. Those have tests of their own against the real things.

mod asker;
mod broker;
mod clients;
mod clock;
mod disasters;
mod flaw;
mod ground;
mod link;
mod manager;
mod oracle;
mod queue;
mod rows;
mod store;
mod strays;
mod weather;
mod window;
mod wire;
mod worker;
mod world;

pub use flaw::Flaw;
pub use oracle::Tally;

use ground::Recording;
use weather::Climate;
use world::World;

/// Something that must never be was.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub flaw: Option<Flaw>,
    pub why: String,
    /// What happened last, a line each.
    pub record: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.record {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "seed {}: {}", self.seed, self.why)?;
        write!(f, "to replay it: MUTIRAO_SIM_SEED={} cargo nextest run -p mutirao-testkit sim", self.seed)
    }
}

impl std::error::Error for Failure {}

/// Lives through the history of one seed.
///
/// ```no_run
/// let tally = mutirao_testkit::sim::run(17, None).unwrap();
/// assert!(tally.tasks > 0);
/// ```
pub fn run(seed: u64, flaw: Option<Flaw>) -> Result<Tally, Failure> {
    live(seed, Climate::Stormy, flaw)
}

/// The same world without a disaster.
pub fn run_fair(seed: u64, flaw: Option<Flaw>) -> Result<Tally, Failure> {
    live(seed, Climate::Fair, flaw)
}

/// The same world with nothing worse than a store that takes seconds for every settlement, for minutes.
pub fn run_slow(seed: u64, flaw: Option<Flaw>) -> Result<Tally, Failure> {
    live(seed, Climate::Slow, flaw)
}

fn live(seed: u64, climate: Climate, flaw: Option<Flaw>) -> Result<Tally, Failure> {
    let why = match World::new(seed, climate, flaw, Recording::Off).live() {
        Ok(tally) => return Ok(tally),
        Err(why) => why,
    };
    // The same again, writing down what happens: nobody pays for a record that is not read.
    let mut world = World::new(seed, climate, flaw, Recording::On);
    let again = world.live().err();
    let why = match again {
        Some(again) if again == why => why,
        again => format!("{why}; and when it was replayed: {again:?}"),
    };
    Err(Failure { seed, flaw, why, record: world.ground.record() })
}

/// What happens last in the history of one seed, a line each.
pub fn record(seed: u64) -> Vec<String> {
    let mut world = World::new(seed, Climate::Stormy, None, Recording::On);
    // A failure is part of the record.
    let _ = world.live();
    world.ground.record()
}
