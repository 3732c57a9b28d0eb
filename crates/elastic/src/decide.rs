//! How many are wanted, and why: a function of the policy, what was decided before, the load and the time. Nothing here
//! acts, so the same function answers `queue explain` and `elastic plan` without changing anything.
//!
//! The state is small, bounded and serialisable: it is written with each decision, and a successor goes on from it.
//!
//! Not here: how the wanted count comes about ([`fleet`](crate::fleet)).

mod hpa;
mod pace;
mod recent;
mod rules;
mod usage;
mod wait_goal;
mod waiting;

use std::fmt;
use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_core::quantity::Span;
use serde::{Deserialize, Serialize};

use crate::lasting::Lasting;
use crate::measure::Load;
use crate::policy::{Elastic, NForN, Policy, Threshold};
use pace::Pace;
use recent::Recent;
use rules::Turns;

/// What to remember between two decisions about one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The last answer.
    wanted: Option<u32>,
    changed_at: Option<Timestamp>,
    /// What was recommended lately.
    #[serde(default)]
    recent: Recent,
    /// By how much the count was changed lately.
    #[serde(default)]
    turns: Turns,
    /// Since when a threshold has been crossed.
    #[serde(default)]
    beyond: Option<Beyond>,
    /// What was learned of the tasks.
    #[serde(default, skip_serializing_if = "Pace::is_blank")]
    pace: Pace,
    #[serde(default, skip_serializing_if = "Lasting::is_blank")]
    lasting: Lasting,
    /// What workers took to come, as it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Beyond {
    side: Side,
    since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    Above,
    Below,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub was: u32,
    pub wanted: u32,
    pub removal: Removal,
    pub because: Because,
}

/// Who may go when there are too many. Whoever goes is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Removal {
    /// Only who has been idle this long.
    Idle(Span),
    /// Idle ones first, then busy ones.
    Any,
}

/// The steps of a decision with their figures, in order. Reads as one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Because(pub Vec<String>);

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// A line of `elastic history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub at: Timestamp,
    pub from: u32,
    pub to: u32,
    pub because: Because,
}

impl Decision {
    /// What to write down; a decision to stay as it is is not history.
    pub fn change(&self, now: Timestamp) -> Option<Change> {
        let Decision { was, wanted, .. } = *self;
        (was != wanted).then(|| Change { at: now, from: was, to: wanted, because: self.because.clone() })
    }
}

/// A policy's answer before the floor and the ceiling are looked at.
struct Verdict {
    count: u32,
    because: Vec<String>,
}

impl Verdict {
    fn new(count: u32, why: String) -> Self {
        Self { count, because: vec![why] }
    }
}

/// ```
/// use mutirao_core::Timestamp;
/// use mutirao_elastic::measure::{Load, Tasks};
/// use mutirao_elastic::{Preset, State, decide};
///
/// let now = Timestamp(1_800_000_000_000);
/// let tasks = Tasks { ready: 7, running: 2, ..Tasks::default() };
/// let load = Load { at: now, tasks: Some(tasks), ..Load::default() };
/// let (decision, _state) = decide(&Preset::Arrebol.elastic(), State::default(), &load, now);
/// assert_eq!(decision.wanted, 9);
/// assert_eq!(decision.because.to_string(), "7 ready and 2 running tasks need 9");
/// ```
pub fn decide(elastic: &Elastic, mut state: State, load: &Load, now: Timestamp) -> (Decision, State) {
    state.forget_the_future(now);
    let stale = load.is_stale(now, elastic.stale_after.0).then(|| load.without_figures());
    let load = stale.as_ref().unwrap_or(load);
    if let Some(tasks) = &load.tasks {
        state.pace.see(tasks, now);
    }
    state.boot = load.boot.or(state.boot);
    let was = state.wanted.unwrap_or(load.workers.standing());
    let Elastic { min, max, .. } = *elastic;
    let mut verdict = if was > max {
        Verdict::new(max, format!("{was} are more than the ceiling of {max}"))
    } else if was < min {
        Verdict::new(min, format!("{was} are fewer than the floor of {min}"))
    } else {
        match &elastic.policy {
            Policy::NForN(policy) => n_for_n(policy, &mut state, load, was, now),
            Policy::Hpa(policy) => hpa::verdict(policy, &mut state, load, &hpa::Range { was, min, max }, now),
            Policy::Threshold(policy) => threshold(policy, &mut state, load, was, now),
            Policy::WaitGoal(policy) => wait_goal::verdict(policy, &mut state, load, was, now),
        }
    };
    if stale.is_some() {
        verdict.because.insert(0, format!("the figures are {} old and not believed", age(load, now)));
    }
    let wanted = verdict.count.clamp(min, max);
    if wanted < verdict.count {
        verdict.because.push(format!("held at the ceiling of {max}"));
    } else if wanted > verdict.count {
        verdict.because.push(format!("held at the floor of {min}"));
    }
    state.remember(elastic, was, wanted, now);
    let removal = match &elastic.policy {
        Policy::NForN(policy) => Removal::Idle(policy.idle_wait),
        Policy::WaitGoal(policy) => Removal::Idle(policy.idle_wait(state.boot)),
        Policy::Hpa(_) | Policy::Threshold(_) => Removal::Any,
    };
    (Decision { was, wanted, removal, because: Because(verdict.because) }, state)
}

