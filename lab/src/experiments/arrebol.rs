//! A day of jobs that come in bursts, and what each policy makes of it: how long tasks wait, node-hours, cost, starts and
//! stops. Simulated for a thousand machines with the resource manager's own passes ([`world`]), and real with the program
//! itself on nodes of this machine ([`real`]).

mod outcome;
mod real;
mod simulated;
mod trace;
mod world;

use std::sync::Arc;

use clap::Args;
use mutirao_core::quantity::Span;
use mutirao_elastic::measure::Source;
use mutirao_elastic::packing::{Kind, Market};
use mutirao_elastic::policy::{Behaviour, Hpa, Metric, NForN, Policy, Rules, Target, Threshold, WaitGoal};
use mutirao_resource::pass::HalfEmpty;

use crate::plot::Line;
use crate::report::{Goal, Report};
use outcome::Mean;
use simulated::{Case, Runs};
use world::{Setup, machine};

#[derive(Args)]
pub struct Options {
    /// Days that are lived through with each policy, by seeds 1 to so many.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Into how many hours a day is cut down: as many machines, less to simulate.
    #[arg(long, default_value_t = 6.0)]
    hours: f64,
    /// How large jobs are, as a multiple.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Machines that can be had of each kind.
    #[arg(long, default_value_t = 1_000)]
    nodes: u32,
    /// The wait that is promised, in seconds.
    #[arg(long, default_value_t = 90)]
    wait: u64,
    /// Also with the program itself, on nodes of this machine.
    #[arg(long)]
    real: bool,
    /// Only what is real.
    #[arg(long, conflicts_with = "real")]
    real_only: bool,
}

/// What a machine costs an hour, in millionths; one that may be taken back costs a third.
const PRICE: u64 = 200_000;
const SPOT_PRICE: u64 = 60_000;
/// How long one of those is there, in the mean.
const SPOT_LASTS_S: u64 = 4 * 3_600;
/// From asking for a machine until it answers, in the mean.
const BOOT_S: u64 = 90;
/// Workers of a queue, at most.
const WORKERS_MAX: u32 = 4_000;
/// Tasks a second under which an hour must pass without flapping.
const LEVELS: [f64; 8] = [0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];
const STEADY_TASK_S: f64 = 20.0;

fn n_for_n() -> Policy {
    Policy::NForN(NForN { idle_wait: Span::secs(60), tasks_per_worker: 1 })
}

fn wait_goal(wait_s: u64) -> Policy {
    Policy::WaitGoal(WaitGoal { boot: Span::secs(BOOT_S), ..WaitGoal::of(Span::secs(wait_s)) })
}

/// As a cluster would be set up for batch: two that wait or one and a quarter that run for each.
fn hpa() -> Policy {
    let metrics = vec![
        Metric { source: Source::Ready, target: Target::PerWorker(2.0) },
        Metric { source: Source::Running, target: Target::PerWorker(0.8) },
    ];
    let behaviour = Some(Behaviour { up: Rules::up(), down: Rules::down() });
    Policy::Hpa(Hpa { metrics, behaviour, tolerance: 0.1, settle: Span::secs(30) })
}

fn threshold(wait_s: u64) -> Policy {
    Policy::Threshold(Threshold {
        source: Source::OldestWait,
        above: wait_s as f64 / 3.0,
        below: Some(1.0),
        step: 50,
        hold: Span::secs(0),
        pause: Span::secs(60),
    })
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("arrebol");
    if !options.real_only {
        policies(&options, &mut report);
        steady(&options, &mut report);
    }
    if options.real || options.real_only {
        real::run(&mut report)?;
    }
    Ok(report)
}

fn on_demand(options: &Options) -> Vec<Kind> {
    vec![machine("plain", Market::OnDemand, PRICE, BOOT_S, None, options.nodes)]
}

