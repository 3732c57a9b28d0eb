//! How busy this machine is, from what the kernel tells. Cpu is what passed between two looks; the first look knows none.

use mutirao_core::meminfo;
use mutirao_elastic::measure::Host;
use parking_lot::Mutex;

/// Cpu time since the machine started, in whatever the kernel counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cpu {
    busy: u64,
    all: u64,
}

#[derive(Default)]
pub struct Machine(Mutex<Option<Cpu>>);

impl Machine {
    /// Two short reads of files that are not on a disk.
    pub fn look(&self) -> Host {
        let cpu = std::fs::read_to_string("/proc/stat").ok().and_then(|text| cpu(&text));
        let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo::used_percent(&text));
        let before = cpu.and_then(|now| self.0.lock().replace(now));
        Host { cpu_percent: before.zip(cpu).and_then(|(before, now)| percent(before, now)), memory_percent: memory }
    }
}

fn percent(before: Cpu, now: Cpu) -> Option<f64> {
    let (busy, all) = (now.busy.checked_sub(before.busy)?, now.all.checked_sub(before.all)?);
    (all > 0).then(|| busy as f64 * 100.0 / all as f64)
}

/// The first line: `cpu user nice system idle iowait irq softirq steal …`; the guests are in user already.
fn cpu(stat: &str) -> Option<Cpu> {
    let mut words = stat.lines().next()?.split_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let [_, _, _, idle, iowait, ..] = ticks[..] else { return None };
    let all = ticks.iter().sum();
    Some(Cpu { busy: all - idle - iowait, all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_what_passed_between_two_looks() {
        let before = cpu("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n").unwrap();
        let now = cpu("cpu  150 0 125 750 125 0 0 0 0 0\n").unwrap();
        assert_eq!(percent(before, now), Some(50.0));
        assert_eq!(percent(now, before), None, "a counter that went back says nothing");
        assert_eq!(cpu("rubbish"), None);
    }
}
