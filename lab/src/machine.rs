//! What a figure was measured on.

use serde::Serialize;

#[derive(Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_gib: u64,
    pub kernel: String,
}

impl Machine {
    pub fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 = memory.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory_gib: kib >> 20,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}