impl State {
    pub fn wanted(&self) -> Option<u32> {
        self.wanted
    }

    /// What a task of this queue takes in the mean, once enough of them have ended.
    pub fn task_takes(&self) -> Option<Duration> {
        self.pace.task_takes()
    }

    /// A task was seen to end that had run for so long.
    pub fn lasted(&mut self, lasted: Duration) {
        self.lasting.note(lasted);
    }

    /// How long tasks of this queue last, once enough of them were seen to end.
    pub fn lasting(&self) -> Option<&Lasting> {
        Some(&self.lasting).filter(|lasting| lasting.is_known())
    }

    /// What workers took to come, as far as that was seen.
    pub fn boot(&self) -> Option<Span> {
        self.boot
    }

    fn forget_the_future(&mut self, now: Timestamp) {
        self.recent.forget_the_future(now);
        self.turns.forget_the_future(now);
        self.pace.forget_the_future(now);
        self.changed_at = self.changed_at.map(|at| at.min(now));
        if let Some(beyond) = &mut self.beyond {
            beyond.since = beyond.since.min(now);
        }
    }

    fn remember(&mut self, elastic: &Elastic, was: u32, wanted: u32, now: Timestamp) {
        self.wanted = Some(wanted);
        if was != wanted {
            self.changed_at = Some(now);
            if let Policy::Hpa(policy) = &elastic.policy {
                self.turns.note(was, wanted, now, policy.period_longest());
            }
        }
    }
}

fn age(load: &Load, now: Timestamp) -> Span {
    Span(Duration::from_secs(now.since(load.at).as_secs()))
}

/// Up at once; down when nobody has needed that many for as long as an idle worker waits.
fn n_for_n(policy: &NForN, state: &mut State, load: &Load, was: u32, now: Timestamp) -> Verdict {
    let Some(tasks) = load.tasks else {
        return Verdict::new(was, format!("stays at {was}: the queue's figures are missing"));
    };
    let all = tasks.ready.saturating_add(tasks.running);
    let needed = u32::try_from(all.div_ceil(u64::from(policy.tasks_per_worker.max(1)))).unwrap_or(u32::MAX);
    state.recent.begin(was, now);
    let highest = state.recent.highest(needed, now, policy.idle_wait.0);
    state.recent.note(needed, now, policy.idle_wait.0);
    let each =
        if policy.tasks_per_worker > 1 { format!(", {} to a worker", policy.tasks_per_worker) } else { String::new() };
    let mut verdict =
        Verdict::new(highest, format!("{} ready and {} running tasks{each} need {needed}", tasks.ready, tasks.running));
    if highest > needed {
        verdict.because.push(format!("{highest} were needed within the last {}, so none goes yet", policy.idle_wait));
    }
    verdict
}

fn threshold(policy: &Threshold, state: &mut State, load: &Load, was: u32, now: Timestamp) -> Verdict {
    let name = policy.source.name();
    let Some(figure) = load.gauge(policy.source) else {
        state.beyond = None;
        return Verdict::new(was, format!("stays at {was}: there is no figure for {name}"));
    };
    let crossed = if figure > policy.above {
        Some((Side::Above, format!("{name} is {figure:.1}, above {}", policy.above)))
    } else {
        let below = policy.below.filter(|below| figure < *below);
        below.map(|below| (Side::Below, format!("{name} is {figure:.1}, below {below}")))
    };
    let Some((side, said)) = crossed else {
        state.beyond = None;
        return Verdict::new(was, format!("stays at {was}: {name} is {figure:.1}, between its lines"));
    };
    let since = state.beyond.filter(|b| b.side == side).map_or(now, |b| b.since);
    state.beyond = Some(Beyond { side, since });
    if now.since(since) < policy.hold.0 {
        return Verdict::new(was, format!("{said}, not yet for {}", policy.hold));
    }
    if state.changed_at.is_some_and(|at| now.since(at) < policy.pause.0) {
        return Verdict::new(was, format!("{said}, and the last change is not yet {} ago", policy.pause));
    }
    match side {
        Side::Above => Verdict::new(was.saturating_add(policy.step), said),
        Side::Below => Verdict::new(was.saturating_sub(policy.step), said),
    }
}

#[cfg(test)]
mod tests;
