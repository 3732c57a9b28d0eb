//! How busy this machine is, from what the kernel tells: each core, its waiting for disks, memory, bytes of disks and networks.
//! What is a rate is what passed between two looks; the first look knows none. Where a control group gives this process a share of
//! the cores, the share is the machine: what others do beside it is not this host's.

use std::collections::BTreeMap;

use mutirao_streams::wire::Usage;

use super::group::{Group, Seen};

const SECTOR_BYTES: u64 = 512;

/// What only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counters {
    cpus: Vec<Cpu>,
    disk_bytes: u64,
    network_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cpu {
    busy: u64,
    io_wait: u64,
    all: u64,
}

#[derive(Debug)]
pub struct Machine {
    group: Group,
    before: Option<(Counters, Option<Seen>)>,
}

impl Machine {
    pub fn here() -> Self {
        Self { group: Group::of_this_process(), before: None }
    }

    /// A few short reads of files that are on no disk. Rates are of the time since the look before.
    pub fn look(&mut self, seconds: f64) -> Usage {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let now = Counters {
            cpus: cpus(&read("/proc/stat")),
            disk_bytes: disks(&read("/proc/diskstats")),
            network_bytes: networks(&read("/proc/net/dev")),
        };
        let (memory_bytes, memory_total_bytes) = memory(&read("/proc/meminfo"));
        let seen = self.group.look();
        let before = self.before.replace((now.clone(), seen));
        let Some((before, seen_before)) = before.filter(|(before, _)| before.cpus.len() == now.cpus.len()) else {
            return Usage { memory_bytes, memory_total_bytes, ..Usage::default() };
        };
        let pairs = || before.cpus.iter().zip(&now.cpus);
        let a_second = |before: u64, now: u64| (now.saturating_sub(before) as f64 / seconds.max(0.001)) as u64;
        let machine = Usage {
            cpus: pairs().map(|(before, now)| share(before.all, now.all, before.busy, now.busy)).collect(),
            io_wait: pairs().map(|(before, now)| share(before.all, now.all, before.io_wait, now.io_wait)).collect(),
            memory_bytes,
            memory_total_bytes,
            cores: 0.0,
            disk_bytes: a_second(before.disk_bytes, now.disk_bytes),
            network_bytes: a_second(before.network_bytes, now.network_bytes),
        };
        match seen_before.zip(seen).filter(|(_, seen)| seen.cores < now.cpus.len() as f64) {
            Some((before, seen)) => limited(machine, &before, &seen, seconds),
            None => machine,
        }
    }
}

/// The machine as a group has it: what it may use of it, and what it used.
fn limited(machine: Usage, before: &Seen, seen: &Seen, seconds: f64) -> Usage {
    let a_second = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds.max(0.001);
    let cores = seen.cores.ceil().max(1.0) as usize;
    let busy = a_second(before.cpu_us, seen.cpu_us) / 1e6;
    let io_wait = machine.io_wait.iter().sum::<f64>() / machine.io_wait.len().max(1) as f64;
    let (memory_bytes, memory_total_bytes) = match seen.memory {
        Some((used, limit)) if limit < machine.memory_total_bytes => (used, limit),
        _ => (machine.memory_bytes, machine.memory_total_bytes),
    };
    let disk_bytes = before.disk_bytes.zip(seen.disk_bytes).map(|(before, now)| a_second(before, now) as u64);
    Usage {
        cpus: vec![(busy / cores as f64).min(1.0); cores],
        io_wait: vec![io_wait; cores],
        cores: seen.cores,
        memory_bytes,
        memory_total_bytes,
        disk_bytes: disk_bytes.unwrap_or(machine.disk_bytes),
        network_bytes: machine.network_bytes,
    }
}

fn share(all_before: u64, all: u64, before: u64, now: u64) -> f64 {
    match all.saturating_sub(all_before) {
        0 => 0.0,
        passed => (now.saturating_sub(before) as f64 / passed as f64).min(1.0),
    }
}

fn figures<'a>(words: impl Iterator<Item = &'a str>) -> Vec<u64> {
    words.map_while(|word| word.parse().ok()).collect()
}

/// `cpu0 user nice system idle iowait irq softirq steal …`; guests are in user already.
fn cpus(stat: &str) -> Vec<Cpu> {
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.strip_prefix("cpu")?;
        if name.is_empty() {
            return None;
        }
        let ticks = figures(words.take(8));
        let [_, _, _, idle, io_wait, ..] = ticks[..] else { return None };
        let all: u64 = ticks.iter().sum();
        Some(Cpu { busy: all - idle - io_wait, io_wait, all })
    };
    stat.lines().filter_map(one).collect()
}

