//! Many worlds of `mutirao-movers`, on all cores, and what they have in common.

use std::sync::atomic::{AtomicUsize, Ordering};

use mutirao_movers::simulation::{self, Outcome, Setup};
use mutirao_movers::{Settings, Strategy};
use parking_lot::Mutex;

/// One strategy in one world, and how to make it for a seed.
pub struct Case {
    pub name: String,
    pub settings: Settings,
    pub setup: Box<dyn Fn(u64) -> Setup + Send + Sync>,
}

/// Of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    FastMean,
    FastP99,
    SlowMean,
    SlowP99,
    Moves,
    Processed,
    /// Events that were said and not processed, for each million.
    Left,
    Asked,
}

/// What is kept of all runs of a case.
#[derive(Default)]
pub struct Runs {
    outcomes: Vec<Kept>,
    /// The sum of their courses.
    course: Vec<(f64, f64)>,
}

struct Kept {
    fast: (f64, f64),
    slow: (f64, f64),
    moves: f64,
    processed: f64,
    said: f64,
    asked: f64,
}

/// The mean, and half the interval in which the true one is with 95 % confidence.
#[derive(Clone, Copy, Debug)]
pub struct Mean {
    pub mean: f64,
    pub off: f64,
}

pub fn run(cases: &[Case], runs: u64) -> Vec<Runs> {
    let found: Vec<Mutex<Runs>> = cases.iter().map(|_| Mutex::default()).collect();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let (seed, case) = ((job / cases.len().max(1)) as u64, job % cases.len().max(1));
                    if seed >= runs || cases.is_empty() {
                        return;
                    }
                    let mut settings = cases[case].settings.clone();
                    if let Strategy::Random { seed: coin } = &mut settings.strategy {
                        *coin = seed;
                    }
                    let outcome = simulation::run(&(cases[case].setup)(seed), settings, seed);
                    found[case].lock().add(&outcome);
                }
            });
        }
    });
    found.into_iter().map(Mutex::into_inner).collect()
}

impl Runs {
    fn add(&mut self, outcome: &Outcome) {
        self.outcomes.push(Kept {
            fast: (outcome.fast.mean_ms(), outcome.fast.percentile_ms(0.99)),
            slow: (outcome.slow.mean_ms(), outcome.slow.percentile_ms(0.99)),
            moves: f64::from(outcome.moves),
            processed: outcome.processed as f64,
            said: outcome.said as f64,
            asked: f64::from(outcome.asked),
        });
        self.course.resize(self.course.len().max(outcome.course.len()), (0.0, 0.0));
        for (sum, second) in self.course.iter_mut().zip(&outcome.course) {
            *sum = (sum.0 + second.0, sum.1 + second.1);
        }
    }

    pub fn mean(&self, figure: Figure) -> Mean {
        let of = |kept: &Kept| match figure {
            Figure::FastMean => kept.fast.0,
            Figure::FastP99 => kept.fast.1,
            Figure::SlowMean => kept.slow.0,
            Figure::SlowP99 => kept.slow.1,
            Figure::Moves => kept.moves,
            Figure::Processed => kept.processed,
            Figure::Left => (kept.said - kept.processed) / kept.said.max(1.0) * 1e6,
            Figure::Asked => kept.asked,
        };
        let figures: Vec<f64> = self.outcomes.iter().map(of).collect();
        let n = figures.len().max(1) as f64;
        let mean = figures.iter().sum::<f64>() / n;
        let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
        let off = if n > 1.0 { student(n - 1.0) * (squares / (n - 1.0) / n).sqrt() } else { 0.0 };
        Mean { mean, off }
    }

    /// Seconds, and the mean latency of first or of last copies then.
    pub fn course(&self, first: bool) -> Vec<(f64, f64)> {
        let runs = self.outcomes.len().max(1) as f64;
        let of = |(fast, slow): &(f64, f64)| if first { *fast } else { *slow };
        self.course.iter().enumerate().map(|(second, sum)| (second as f64, of(sum) / runs)).collect()
    }
}

/// The 97.5 % quantile of Student's distribution, right to within a hundredth from three degrees of freedom on.
fn student(freedom: f64) -> f64 {
    match freedom {
        ..1.5 => 12.706,
        ..2.5 => 4.303,
        _ => 1.96 + 2.372 / freedom + 2.822 / freedom.powi(2) + 2.556 / freedom.powi(3) + 1.6 / freedom.powi(4),
    }
}
