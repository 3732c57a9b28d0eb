//! The settings of the systems this one grew out of, under their names. What a source leaves open is chosen here, and said.

use mutirao_core::quantity::Span;
use serde::{Deserialize, Serialize};

use super::{Behaviour, Elastic, Hpa, Metric, NForN, Policy, Rate, Rules, STALE_AFTER, Target, Threshold, WaitGoal};
use crate::measure::Source;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// 200 ready and 35 unacknowledged messages a worker of 50 slots, 1 to 10 of them; up after a minute by the larger of half
    /// and two, down after two.
    SentrywebWorkers,
    /// CPU at 70 % for two minutes. How many at most is not given: 5.
    SentrywebSchedulers,
    /// n workers for n tasks. How long an idle one waits is not given: a minute; nor how many at most: 100.
    Arrebol,
    /// From two replicas, one more while the machine's memory is above 70 %. When one goes is not given: below 50 %; nor how
    /// many at most: 8.
    #[serde(rename = "kv-003")]
    Kv003,
    /// What Arrebol left open: as few workers as it takes that 95 % of the tasks begin within a minute, 0 to 100.
    WaitGoal,
}

impl std::str::FromStr for Preset {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "sentryweb-workers" => Ok(Preset::SentrywebWorkers),
            "sentryweb-schedulers" => Ok(Preset::SentrywebSchedulers),
            "arrebol" => Ok(Preset::Arrebol),
            "kv-003" => Ok(Preset::Kv003),
            "wait-goal" => Ok(Preset::WaitGoal),
            _ => Err("choose arrebol, wait-goal, sentryweb-workers, sentryweb-schedulers or kv-003"),
        }
    }
}

impl Preset {
    pub const ALL: [Preset; 5] =
        [Preset::SentrywebWorkers, Preset::SentrywebSchedulers, Preset::Arrebol, Preset::Kv003, Preset::WaitGoal];

    pub fn elastic(self) -> Elastic {
        let (min, max, policy) = match self {
            Preset::SentrywebWorkers => (1, 10, sentryweb_workers()),
            Preset::SentrywebSchedulers => (1, 5, sentryweb_schedulers()),
            Preset::Arrebol => (0, 100, Policy::NForN(NForN { idle_wait: NForN::idle_wait(), tasks_per_worker: 1 })),
            Preset::Kv003 => (2, 8, kv_003()),
            Preset::WaitGoal => (0, 100, Policy::WaitGoal(WaitGoal::of(Span::secs(60)))),
        };
        Elastic { min, max, stale_after: STALE_AFTER, policy }
    }
}

impl Elastic {
    /// For schedulers: SentryWeb's preset, between these.
    pub fn of_schedulers(min: u32, max: u32) -> Self {
        Self { min, max, ..Preset::SentrywebSchedulers.elastic() }
    }

    /// For managers beside the first: the third document's rule, one more above 70 % of the machine's memory, between these.
    pub fn of_managers(min: u32, max: u32) -> Self {
        Self { min, max, ..Preset::Kv003.elastic() }
    }

    /// For checkers that make so many checks at once each: SentryWeb's figures for 50 slots, in proportion, and two more. How
    /// late the checks begin that begin now says at once that there are too few; the cpu they use together says what fewer
    /// would have to do, which no figure of a queue does: without it the pool would flap.
    pub fn of_checkers(slots: u32, min: u32, max: u32) -> Self {
        let slots = f64::from(slots.max(1));
        let metrics = vec![
            Metric { source: Source::Ready, target: Target::PerWorker(slots * 200.0 / 50.0) },
            Metric { source: Source::Unacknowledged, target: Target::PerWorker(slots * 35.0 / 50.0) },
            Metric { source: Source::OldestWait, target: Target::Wait(Span::secs(1)) },
            Metric { source: Source::Cpu, target: Target::Percent(70.0) },
        ];
        let behaviour = Behaviour { up: Rules::up(), down: Rules::down().window(Span::secs(120)) };
        let (tolerance, settle) = (Hpa::tolerance(), Span::secs(5));
        let policy = Policy::Hpa(Hpa { metrics, behaviour: Some(behaviour), tolerance, settle });
        Self { min, max, stale_after: STALE_AFTER, policy }
    }
}

fn sentryweb_workers() -> Policy {
    let minute = Span::secs(60);
    Policy::Hpa(Hpa {
        metrics: vec![
            Metric { source: Source::Ready, target: Target::PerWorker(200.0) },
            Metric { source: Source::Unacknowledged, target: Target::PerWorker(35.0) },
        ],
        behaviour: Some(Behaviour {
            up: Rules::up().window(minute).policies(vec![Rate::percent(50, minute), Rate::count(2, minute)]),
            down: Rules::down().window(Span::secs(120)),
        }),
        tolerance: Hpa::tolerance(),
        settle: Hpa::settle(),
    })
}

fn sentryweb_schedulers() -> Policy {
    let window = Span::secs(120);
    Policy::Hpa(Hpa {
        metrics: vec![Metric { source: Source::Cpu, target: Target::Percent(70.0) }],
        behaviour: Some(Behaviour { up: Rules::up().window(window), down: Rules::down().window(window) }),
        tolerance: Hpa::tolerance(),
        settle: Hpa::settle(),
    })
}

fn kv_003() -> Policy {
    Policy::Threshold(Threshold {
        source: Source::HostMemory,
        above: 70.0,
        below: Some(50.0),
        step: 1,
        hold: Span::secs(0),
        pause: Threshold::pause(),
    })
}
