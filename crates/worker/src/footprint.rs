//! What this worker and everything it runs use, read from the kernel for its beats. Cpu is what passed since a look that was a
//! while ago, so that one busy moment is not taken for load. Memory is what is resident; what processes share is counted for
//! each. What cannot be read is absent, never zero: policies know the two apart.
//!
//! Not here: limits ([`cgroup`](crate::cgroup)), and what a single task used, which its outcome says.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mutirao_core::envelope::Footprint;
use mutirao_core::{Mono, meminfo};

/// Between two looks at the processes: with many, a look takes milliseconds.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Processes looked at; those beyond are not counted.
const PROCESSES_MAX: usize = 4_096;

/// Looks at the kernel's figures, not more often than it makes sense.
#[derive(Debug, Default)]
pub struct Gauge(Mutex<Option<Look>>);

/// The last look, and what was concluded from it.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Mono,
    tree: Option<Usage>,
    footprint: Footprint,
}

/// Of one process, or of several: its cpu time, that of its children that have ended, and its resident pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    ticks: u64,
    pages: u64,
}

impl Gauge {
    pub fn look(&self, now: Mono) -> Footprint {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(look) = last.filter(|look| now.since(look.at) < LOOK_EVERY) {
            return look.footprint;
        }
        let tree = usage_of_tree(std::process::id());
        let cpu_milli = last.and_then(|before| cpu_milli(before.tree?, tree?, now.since(before.at)));
        let memory_bytes = tree.map(|usage| usage.pages * rustix::param::page_size() as u64);
        let meminfo = std::fs::read_to_string("/proc/meminfo").ok();
        let host_memory_percent = meminfo.and_then(|text| meminfo::used_percent(&text)).map(|used| used.round() as u8);
        let footprint = Footprint { cpu_milli, memory_bytes, host_memory_percent };
        *last = Some(Look { at: now, tree, footprint });
        footprint
    }
}

/// None when time went back: who had ended and was counted is counted no more.
fn cpu_milli(before: Usage, now: Usage, passed: Duration) -> Option<u32> {
    let ticks = now.ticks.checked_sub(before.ticks)?;
    let cpu_ms = ticks.saturating_mul(1_000) / rustix::param::clock_ticks_per_second().max(1);
    let milli = u128::from(cpu_ms) * 1_000 / passed.as_millis().max(1);
    u32::try_from(milli).ok()
}

/// Of a process and those below it.
fn usage_of_tree(root: u32) -> Option<Usage> {
    let mut sum: Option<Usage> = None;
    let (mut to_look_at, mut looked_at) = (vec![root], 0);
    while let Some(pid) = to_look_at.pop().filter(|_| looked_at < PROCESSES_MAX) {
        looked_at += 1;
        // One that has ended meanwhile is in its parent's figures the next time.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        let Some(usage) = stat.and_then(|text| usage_of(&text)) else { continue };
        let before = sum.unwrap_or_default();
        sum = Some(Usage { ticks: before.ticks + usage.ticks, pages: before.pages + usage.pages });
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for children in threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok()) {
            to_look_at.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    sum
}

/// The name of the program, in parentheses, may contain anything; what follows is numbers.
fn usage_of(stat: &str) -> Option<Usage> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)? + number(13)? + number(14)?;
    Some(Usage { ticks, pages: number(21)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_process_are_found_whatever_it_is_called() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 120 0 0 0 10 20 300 4000 20 0 1 0 99 1000 55 184467 1 1 0";
        assert_eq!(usage_of(stat), Some(Usage { ticks: 4_330, pages: 55 }));
        assert_eq!(usage_of("rubbish"), None);
    }

    #[test]
    fn cpu_is_what_passed_between_two_looks_in_thousandths_of_one() {
        let of = |ticks| Usage { ticks, pages: 0 };
        let second = rustix::param::clock_ticks_per_second();
        assert_eq!(cpu_milli(of(0), of(second), Duration::from_secs(2)), Some(500));
        assert_eq!(cpu_milli(of(second), of(0), Duration::from_secs(2)), None);
    }

    #[test]
    fn children_count_and_a_second_look_knows_the_cpu() {
        let gauge = Gauge::default();
        let first = gauge.look(Mono(Duration::ZERO));
        assert!(first.cpu_milli.is_none() && first.memory_bytes > Some(0) && first.host_memory_percent.is_some());
        let alone = usage_of_tree(std::process::id()).unwrap().ticks;
        // A fifth of a second of cpu, in a child that has ended when it is looked for.
        let busy = "i=0; while [ $(cut -d' ' -f14 /proc/$$/stat) -lt 20 ]; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; done";
        assert!(std::process::Command::new("sh").args(["-c", busy]).status().unwrap().success());
        assert!(usage_of_tree(std::process::id()).unwrap().ticks >= alone + 20);
        assert_eq!(gauge.look(Mono(Duration::from_secs(1))), first, "too soon for another look");
        let second = gauge.look(Mono(Duration::from_secs(10)));
        assert!(second.cpu_milli >= Some(20), "{second:?}");
    }
}
