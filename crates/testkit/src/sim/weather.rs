//! What a seed decides before anything happens: how large this world is, what kind of broker and store it has, and which
//! disasters strike it, how hard.

use std::time::Duration;

use mutirao_core::Dice;
use mutirao_core::id::QueueName;
use mutirao_jobs::foreman::Budget;
use mutirao_shards::{ShardId, Terms, shard_of};

use super::ground::{MS, SECOND};

pub const SHARDS: u32 = 4;
/// Workers are silent for this long before they lose what they hold.
pub const LEASE: Duration = Duration::from_secs(10);
pub const PATIENCE: Duration = Duration::from_secs(15);
/// Rates of clocks that the margin of a fifth allows for.
pub const RATES: (f64, f64) = (0.92, 1.08);

/// How long a slow store is slow.
const SLOW_US: u64 = 150 * SECOND;
const SLOW_ITEMS_MAX: usize = 12;

/// What a crash of the broker leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Everything that was confirmed.
    Confirmed,
    Nothing,
}

/// Where in its queue a message goes that a dead connection had not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requeueing {
    #[default]
    ToItsPlace,
    /// As a queue with a delivery limit may do: what was said later is then heard first.
    ToTheEnd,
}

/// Whether a look into a queue counts what is with a consumer of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    Everything,
    WhatLies,
}

/// Whether disasters strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Climate {
    Stormy,
    Fair,
    /// Nothing breaks, but every settlement takes seconds, for minutes.
    Slow,
}

#[derive(Clone, Debug)]
pub struct Weather {
    pub climate: Climate,
    pub managers: u64,
    pub workers_per_queue: u64,
    pub queues: Vec<QueueName>,
    pub jobs: u64,
    pub chaos_us: u64,
    pub terms: Terms,
    pub keeping: Keeping,
    pub counting: Counting,
    pub requeueing: Requeueing,
    /// What may gather at an owner; often so little that it is soon too much.
    pub budget: Budget,
    pub slow_letters_per_mille: u64,
    pub slow_letter_us: u64,
    pub lost_calls_per_mille: u64,
    pub failed_commits_per_mille: u64,
    pub unsaid_commits_per_mille: u64,
    pub doubled_per_mille: u64,
    pub lost_words_per_mille: u64,
    /// Between two disasters, at most.
    pub disaster_every_us: u64,
    /// How likely each kind is, in the order of [`Disaster`](super::disasters::Disaster).
    pub disasters: Vec<u64>,
}

impl Weather {
    pub fn of(dice: &Dice) -> Self {
        let between = |from: u64, to: u64| from + dice.below(to - from);
        // Often nothing of a kind, so that other kinds are seen undisturbed.
        let maybe = |most: u64| if dice.below(2) == 0 { 0 } else { dice.below(most) };
        let queues = ["default", "big", "slow"].iter().take(between(1, 4) as usize);
        let queues = queues.map(|name| name.parse().unwrap_or_default()).collect();
        Self {
            climate: Climate::Stormy,
            managers: between(1, 4),
            workers_per_queue: between(1, 4),
            queues,
            jobs: between(3, 9),
            chaos_us: between(20, 90) * SECOND,
            terms: Terms::of(Duration::from_secs(between(3, 11))),
            keeping: if dice.below(3) == 0 { Keeping::Nothing } else { Keeping::Confirmed },
            counting: if dice.below(2) == 0 { Counting::Everything } else { Counting::WhatLies },
            requeueing: if dice.below(2) == 0 { Requeueing::ToTheEnd } else { Requeueing::ToItsPlace },
            budget: match dice.below(2) {
                0 => Budget { items_max: between(3, 30) as usize, ..Budget::default() },
                _ => Budget::default(),
            },
            slow_letters_per_mille: maybe(60),
            // Now and then longer than a lease: what was sent under it arrives when it is over.
            slow_letter_us: if dice.below(4) == 0 { 14 * SECOND } else { between(10 * MS, 4 * SECOND) },
            lost_calls_per_mille: maybe(30),
            failed_commits_per_mille: maybe(60),
            unsaid_commits_per_mille: maybe(60),
            doubled_per_mille: maybe(50),
            lost_words_per_mille: maybe(300),
            disaster_every_us: between(SECOND, 8 * SECOND),
            disasters: (0..super::disasters::KINDS).map(|_| maybe(4)).collect(),
        }
    }

    /// The same world, and nothing goes wrong in it.
    pub fn fair(self) -> Self {
        Self {
            climate: Climate::Fair,
            slow_letters_per_mille: 0,
            lost_calls_per_mille: 0,
            failed_commits_per_mille: 0,
            unsaid_commits_per_mille: 0,
            doubled_per_mille: 0,
            lost_words_per_mille: 0,
            disasters: Vec::new(),
            ..self
        }
    }

    /// The same world with a store that takes its time, and little room at its owners.
    pub fn slow(self) -> Self {
        let budget = Budget { items_max: self.budget.items_max.min(SLOW_ITEMS_MAX), ..self.budget };
        Self { climate: Climate::Slow, chaos_us: SLOW_US, budget, ..self.fair() }
    }

    /// A clock's rate, often one of the extremes: that is where a margin that is too small shows.
    pub fn rate(dice: &Dice) -> f64 {
        match dice.below(4) {
            0 => RATES.0,
            1 => RATES.1,
            _ => RATES.0 + (RATES.1 - RATES.0) * dice.unit(),
        }
    }
}

pub fn shard_of_queue(queue: &QueueName) -> ShardId {
    shard_of(queue.as_str(), SHARDS)
}
