//! What somebody has used of a queue, fading with time: the account behind a fair share. Pure arithmetic.
//!
//! Used is what tasks took, cpus times seconds; after each half-life it counts half. All accounts fade alike, so their order
//! does not change by waiting. Hence nothing is recomputed as time passes: a charge made later is written larger instead
//! ([`Fading::factor`]), and only once in a while are all of them [written smaller](Usage::rescale) again.
//!
//! A task that is out is charged what tasks of the account took before, and what it took in truth when it is back.

use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::quantity::Cpus;

/// Cpu seconds that a task costs at least: handing it out is not free, and many short ones must not count nothing.
const TASK_COST_MIN: f64 = 0.001;
/// What a task is thought to take before any has come back.
const FIRST_GUESS_S: f64 = 1.0;
/// Cpu seconds that whoever comes is taken to have used.
pub const ENTRANCE_CPU_S: f64 = 1.0;
/// How much the last task says about the next.
const NEWS_WEIGHT: f64 = 0.1;
/// Half-lives after which everything is written smaller again; 2^64 is well inside a float.
const HALF_LIVES_MAX: f64 = 64.0;

/// How time makes what was used count less.
#[derive(Clone, Copy, Debug)]
pub struct Fading {
    half_life: Duration,
    since: Mono,
}

impl Fading {
    pub fn new(half_life: Duration, since: Mono) -> Self {
        Self { half_life: half_life.max(Duration::from_millis(1)), since }
    }

    pub fn half_life(&self) -> Duration {
        self.half_life
    }

    fn half_lives(&self, now: Mono) -> f64 {
        now.since(self.since).as_secs_f64() / self.half_life.as_secs_f64()
    }

    /// How much larger than at the beginning something used now is written.
    pub fn factor(&self, now: Mono) -> f64 {
        self.half_lives(now).exp2()
    }

    pub fn is_worn(&self, now: Mono) -> bool {
        self.half_lives(now) > HALF_LIVES_MAX
    }
}

/// What a task took, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spent {
    Time(Duration),
    /// Its worker vanished with it.
    Unknown,
    /// It came back without having run.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub struct Usage {
    used: f64,
    /// Charged for tasks that are out.
    pending: f64,
    out: u32,
    mean_s: f64,
}

impl Default for Usage {
    fn default() -> Self {
        Self { used: 0.0, pending: 0.0, out: 0, mean_s: FIRST_GUESS_S }
    }
}

impl Usage {
    pub fn handed_out(&mut self, tasks: u32, cpus: Cpus, factor: f64) {
        self.pending += f64::from(tasks) * cost(cpus, self.mean_s) * factor;
        self.out += tasks;
    }

    pub fn came_back(&mut self, cpus: Cpus, spent: Spent, factor: f64) {
        // Those who were handed out under another policy were never charged.
        let charged = if self.out > 0 { self.pending / f64::from(self.out) } else { 0.0 };
        self.out = self.out.saturating_sub(1);
        self.pending = if self.out == 0 { 0.0 } else { self.pending - charged };
        match spent {
            Spent::Nothing => {}
            Spent::Unknown => self.used += charged,
            Spent::Time(took) => {
                let took = took.as_secs_f64();
                self.used += cost(cpus, took) * factor;
                self.mean_s += (took - self.mean_s) * NEWS_WEIGHT;
            }
        }
    }

    /// Somebody comes who had nothing in line. It cannot have used nothing: as this is written larger the later it is, those
    /// who come later go, in the end, after those who came before, however much the latter had used.
    pub fn came_in(&mut self, weight: u32, factor: f64) {
        self.used = self.used.max(ENTRANCE_CPU_S * f64::from(weight.max(1)) * factor - self.pending);
    }

    pub fn is_out(&self) -> bool {
        self.out > 0
    }

    /// The place in line of whoever gets `weight` shares: the less, the earlier. Floats that are not negative sort as
    /// their bits do.
    pub fn place(&self, weight: u32) -> u64 {
        ((self.used + self.pending) / f64::from(weight.max(1))).max(0.0).to_bits()
    }

    /// The same, written with another factor.
    pub fn rescale(&mut self, by: f64) {
        self.used *= by;
        self.pending *= by;
    }
}

fn cost(cpus: Cpus, seconds: f64) -> f64 {
    (f64::from(cpus.milli) / 1_000.0 * seconds).max(TASK_COST_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Mono {
        Mono(Duration::from_secs(s))
    }

    #[test]
    fn after_a_half_life_what_was_used_counts_half() {
        let fading = Fading::new(Duration::from_secs(10), at(0));
        let (mut early, mut late) = (Usage::default(), Usage::default());
        early.came_back(Cpus::ONE, Spent::Time(Duration::from_secs(8)), fading.factor(at(5)));
        late.came_back(Cpus::ONE, Spent::Time(Duration::from_secs(4)), fading.factor(at(15)));
        assert_eq!(early.place(1), late.place(1));
        assert!(early.place(2) < late.place(1), "twice the shares count half as much");
    }

    #[test]
    fn a_guess_is_made_good_when_the_task_is_back() {
        let mut usage = Usage::default();
        usage.handed_out(3, Cpus { milli: 2_000 }, 1.0);
        assert_eq!(usage.place(1), 6f64.to_bits());
        usage.came_back(Cpus { milli: 2_000 }, Spent::Nothing, 1.0);
        assert_eq!(usage.place(1), 4f64.to_bits());
        usage.came_back(Cpus { milli: 2_000 }, Spent::Unknown, 1.0);
        usage.came_back(Cpus { milli: 2_000 }, Spent::Time(Duration::from_secs(5)), 1.0);
        assert_eq!(usage.place(1), 12f64.to_bits());
        assert!(!usage.is_out());
    }

    #[test]
    fn whoever_comes_later_has_used_more_and_what_was_used_is_not_made_less() {
        let fading = Fading::new(Duration::from_secs(10), at(0));
        let come = |used_s, s, weight| {
            let mut usage = Usage::default();
            usage.came_back(Cpus::ONE, Spent::Time(Duration::from_secs(used_s)), fading.factor(at(0)));
            usage.came_in(weight, fading.factor(at(s)));
            usage.place(weight)
        };
        assert!(come(0, 0, 1) < come(0, 1, 1));
        assert_eq!(come(0, 5, 1), come(0, 5, 7), "it is the place that is given, whatever the weight");
        assert_eq!(come(100, 5, 1), 100f64.to_bits());
        assert!(come(100, 67, 1) > 100f64.to_bits(), "after seven half-lives a hundred is less than one");
    }

    #[test]
    fn a_task_that_takes_no_time_still_counts() {
        let mut usage = Usage::default();
        usage.came_back(Cpus { milli: 0 }, Spent::Time(Duration::ZERO), 1.0);
        assert!(usage.place(1) > Usage::default().place(1));
    }
}