fn with_spot(options: &Options) -> Vec<Kind> {
    let spot = machine("spot", Market::Spot, SPOT_PRICE, BOOT_S, Some(SPOT_LASTS_S), options.nodes);
    on_demand(options).into_iter().chain([spot]).collect()
}

fn policies(options: &Options, report: &mut Report) {
    let days: Vec<_> =
        (1..=options.seeds).map(|seed| Arc::new(trace::day(seed, options.hours, options.scale))).collect();
    let tasks: usize = days.iter().map(|day| day.len()).sum();
    let goal = wait_goal(options.wait);
    let case = |name: &str, policy: &Policy, half_empty, kinds: Vec<Kind>| Case {
        name: name.into(),
        setup: Setup {
            policy: policy.clone(),
            half_empty,
            kinds,
            workers_max: WORKERS_MAX,
            arrivals: Arc::new(Vec::new()),
            seed: 0,
        },
    };
    let cases = [
        case("n_for_n", &n_for_n(), HalfEmpty::Emptied, on_demand(options)),
        case("hpa", &hpa(), HalfEmpty::Emptied, on_demand(options)),
        case("threshold", &threshold(options.wait), HalfEmpty::Emptied, on_demand(options)),
        case("wait_goal", &goal, HalfEmpty::Emptied, on_demand(options)),
        case("wait_goal, a third of the wait", &wait_goal(options.wait / 3), HalfEmpty::Emptied, on_demand(options)),
        case("n_for_n, half-empty nodes kept", &n_for_n(), HalfEmpty::Kept, on_demand(options)),
        case("wait_goal, half-empty nodes kept", &goal, HalfEmpty::Kept, on_demand(options)),
        case("wait_goal, spot too", &goal, HalfEmpty::Emptied, with_spot(options)),
    ];
    let all = simulated::run(&cases, &days);
    report.note(format!(
        "simulated with the resource manager's own passes: seeds 1 to {}, {:.0} tasks a day cut down to {} hours, up to {} machines of 4 cpus and 16 GiB that take {BOOT_S} s to come (45 to 135), {} an hour, spot {} and {} h in the mean; ± is 95 % confidence over the seeds",
        options.seeds,
        tasks as f64 / options.seeds.max(1) as f64,
        options.hours,
        options.nodes,
        PRICE as f64 / 1e6,
        SPOT_PRICE as f64 / 1e6,
        SPOT_LASTS_S / 3_600,
    ));
    let [each, _, _, ours, _, each_kept, ours_kept, spot] = &all;
    for (case, runs) in cases.iter().zip(&all) {
        tell(report, &case.name, runs);
    }
    let share = |one: &Runs, other: &Runs, of: fn(&outcome::Outcome) -> f64| {
        let pairs = one.0.iter().zip(&other.0);
        Mean::of(&pairs.map(|(one, other)| of(one) / of(other).max(1e-9) * 100.0).collect::<Vec<_>>())
    };
    let with = |what: &str, mean: Mean| format!("{what} (±{:.1})", mean.off);
    let hours = share(ours, each, outcome::Outcome::node_hours);
    let waits = share(ours, each, |outcome| outcome.wait_s(0.95));
    report.goal(with("wait_goal: node-hours of n_for_n's", hours), hours.mean, "%", Goal::AtMost(60.0));
    report.goal(with("wait_goal: p95 wait of n_for_n's", waits), waits.mean, "%", Goal::AtMost(100.0));
    for (name, emptied, kept) in [("n_for_n", each, each_kept), ("wait_goal", ours, ours_kept)] {
        let left = share(emptied, kept, outcome::Outcome::node_hours);
        let saved = Mean { mean: 100.0 - left.mean, off: left.off };
        report.goal(
            with(&format!("consolidation saves node-hours, {name}"), saved),
            saved.mean,
            "%",
            Goal::AtLeast(20.0),
        );
    }
    let killed: u64 = all.iter().flat_map(|runs| &runs.0).map(|outcome| outcome.killed).sum();
    report.goal("tasks ended to save money, all runs", killed as f64, "tasks", Goal::AtMost(0.0));
    let cost = share(spot, ours, outcome::Outcome::cost);
    let cut = Mean { mean: 100.0 - cost.mean, off: cost.off };
    report.goal(with("spot choice cuts cost", cut), cut.mean, "%", Goal::AtLeast(50.0));
    let lost: u64 = all.iter().flat_map(|runs| &runs.0).map(|outcome| outcome.lost).sum();
    report.goal("tasks lost, all runs", lost as f64, "tasks", Goal::AtMost(0.0));
    let of = |runs: &Runs, name: &str, figure: fn(&(f64, u32, u32, u32)) -> u32| Line {
        name: name.into(),
        points: runs
            .0
            .first()
            .map_or_else(Vec::new, |o| o.course.iter().map(|p| (p.0, f64::from(figure(p)))).collect()),
    };
    report.panels = vec![
        vec![
            of(each, "machines, n_for_n", |p| p.3),
            of(ours, "machines, wait_goal", |p| p.3),
            of(ours_kept, "machines, wait_goal, half-empty kept", |p| p.3),
        ],
        vec![of(each, "waiting, n_for_n", |p| p.2), of(ours, "waiting, wait_goal", |p| p.2)],
    ];
}

