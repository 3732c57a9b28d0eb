//! The count that cpu or memory of the workers asks for, with Kubernetes' caution about workers of which nothing is known:
//! counted as idle when it would go up, as fully used when it would go down, so that ignorance only ever damps.

use std::time::Duration;

use crate::measure::{Sample, Stage, Use};

/// What each worker should use.
#[derive(Clone, Copy, Debug)]
pub enum Aim {
    /// Of what it asked for.
    Percent(f64),
    /// Millicores, or bytes.
    Each(f64),
}

/// How far from 1 a ratio may be without any change.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    pub up: f64,
    pub down: f64,
}

impl Tolerance {
    pub fn covers(&self, ratio: f64) -> bool {
        (1.0 - self.down) <= ratio && ratio <= (1.0 + self.up)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    pub count: u32,
    /// Percent, or the mean of what each uses, over those that are known.
    pub figure: f64,
    pub known: usize,
    /// Not ready, or without a figure.
    pub unknown: usize,
}

struct Known {
    used: u64,
    asked: u64,
}

/// `settle` is how long after its report a worker's figure is not believed.
pub fn usage(
    samples: &[Sample],
    of: impl Fn(&Sample) -> Use,
    aim: Aim,
    current: u32,
    tolerance: Tolerance,
    settle: Duration,
) -> Result<Usage, String> {
    let (mut known, mut unready, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for sample in samples {
        let Use { asked, used } = of(sample);
        match (sample.stage, used) {
            (Stage::Draining, _) => {}
            (Stage::Creating, _) => unready.push(asked),
            (Stage::Running(_), None) => missing.push(asked),
            (Stage::Running(since), Some(_)) if since.0 < settle => unready.push(asked),
            (Stage::Running(_), Some(used)) => known.push(Known { used, asked }),
        }
    }
    if known.is_empty() {
        return Err("no worker that is ready has a figure".into());
    }
    let figure = aim.figure(&known)?;
    let ratio = figure / aim.value();
    let answer = Usage { count: current, figure, known: known.len(), unknown: unready.len() + missing.len() };
    let unready_matter = !unready.is_empty() && ratio > 1.0;
    if !unready_matter && missing.is_empty() {
        let count = if tolerance.covers(ratio) { current } else { scaled(ratio, known.len()) };
        return Ok(Usage { count, ..answer });
    }
    let mut all = known;
    if ratio < 1.0 {
        all.extend(missing.iter().map(|asked| Known { used: aim.full(*asked), asked: *asked }));
    } else if ratio > 1.0 {
        all.extend(missing.iter().chain(&unready).map(|asked| Known { used: 0, asked: *asked }));
    }
    let damped = aim.figure(&all)? / aim.value();
    let count = scaled(damped, all.len());
    let turned = (ratio < 1.0 && damped > 1.0) || (ratio > 1.0 && damped < 1.0);
    let against = (damped < 1.0 && count > current) || (damped > 1.0 && count < current);
    let count = if tolerance.covers(damped) || turned || against { current } else { count };
    Ok(Usage { count, ..answer })
}

fn scaled(ratio: f64, workers: usize) -> u32 {
    (ratio * workers as f64).ceil() as u32
}

impl Aim {
    fn value(self) -> f64 {
        match self {
            Aim::Percent(value) | Aim::Each(value) => value,
        }
    }

    /// Whole percents and whole units, cut off, as in Kubernetes: the edges of the tolerance fall in the same places.
    fn figure(self, known: &[Known]) -> Result<f64, String> {
        let used: u128 = known.iter().map(|k| u128::from(k.used)).sum();
        let asked: u128 = known.iter().map(|k| u128::from(k.asked)).sum();
        match self {
            Aim::Percent(_) if asked == 0 => {
                Err("the workers ask for none of it, so there is nothing to take a share of".into())
            }
            Aim::Percent(_) => Ok((used * 100 / asked) as f64),
            Aim::Each(_) => Ok((used / known.len().max(1) as u128) as f64),
        }
    }

    /// What a worker of which nothing is known is taken to use when it would go down.
    fn full(self, asked: u64) -> u64 {
        match self {
            Aim::Percent(percent) => (asked as f64 * percent.max(100.0) / 100.0) as u64,
            Aim::Each(value) => value as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutirao_core::quantity::Span;

    const TENTH: Tolerance = Tolerance { up: 0.1, down: 0.1 };
    const OLD: Stage = Stage::Running(Span::secs(3_600));
    const HOT: Stage = Stage::Running(Span::secs(1));

    fn workers(figures: &[(Stage, u64, Option<u64>)]) -> Vec<Sample> {
        let sample = |(stage, asked, used): &(Stage, u64, Option<u64>)| {
            let each = Use { asked: *asked, used: *used };
            Sample { stage: *stage, cpu: each, memory: each }
        };
        figures.iter().map(sample).collect()
    }

    fn count(figures: &[(Stage, u64, Option<u64>)], aim: Aim, current: u32) -> u32 {
        usage(&workers(figures), |s| s.cpu, aim, current, TENTH, Duration::from_secs(30)).unwrap().count
    }

    /// All ready, all asking for a whole cpu.
    fn ready(levels: &[u64]) -> Vec<(Stage, u64, Option<u64>)> {
        levels.iter().map(|used| (OLD, 1000, Some(*used))).collect()
    }

    fn and(
        mut some: Vec<(Stage, u64, Option<u64>)>,
        stage: Stage,
        used: Option<u64>,
    ) -> Vec<(Stage, u64, Option<u64>)> {
        some.push((stage, 1000, used));
        some
    }

    #[test]
    fn the_worked_examples_of_the_source_come_out_the_same() {
        // Up, down, and within the tolerance.
        assert_eq!(count(&ready(&[300, 500, 700]), Aim::Percent(30.0), 3), 5);
        assert_eq!(count(&ready(&[100, 300, 500, 250, 250]), Aim::Percent(50.0), 5), 3);
        let uneven = [(OLD, 900, Some(1010)), (OLD, 1000, Some(1030)), (OLD, 1100, Some(1020))];
        assert_eq!(count(&uneven, Aim::Percent(100.0), 3), 3);
        // 110.9 % is cut to 110 %, just within.
        assert_eq!(count(&ready(&[1109]), Aim::Percent(100.0), 1), 1);
        assert_eq!(count(&ready(&[1110]), Aim::Percent(100.0), 1), 2);
        // Means of each instead of shares.
        assert_eq!(count(&ready(&[20_000, 10_000, 30_000]), Aim::Each(15_000.0), 3), 4);
        assert_eq!(count(&ready(&[12_000; 5]), Aim::Each(20_000.0), 5), 3);
        assert_eq!(count(&ready(&[20_000, 21_000, 21_000]), Aim::Each(20_000.0), 3), 3);
        // More workers than were asked for, one of them without a figure.
        let surge = and(ready(&[100, 100]), OLD, None);
        assert_eq!(count(&surge, Aim::Percent(50.0), 2), 2);
    }

    #[test]
    fn workers_that_are_not_ready_damp_going_up_and_do_not_count_going_down() {
        for unready in [Stage::Creating, HOT] {
            assert_eq!(count(&and(ready(&[500, 700]), unready, Some(300)), Aim::Percent(30.0), 3), 4);
            let one = and(and(ready(&[400]), unready, Some(500)), unready, Some(700));
            assert_eq!(count(&one, Aim::Percent(30.0), 3), 3);
            let down = and(and(ready(&[100, 300, 500]), unready, Some(250)), unready, Some(250));
            assert_eq!(count(&down, Aim::Percent(50.0), 5), 2);
        }
        let pending = vec![(OLD, 1000, Some(100)), (Stage::Creating, 1000, None), (Stage::Creating, 1000, None)];
        assert_eq!(count(&pending, Aim::Percent(50.0), 5), 1);
    }

    #[test]
    fn missing_figures_damp_both_ways() {
        let missing = |levels: &[u64], n: usize| (0..n).fold(ready(levels), |all, _| and(all, OLD, None));
        assert_eq!(count(&missing(&[400, 95], 2), Aim::Percent(100.0), 4), 3);
        assert_eq!(count(&missing(&[1000], 1), Aim::Percent(100.0), 2), 2);
        assert_eq!(count(&missing(&[1900], 1), Aim::Percent(100.0), 2), 2);
        assert_eq!(count(&missing(&[600], 1), Aim::Percent(100.0), 2), 2);
        assert_eq!(count(&and(missing(&[450], 1), Stage::Creating, None), Aim::Percent(50.0), 3), 3);
        assert_eq!(count(&and(missing(&[2000], 1), Stage::Creating, None), Aim::Percent(50.0), 3), 4);
        assert_eq!(count(&and(missing(&[100, 100], 1), Stage::Creating, None), Aim::Percent(50.0), 4), 3);
    }

    #[test]
    fn draining_workers_do_not_count() {
        let some = and(and(ready(&[500, 700]), Stage::Draining, Some(0)), Stage::Draining, None);
        assert_eq!(count(&some, Aim::Percent(30.0), 2), 4);
    }

    #[test]
    fn nothing_known_is_an_error_and_not_a_zero() {
        let nothing = |figures: &[(Stage, u64, Option<u64>)]| {
            usage(&workers(figures), |s| s.cpu, Aim::Percent(50.0), 3, TENTH, Duration::ZERO)
        };
        assert!(nothing(&[]).is_err());
        assert!(nothing(&[(OLD, 1000, None)]).is_err());
        assert!(nothing(&[(OLD, 0, Some(5))]).is_err());
    }
}
