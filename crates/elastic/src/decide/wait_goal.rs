//! The fewest workers with which tasks wait no longer than promised. Three needs, of which the largest counts: that those who
//! wait now begin in time, that those who come as steadily as they do find a place in time, and that those who came at this
//! hour of past days would.
//!
//! Up at once. Down by what would still do if as many came as chance allows, and to nothing when nobody has come for long
//! enough: a load that stays as it is moves nothing.

use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_core::quantity::Span;

use super::waiting::{Line, Traffic, servers};
use super::{State, Verdict};
use crate::WORKERS_MAX;
use crate::measure::Load;
use crate::policy::{Forecast, WaitGoal};

const IDLE_WAIT_MIN: Duration = Duration::from_secs(30);
/// The last one is kept for tasks that come no further apart than this many waits of an idle worker…
const SPARSE: u32 = 4;
/// …for this many times as long as they are apart.
const GAPS: u32 = 8;
/// Of the tasks that may be late, the part that may when workers go.
const LATE_PART: f64 = 4.0;
/// Fewer than this part of them are not let go by themselves.
const WORTH_PART: u32 = 10;

impl WaitGoal {
    /// Whoever keeps an idle worker as long as a new one takes to come never pays more than twice of what it would have cost
    /// to know beforehand.
    pub(super) fn idle_wait(&self, boot: Option<Span>) -> Span {
        self.idle_wait.unwrap_or_else(|| Span(self.comes_in(boot).max(IDLE_WAIT_MIN)))
    }

    /// As was seen, by whoever acted before too, else as was said.
    fn comes_in(&self, boot: Option<Span>) -> Duration {
        boot.unwrap_or(self.boot).0
    }
}

pub fn verdict(policy: &WaitGoal, state: &mut State, load: &Load, was: u32, now: Timestamp) -> Verdict {
    let Some(tasks) = load.tasks else {
        return Verdict::new(was, format!("stays at {was}: the queue's figures are missing"));
    };
    let each = f64::from(policy.tasks_per_worker.max(1));
    let most = WORKERS_MAX.saturating_mul(policy.tasks_per_worker.max(1));
    let workers = |servers: f64| (servers / each).ceil() as u32;
    let (boot, wait_s, late) = (policy.comes_in(state.boot), policy.wait.0.as_secs_f64(), 1.0 - policy.share);
    let (rate, task_s) = (state.pace.rate(now), state.pace.task_s(policy.task.0));
    let doubt = state.pace.task_doubt();
    let traffic = |rate: f64| Traffic { rate, task_s, wait_s };
    let fits = |traffic: Traffic, late: f64| workers(f64::from(servers(traffic, late, most)));
    let safe = || {
        let longer = task_s * (1.0 + doubt);
        fits(Traffic { task_s: longer, ..traffic(rate.at_most) }, late / LATE_PART)
    };

    let there = f64::from(load.workers.running) * each;
    let line = Line { ready: tasks.ready as f64, running: tasks.running as f64, there, boot_s: boot.as_secs_f64() };
    let to_come = line.lacking(traffic(rate.steady));
    let busy = workers(line.running);
    let by_line = if to_come > 0.0 {
        load.workers.running.saturating_add(workers(to_come))
    } else {
        busy.max(workers((line.ready * task_s / wait_s.max(line.boot_s)).min(line.ready)))
    };
    let by_rate = fits(traffic(rate.steady), late);
    // Where new ones come in time, nobody needs to be there beforehand.
    let foreseen =
        (policy.forecast == Forecast::PastDays && policy.wait.0 < boot).then(|| state.pace.past(now.plus(boot)));
    let by_past = foreseen.flatten().map(|rate| fits(traffic(rate), late));
    let need = by_line.max(by_rate).max(by_past.unwrap_or(0));

    let mut because = vec![
        format!(
            "{} ready and {} running tasks, {:.3} a second come, one takes {}",
            tasks.ready,
            tasks.running,
            rate.steady,
            said(task_s)
        ),
        format!(
            "to wait at most {} with workers that take {} to come: {by_line} for those who wait, {by_rate} for those who come{}",
            policy.wait,
            Span(boot),
            by_past.map_or_else(String::new, |count| format!(", {count} as on past days")),
        ),
    ];
    if tasks.ended.is_none() {
        because.push("how many end is not said, so nothing is known of those who come".into());
    }
    if need > 0 {
        state.pace.needed(now);
    }
    let idle_wait = policy.idle_wait(state.boot).0;
    state.recent.begin(was, now);
    let highest = state.recent.highest(need, now, idle_wait);
    state.recent.note(need, now, idle_wait);
    let count = if highest >= was {
        if highest > need {
            because.push(format!("{highest} were needed within the last {}, so none goes yet", Span(idle_wait)));
        }
        highest.min(was.max(need))
    } else if highest == 0 {
        let gap = state.pace.gap().filter(|gap| *gap <= idle_wait * SPARSE);
        let kept_for = gap.map_or(idle_wait, |gap| idle_wait.max(gap * GAPS));
        if state.pace.not_needed_for(now) >= kept_for {
            because.push(format!("nobody has come for {}, so none is kept", Span(kept_for)));
            0
        } else {
            because.push(format!("the last is kept for {}, as tasks come", Span(kept_for)));
            1.max(safe()).min(was)
        }
    } else {
        let safe = safe();
        if safe > highest {
            because.push(format!("{safe} in case {:.3} a second come, which chance allows", rate.at_most));
        }
        let least = highest.max(safe).min(was);
        if least < was && least > was - was / WORTH_PART {
            because.push(format!("{} fewer are not worth a change", was - least));
            was
        } else {
            least
        }
    };
    let to_come = (f64::from(count.saturating_sub(load.workers.running)) * each).max(0.0);
    let predicted = line.last_begins_s(to_come, task_s);
    if predicted.is_finite() {
        because.push(format!("with {count} the last who waits begins within {}", said(predicted)));
    }
    Verdict { count, because }
}

fn said(seconds: f64) -> Span {
    // To the second, or it would be another word in each pass.
    let whole = seconds.clamp(0.0, 1e9);
    Span(if whole < 10.0 {
        Duration::from_millis((whole * 10.0).round() as u64 * 100)
    } else {
        Duration::from_secs(whole.round() as u64)
    })
}
