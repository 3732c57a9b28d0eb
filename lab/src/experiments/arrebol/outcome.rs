//! What came of one run, and of several together.

/// One run.
#[derive(Default)]
pub struct Outcome {
    /// How long each task waited before it first began.
    pub waits_ms: Vec<u32>,
    pub ended: u64,
    pub lost: u64,
    pub node_ms: u64,
    pub cost_micros: f64,
    pub node_starts: u64,
    pub node_stops: u64,
    pub worker_starts: u64,
    pub worker_stops: u64,
    /// Tasks that were begun again, and for how long they had run in vain.
    pub again: u64,
    pub thrown_away_ms: u64,
    /// Machines that their owner took back.
    pub taken_back: u64,
    /// Workers that were ended while they worked.
    pub killed: u64,
    /// Machines at most.
    pub nodes_most: u32,
    /// Each minute: workers wanted, tasks that wait, machines.
    pub course: Vec<(f64, u32, u32, u32)>,
    /// How many were wanted, each time that it changed.
    pub wanted: Vec<(u64, u32)>,
}

impl Outcome {
    pub fn look(&mut self, second: u64, wanted: u32, waiting: u32, nodes: u32) {
        self.nodes_most = self.nodes_most.max(nodes);
        if self.wanted.last().is_none_or(|(_, last)| *last != wanted) {
            self.wanted.push((second, wanted));
        }
        if self.course.last().is_none_or(|(at, ..)| second as f64 - at >= 60.0) {
            self.course.push((second as f64, wanted, waiting, nodes));
        }
    }

    /// How often fewer were wanted and then more again, from then until then.
    pub fn turns(&self, from_s: u64, to_s: u64) -> usize {
        let (mut fell, mut turns) = (false, 0);
        for pair in self.wanted.windows(2).filter(|pair| pair[1].0 > from_s && pair[1].0 <= to_s) {
            if pair[1].1 < pair[0].1 {
                fell = true;
            } else if fell {
                (fell, turns) = (false, turns + 1);
            }
        }
        turns
    }

    pub fn wait_s(&self, share: f64) -> f64 {
        let mut waits = self.waits_ms.clone();
        waits.sort_unstable();
        let at = (waits.len().saturating_sub(1) as f64 * share) as usize;
        waits.get(at).map_or(0.0, |wait| f64::from(*wait) / 1_000.0)
    }

    pub fn node_hours(&self) -> f64 {
        self.node_ms as f64 / 3_600_000.0
    }

    pub fn cost(&self) -> f64 {
        self.cost_micros / 1e6
    }
}

/// The mean of some runs, and half the interval in which the true one is with 95 % confidence.
#[derive(Clone, Copy, Debug)]
pub struct Mean {
    pub mean: f64,
    pub off: f64,
}

impl Mean {
    pub fn of(figures: &[f64]) -> Self {
        let n = figures.len().max(1) as f64;
        let mean = figures.iter().sum::<f64>() / n;
        let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
        let off = if n > 1.0 { student(n - 1.0) * (squares / (n - 1.0) / n).sqrt() } else { 0.0 };
        Self { mean, off }
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
