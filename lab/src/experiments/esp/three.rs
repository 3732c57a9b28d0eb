//! `esp-3`, simulated: what the document did not try. Noise alone, a slow host, large states, a lost host, a hundred hosts.

use clap::Args;
use mutirao_movers::simulation::{Setup, troubles};
use mutirao_movers::{Settings, Strategy};

use super::simulated::{self, Case, Figure, Runs};
use crate::plot::Line;
use crate::report::{Goal, Report};

#[derive(Args)]
pub struct Options {
    /// Runs of each, with other seeds; of the hundred hosts a tenth as many.
    #[arg(long, default_value_t = 20)]
    runs: u64,
}

const FIGURES: [(Figure, &str, &str); 6] = [
    (Figure::FastMean, "fast, mean", "ms"),
    (Figure::FastP99, "fast, p99", "ms"),
    (Figure::SlowMean, "slow, mean", "ms"),
    (Figure::SlowP99, "slow, p99", "ms"),
    (Figure::Moves, "moves", "moves"),
    (Figure::Asked, "rounds that ask for a host", "rounds"),
];

/// A setup by its seed.
type Setting = fn(u64) -> Setup;

const TROUBLES: [(&str, Setting); 5] = [
    ("noise only", |_| troubles::noise_only()),
    ("slow host", |_| troubles::slow_host()),
    ("large states", |_| troubles::large_states()),
    ("lost host", |_| troubles::lost_host()),
    ("100 hosts", troubles::hundred_hosts),
];

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("esp-3");
    report.note("simulated, moved live whoever decides; ± is half the 95 % interval of the mean");
    report.note("noise only: stops of up to 400 ms in a tenth of all seconds, measures off by a tenth, messages lost, late, doubled");
    report.note(
        "slow host: from 120 s on three times as slow; lost host: at 200 s; large states: 5 GB in every other operator",
    );
    report.note("a state of 100 MB moved by the program itself, and the pause that is seen: `lab -- moving`");
    for (number, (trouble, setup)) in TROUBLES.into_iter().enumerate() {
        let strategies = [Strategy::None, Strategy::adaptive(0.25), Strategy::mutirao()];
        let case = |strategy: Strategy| Case {
            name: format!("{trouble}, {}", strategy.name()),
            settings: Settings::of(strategy),
            setup: Box::new(setup),
        };
        let cases = strategies.map(case);
        let many = number + 1 == TROUBLES.len();
        let found = simulated::run(&cases, if many { options.runs.div_ceil(10) } else { options.runs });
        for (case, runs) in cases.iter().zip(&found) {
            for (figure, name, unit) in FIGURES {
                let mean = runs.mean(figure);
                report.row(format!("{}: {name} (±{:.1})", case.name, mean.off), mean.mean, unit);
            }
        }
        if let [none, adaptive, ours] = &found[..] {
            goals(&mut report, trouble, number == 0, [none, adaptive, ours]);
        }
        let line = |(case, runs): (&Case, &simulated::Runs)| {
            let name = format!("{}, last copies, ms", case.name);
            Line { name, points: runs.course(false) }
        };
        // Ours in the first colour, as everywhere.
        report.panels.push(cases.iter().zip(&found).rev().map(line).collect());
    }
    Ok(report)
}

/// Under noise alone nobody is to move; under all else `mutirao` is to do no worse than whoever does better of the two others.
fn goals(report: &mut Report, trouble: &str, is_noise: bool, [none, adaptive, ours]: [&Runs; 3]) {
    if is_noise {
        let moves = ours.mean(Figure::Moves).mean;
        report.goal(format!("{trouble}, mutirao: moves in ten minutes"), moves, "moves", Goal::AtMost(1.0));
    }
    for (figure, name, _) in FIGURES.into_iter().take(4).filter(|_| !is_noise) {
        let best = none.mean(figure).mean.min(adaptive.mean(figure).mean);
        let share = ours.mean(figure).mean / best.max(1e-9);
        let what = format!("{trouble}, mutirao: {name}, as a share of the better of none and adaptive");
        report.goal(what, share, "times", Goal::AtMost(1.0));
    }
    let left = ours.mean(Figure::Left).mean;
    report.goal(
        format!("{trouble}, mutirao: events still under way at the end, of a million"),
        left,
        "events/1e6",
        Goal::AtMost(100.0),
    );
}
