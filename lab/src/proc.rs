//! What processes cost, read from the kernel.

use std::time::Duration;

/// CPU time of a process, its dead threads included and its children not.
pub fn cpu(pid: u32) -> Duration {
    ticks(&format!("/proc/{pid}/stat"))
}

/// CPU time of a process and of its children, those that ended and were waited for included.
pub fn cpu_of_family(pid: u32) -> Duration {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let living: Duration = children.split_whitespace().filter_map(|pid| pid.parse().ok()).map(cpu).sum();
    fields(&format!("/proc/{pid}/stat"), &[11, 12, 13, 14]) + living
}

/// CPU time of this process's threads, by name.
pub fn cpu_by_thread() -> Vec<(String, Duration)> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let mut sums: std::collections::BTreeMap<String, Duration> = Default::default();
    for thread in threads.flatten() {
        let folder = thread.path();
        let name = std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
        *sums.entry(name.trim().to_owned()).or_default() += ticks(&folder.join("stat").to_string_lossy());
    }
    sums.into_iter().collect()
}

fn ticks(path: &str) -> Duration {
    fields(path, &[11, 12])
}

/// The sum of some fields of a `stat` file, counted after the name.
fn fields(path: &str, which: &[usize]) -> Duration {
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    // The name, in parentheses, may contain spaces; the rest does not.
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let field = |n: usize| rest.split(' ').nth(n).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    let hz = rustix::param::clock_ticks_per_second();
    let sum: u64 = which.iter().map(|n| field(*n)).sum();
    Duration::from_secs_f64(sum as f64 / hz as f64)
}

/// Resident memory now, and at its highest, in bytes.
pub fn memory(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    };
    (kib("VmRSS:") << 10, kib("VmHWM:") << 10)
}
