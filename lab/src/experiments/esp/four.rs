//! `esp-4`: events a second and core of filter, map and a keyed jumping window, with integer and with text keys, beside `timely`
//! and Bytewax on the same events; and of a sliding window from 10 to 100,000 events, whose cost is to be flat.

use clap::Args;
use mutirao_streams::aggregate::{Aggregate, Function};
use mutirao_streams::expression::Expression;
use mutirao_streams::operator::{Chain, Outlet, Piece, Stage, windowed};
use mutirao_streams::window::{Grouping, Limits, Window};
use mutirao_streams::{Kind, Schema};

use super::load::{self, KeyKind};
use super::{bytewax, timely};
use crate::experiments::overhead::middle;
use crate::peers::{FOLDER, Peers};
use crate::report::{Goal, Report};

#[derive(Args)]
pub struct Options {
    /// Events in each run.
    #[arg(long, default_value_t = 4_000_000)]
    events: u64,
    /// Events in each run of Bytewax, which is slower by far.
    #[arg(long, default_value_t = 400_000)]
    bytewax_events: u64,
    /// Runs of each, in turn; the middle one counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Leave Bytewax out, where nothing can be installed.
    #[arg(long)]
    without_bytewax: bool,
}

/// The widths of the sliding window.
const WIDTHS: [u64; 5] = [10, 100, 1_000, 10_000, 100_000];

/// How many events came through the filter, and the sum of what became of them: to see that each system did the work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    pub count: u64,
    pub sum: f64,
}

impl Done {
    /// Sums are in whatever order each system adds in.
    fn agrees(self, other: Done) -> bool {
        self.count == other.count && (self.sum - other.sum).abs() <= other.sum.abs() * 1e-9
    }
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("esp-4");
    report.note("events divided by CPU time of the one thread that does the work; making the events is not counted");
    report.note(format!(
        "filter {}, map {}, count and sum of each of {} keys over {} events",
        load::FILTER,
        load::MAP,
        load::KEYS,
        load::WINDOW_US / load::STEP_US
    ));
    report.note(
        "ours reads its expressions at run time and sums floats without rounding; what timely does is compiled in",
    );
    report.note(
        "timely has no windows: a window is an instant of its logical time, and what it holds a map of the operator",
    );
    let peers = if options.without_bytewax { None } else { Some(Peers::prepare(FOLDER.as_ref())?) };
    for keys in KeyKind::ALL {
        let (mut ours, mut theirs, mut python) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.runs {
            let (rate, done) = jumping(keys, options.events)?;
            ours.push(rate);
            let (rate, also) = timely::jumping(keys, options.events)?;
            theirs.push(rate);
            anyhow::ensure!(done.agrees(also), "ours made {done:?}, timely {also:?}");
            if let Some(peers) = &peers {
                let (rate, also) = bytewax::jumping(peers, keys, options.bytewax_events)?;
                python.push(rate);
                let (_, done) = jumping(keys, options.bytewax_events)?;
                anyhow::ensure!(done.agrees(also), "ours made {done:?}, Bytewax {also:?}");
            }
        }
        let (rate, name) = (middle(ours), keys.name());
        let goal = if keys == KeyKind::Int { 3_000_000.0 } else { 1_000_000.0 };
        report.goal(format!("mutirao, {name}"), rate, "events/s", Goal::AtLeast(goal));
        report.row(format!("timely, {name}"), middle(theirs), "events/s");
        if peers.is_some() {
            let python = middle(python);
            report.row(format!("Bytewax, {name}"), python, "events/s");
            report.goal(format!("mutirao beside Bytewax, {name}"), rate / python, "times", Goal::AtLeast(10.0));
        }
    }
    let mut costs = Vec::new();
    for width in WIDTHS {
        let mut rates = (0..options.runs).map(|_| sliding(width, options.events / 4)).collect::<Result<Vec<_>, _>>()?;
        rates.sort_by(f64::total_cmp);
        let rate = middle(rates);
        costs.push(1e9 / rate);
        report.row(format!("sliding mean and maximum of the last {width}"), rate, "events/s");
    }
    let (least, most) = (costs.iter().copied().fold(f64::MAX, f64::min), costs.iter().copied().fold(0.0, f64::max));
    report.goal("dearest sliding window beside the cheapest", most / least, "times", Goal::AtMost(1.5));
    Ok(report)
}

fn aggregate(name: &str, function: Function, field: Option<usize>) -> Aggregate {
    Aggregate { name: name.to_owned(), function, field }
}

fn compile(text: &str, schema: &Schema) -> anyhow::Result<Expression> {
    Expression::compile(text, schema).map_err(|flaws| anyhow::anyhow!("{}", flaws[0]))
}

fn jumping(keys: KeyKind, events: u64) -> anyhow::Result<(f64, Done)> {
    let schema = load::schema(keys);
    let fields = ["key", "at", load::MAP].into_iter().map(|text| compile(text, &schema));
    let map = Stage::Map { output: schema.clone(), fields: fields.collect::<Result<_, _>>()? };
    let mut chain = Chain::of(vec![Stage::Filter(compile(load::FILTER, &schema)?), map]);
    let grouping = Grouping {
        keys: vec![0],
        window: Window::Time { field: 1, size_us: load::WINDOW_US, every_us: load::WINDOW_US, lateness_us: 0 },
        aggregates: vec![aggregate("count", Function::Count, None), aggregate("sum", Function::Sum, Some(2))],
        limits: Limits::default(),
    };
    let mut window = windowed(&grouping, &schema, 1)?;
    let batches = load::batches(keys, events)?;
    let (mut pieces, mut done) = (Vec::new(), Done::default());
    let begin = load::cpu();
    for (batch, time) in batches {
        window.push(0, chain.run(batch)?, &mut pieces)?;
        window.watermark(0, time, &mut pieces)?;
        count(&mut pieces, &mut done);
    }
    window.watermark(0, i64::MAX, &mut pieces)?;
    count(&mut pieces, &mut done);
    Ok((events as f64 / (load::cpu() - begin).as_secs_f64(), done))
}

fn count(pieces: &mut Outlet, done: &mut Done) {
    for piece in pieces.drain(..) {
        if let Piece::Rows(_, batch) = piece {
            let counts = batch.named("count").and_then(|column| column.ints()).unwrap_or_default();
            let sums = batch.named("sum").and_then(|column| column.floats()).unwrap_or_default();
            done.count += counts.iter().sum::<i64>() as u64;
            done.sum += sums.iter().sum::<f64>();
        }
    }
}

/// One window for all events, that speaks at each.
fn sliding(width: u64, events: u64) -> anyhow::Result<f64> {
    let schema = load::schema(KeyKind::Int);
    debug_assert_eq!(schema.kind("value"), Some(Kind::Float));
    let grouping = Grouping {
        keys: vec![],
        window: Window::Count { size: width, every: 1 },
        aggregates: vec![aggregate("mean", Function::Mean, Some(2)), aggregate("max", Function::Max, Some(2))],
        limits: Limits::default(),
    };
    let mut window = windowed(&grouping, &schema, 1)?;
    let batches = load::batches(KeyKind::Int, events)?;
    let (mut pieces, mut said) = (Vec::new(), 0);
    let begin = load::cpu();
    for (batch, _) in batches {
        window.push(0, batch, &mut pieces)?;
        for piece in pieces.drain(..) {
            said += if let Piece::Rows(_, batch) = piece { batch.rows() as u64 } else { 0 };
        }
    }
    let took = load::cpu() - begin;
    anyhow::ensure!(said == events, "{said} results for {events} events");
    Ok(events as f64 / took.as_secs_f64())
}
