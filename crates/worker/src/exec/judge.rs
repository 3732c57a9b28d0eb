//! From how a process ended to an outcome: verdict, reason, cost.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use mutirao_core::outcome::Usage;
use mutirao_core::{Outcome, Timestamp, Verdict};

use super::Runner;
use super::halt::HaltReason;
use super::series::Series;
use crate::cgroup::Group;
use crate::desk::Task;

pub(crate) fn outcome(
    runner: &Runner,
    task: &Task,
    series: &Series,
    group: Option<&Group>,
    wall: Duration,
    started_at: Timestamp,
) -> Outcome {
    let ended = &series.ended;
    let verdict = match ended.halted {
        Some(reason) => reason.verdict(),
        None if ended.status.success() => Verdict::Ok,
        None => Verdict::Failed,
    };
    let mut outcome = Outcome::new(verdict, started_at);
    outcome.exit = ended.status.code();
    outcome.signal = ended.status.signal();
    outcome.reason = match ended.halted {
        Some(HaltReason::TimedOut) => {
            series.named(task.spec.timeout.map(|timeout| format!("ran longer than its {timeout}")))
        }
        Some(_) => None,
        None if verdict == Verdict::Failed => {
            let killed = group.filter(|group| group.oom_kills() > 0);
            series.named(
                killed.map(|_| format!("killed: used more than its {} of memory", task.spec.needs.memory.rough())),
            )
        }
        None => None,
    };
    series.stuck_outcome(&mut outcome);
    outcome.usage = Usage {
        wall_us: wall.as_micros() as u64,
        cpu_user_us: ended.usage.utime.as_micros() as u64,
        cpu_system_us: ended.usage.stime.as_micros() as u64,
        memory_peak_bytes: group.and_then(Group::peak_bytes).or_else(|| peak_of_its_own(runner, ended.usage.maxrss)),
    };
    outcome
}

/// A process begins as a copy of the worker, and the kernel counts that against it. Only what lies above the worker's
/// own peak is certainly the task's.
fn peak_of_its_own(runner: &Runner, peak_bytes: u64) -> Option<u64> {
    (peak_bytes > runner.own_peak_above(peak_bytes)).then_some(peak_bytes)
}

/// The most memory this process has held.
pub(crate) fn own_peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
