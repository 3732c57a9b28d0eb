//! What logging costs: the same PUTs with the default level and with none, in turns, so that a machine that warms up or slows down
//! does so for both.

use super::load::{self, Kind, Length};
use super::{Options, Ours};
use crate::report::{Goal, Report};

/// As few as both have their turn first and last.
const TURNS: [Level; 4] = [Level::Off, Level::Default, Level::Default, Level::Off];
const SECONDS_MIN: u64 = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Off,
    Default,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Off => "off",
            Level::Default => "info",
        }
    }
}

pub fn compare(report: &mut Report, options: &Options) -> anyhow::Result<()> {
    let span = Length::Seconds((options.seconds / 2).max(SECONDS_MIN));
    let mut turns = Vec::new();
    for level in TURNS {
        let ours = Ours::start_logging(options.backend, level.name())?;
        let address = ours.address();
        // What is first done once is not what is compared.
        load::run(&address, Kind::Put, options.clients, Length::Seconds(1))?;
        let seen = load::run(&address, Kind::Put, options.clients, span)?;
        turns.push((level, seen.good_per_s(), seen.cpu_us()));
    }
    let mean = |of: Level, what: fn(&(Level, f64, f64)) -> f64| {
        let figures: Vec<f64> = turns.iter().filter(|(level, ..)| *level == of).map(what).collect();
        figures.iter().sum::<f64>() / figures.len() as f64
    };
    let (off, on) = (mean(Level::Off, |turn| turn.1), mean(Level::Default, |turn| turn.1));
    report.row("mutirao, accepted without any logging", off, "PUT/s");
    report.row("mutirao, accepted with logging as it is by default", on, "PUT/s");
    report.row("  CPU of its own processes without", mean(Level::Off, |turn| turn.2), "µs/PUT");
    report.row("  CPU of its own processes with", mean(Level::Default, |turn| turn.2), "µs/PUT");
    report.goal("mutirao, slower for logging by", (1.0 - on / off) * 100.0, "%", Goal::AtMost(5.0));
    Ok(())
}