fn tell(report: &mut Report, name: &str, runs: &Runs) {
    let mean = |of: &dyn Fn(&outcome::Outcome) -> f64| Mean::of(&runs.0.iter().map(of).collect::<Vec<_>>());
    let mut row = |what: &str, unit, of: &dyn Fn(&outcome::Outcome) -> f64| {
        let Mean { mean, off } = mean(of);
        report.row(format!("{name}: {what} (±{off:.1})"), mean, unit);
    };
    for (what, share) in [("wait p50", 0.5), ("wait p95", 0.95), ("wait p99", 0.99)] {
        row(what, "s", &|outcome| outcome.wait_s(share));
    }
    row("node-hours", "h", &outcome::Outcome::node_hours);
    row("cost", "money", &outcome::Outcome::cost);
    row("machines made", "nodes", &|outcome| outcome.node_starts as f64);
    row("machines at once, at most", "nodes", &|outcome| f64::from(outcome.nodes_most));
    row("workers started", "workers", &|outcome| outcome.worker_starts as f64);
    row("workers stopped", "workers", &|outcome| outcome.worker_stops as f64);
    if runs.0.iter().any(|outcome| outcome.taken_back > 0) {
        row("machines taken back", "nodes", &|outcome| outcome.taken_back as f64);
        row("tasks begun again", "tasks", &|outcome| outcome.again as f64);
        row("run in vain", "h", &|outcome| outcome.thrown_away_ms as f64 / 3_600_000.0);
    }
}

/// An hour of the same load after one to get used to it, at many levels.
fn steady(options: &Options, report: &mut Report) {
    let days: Vec<_> = LEVELS.iter().map(|rate| Arc::new(trace::steady(*rate, STEADY_TASK_S, 7_200))).collect();
    for (name, policy) in [("wait_goal", wait_goal(options.wait)), ("hpa", hpa()), ("n_for_n", n_for_n())] {
        let setup = Setup {
            policy,
            half_empty: HalfEmpty::Emptied,
            kinds: on_demand(options),
            workers_max: WORKERS_MAX,
            arrivals: Arc::new(Vec::new()),
            seed: 0,
        };
        let [runs] = simulated::run(&[Case { name: name.into(), setup }], &days);
        let turns: usize = runs.0.iter().map(|outcome| outcome.turns(3_600, 7_190)).sum();
        let what = format!("{name}: turns in an hour of steady load, {} levels", LEVELS.len());
        match name {
            "wait_goal" => report.goal(what, turns as f64, "turns", Goal::AtMost(0.0)),
            _ => report.row(what, turns as f64, "turns"),
        }
    }
}
