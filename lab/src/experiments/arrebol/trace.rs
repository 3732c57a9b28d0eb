//! What comes in a day: jobs of several queues, more by day than by night, many small ones and now and then a very large one, and
//! single tasks all the time.
//! By seed; the same for every policy.

use mutirao_core::Dice;

/// Queues differ in what their workers need and in how long their tasks take.
pub struct Shape {
    pub name: &'static str,
    pub cpu_milli: u32,
    pub memory_gib: u64,
    /// The median of what a task takes, and by how much durations spread (of the logarithm).
    pub task_s: f64,
    pub spread: f64,
    /// Jobs an hour, in the mean of the day.
    pub jobs: f64,
}

pub const SHAPES: [Shape; 5] = [
    Shape { name: "render", cpu_milli: 1_000, memory_gib: 2, task_s: 20.0, spread: 0.6, jobs: 10.0 },
    Shape { name: "align", cpu_milli: 2_000, memory_gib: 4, task_s: 45.0, spread: 0.8, jobs: 5.0 },
    Shape { name: "sweep", cpu_milli: 1_000, memory_gib: 3, task_s: 90.0, spread: 0.5, jobs: 5.0 },
    Shape { name: "fold", cpu_milli: 1_000, memory_gib: 6, task_s: 300.0, spread: 0.9, jobs: 1.5 },
    Shape { name: "index", cpu_milli: 500, memory_gib: 1, task_s: 8.0, spread: 0.4, jobs: 20.0 },
];

/// Tasks of a job: from so few to so many, by a power law, so that a few jobs have most of the tasks.
const JOB_MIN: f64 = 4.0;
const JOB_MAX: f64 = 3_000.0;
const JOB_POWER: f64 = 0.9;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    pub at_ms: u64,
    pub shape: usize,
    pub takes_ms: u64,
}

/// Single tasks, for each job.
const SINGLES: f64 = 12.0;

/// A day cut down to so many hours, in the order in which tasks come.
pub fn day(seed: u64, hours: f64, scale: f64) -> Vec<Arrival> {
    let dice = Dice::seeded(seed);
    let mut all = Vec::new();
    for (shape, of) in SHAPES.iter().enumerate() {
        // The busiest hour has 1.7 times the mean, the quietest 0.3: thinned from the busiest.
        let (most, mut at_h) = (of.jobs * (1.0 + SINGLES) * 1.7, 0.0);
        loop {
            at_h += -(1.0 - dice.unit()).ln() / most;
            if at_h >= hours {
                break;
            }
            let by_day = 1.0 + 0.7 * (std::f64::consts::TAU * (at_h / hours - 0.3)).sin();
            if dice.unit() * 1.7 > by_day {
                continue;
            }
            let at_ms = (at_h * 3_600_000.0) as u64;
            let single = dice.unit() * (1.0 + SINGLES) > 1.0;
            let tasks = if single { 1 } else { (job(&dice) * scale).ceil() as usize };
            all.extend((0..tasks).map(|_| Arrival { at_ms, shape, takes_ms: takes(&dice, of) }));
        }
    }
    all.sort_by_key(|arrival| arrival.at_ms);
    all
}

/// The same number each second of one queue, evenly.
pub fn steady(rate: f64, takes_s: f64, for_s: u64) -> Vec<Arrival> {
    let count = (rate * for_s as f64) as u64;
    let at = |n: u64| (n as f64 / rate * 1_000.0) as u64;
    (0..count).map(|n| Arrival { at_ms: at(n), shape: 0, takes_ms: (takes_s * 1_000.0) as u64 }).collect()
}

fn job(dice: &Dice) -> f64 {
    let (low, high) = (JOB_MIN.powf(-JOB_POWER), JOB_MAX.powf(-JOB_POWER));
    (low - dice.unit() * (low - high)).powf(-1.0 / JOB_POWER)
}

/// Lognormal.
fn takes(dice: &Dice, shape: &Shape) -> u64 {
    let normal = (-2.0 * (1.0 - dice.unit()).ln()).sqrt() * (std::f64::consts::TAU * dice.unit()).cos();
    ((shape.task_s * (shape.spread * normal).exp()).clamp(0.5, 14_400.0) * 1_000.0) as u64
}