/// Of whole disks: what a partition or a mapped disk does, the disk below it does too.
fn disks(diskstats: &str) -> u64 {
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    for line in diskstats.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(name), Some(read), Some(written)) = (words.get(2), words.get(5), words.get(9)) else { continue };
        if ["loop", "ram", "dm-", "md", "zram", "sr"].iter().any(|other| name.starts_with(other)) {
            continue;
        }
        let figure = |word: &str| word.parse::<u64>().unwrap_or(0);
        all.insert(name, (figure(read) + figure(written)) * SECTOR_BYTES);
    }
    let names: Vec<&str> = all.keys().copied().collect();
    let is_part = |name: &str| {
        names.iter().any(|whole| {
            let rest = name.strip_prefix(whole).unwrap_or_default();
            let rest = rest.strip_prefix('p').unwrap_or(rest);
            *whole != name && !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())
        })
    };
    all.iter().filter(|(name, _)| !is_part(name)).map(|(_, bytes)| bytes).sum()
}

/// In and out, but for what a machine says to itself.
fn networks(dev: &str) -> u64 {
    let one = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let words = figures(rest.split_whitespace());
        let (received, sent) = (words.first()?, words.get(8)?);
        (name.trim() != "lo").then_some(received + sent)
    };
    dev.lines().filter_map(one).sum()
}

/// Used, and all there is.
fn memory(meminfo: &str) -> (u64, u64) {
    let of = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let total = of("MemTotal").unwrap_or(0) * 1024;
    let free = of("MemAvailable").unwrap_or(0) * 1024;
    (total.saturating_sub(free), total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_core_is_told_apart_and_waiting_for_disks_is_not_work() {
        let stat = "cpu 9 9 9 9 9 9 9 9\ncpu0 10 0 10 70 10 0 0 0 0 0\ncpu1 1 1 1 1 1 1 1 1\nintr 1 2 3\n";
        let cpus = cpus(stat);
        assert_eq!(cpus[0], Cpu { busy: 20, io_wait: 10, all: 100 });
        assert_eq!(cpus.len(), 2);
        assert_eq!(share(100, 200, 20, 70), 0.5);
    }

    #[test]
    fn a_partition_is_not_counted_beside_its_disk() {
        let line = |name: &str, read: u64, written: u64| format!("8 0 {name} 1 0 {read} 0 1 0 {written} 0 0 0 0\n");
        let text = line("sda", 10, 20) + &line("sda1", 10, 20) + &line("nvme0n1", 1, 1) + &line("nvme0n1p1", 1, 1);
        assert_eq!(disks(&(text + &line("loop0", 9, 9))), 32 * 512);
    }

    #[test]
    fn what_a_machine_says_to_itself_is_no_network() {
        let dev = "Inter-|\n face |\n  lo: 5 0 0 0 0 0 0 0 5 0\neth0: 7 0 0 0 0 0 0 0 8 0\n";
        assert_eq!(networks(dev), 15);
        assert_eq!(memory("MemTotal: 100 kB\nMemAvailable: 40 kB\n"), (60 * 1024, 100 * 1024));
    }

    #[test]
    fn of_a_machine_with_a_limit_only_the_share_counts() {
        let machine = Usage {
            cpus: vec![1.0; 8],
            io_wait: vec![0.0; 8],
            cores: 0.0,
            memory_bytes: 900,
            memory_total_bytes: 1_000,
            disk_bytes: 77,
            network_bytes: 5,
        };
        let before = Seen { cores: 1.5, cpu_us: 1_000_000, memory: None, disk_bytes: Some(10) };
        let seen = Seen { cores: 1.5, cpu_us: 4_000_000, memory: Some((100, 200)), disk_bytes: Some(30) };
        let share = limited(machine.clone(), &before, &seen, 2.0);
        assert_eq!((share.cpus, share.cores), (vec![0.75; 2], 1.5));
        assert_eq!((share.memory_bytes, share.memory_total_bytes), (100, 200));
        assert_eq!((share.disk_bytes, share.network_bytes), (10, 5));
        let no_limit = Seen { memory: Some((100, 2_000)), disk_bytes: None, ..seen };
        let share = limited(machine, &before, &no_limit, 2.0);
        assert_eq!((share.memory_bytes, share.memory_total_bytes, share.disk_bytes), (900, 1_000, 77));
    }

    #[test]
    fn this_machine_has_cores() {
        let mut machine = Machine::here();
        assert!(machine.look(1.0).cpus.is_empty());
        let seen = machine.look(1.0);
        assert!(!seen.cpus.is_empty() && seen.memory_total_bytes > 0);
    }
}
