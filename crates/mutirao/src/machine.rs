//! What this machine has to give: cpus, memory, a name. A container's limit counts as the machine's. And what this process
//! keeps from others on it.

use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_core::task::Needs;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::config::{Auto, Settings};

/// Where the kernel says how much memory this container may use: cgroup v2, then v1.
const MEMORY_LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// From now on no other process of the same user can read our memory or our environment, where passwords are: tasks
/// often run as the user that we run as. Root still can, and a core is not dumped any more.
pub fn hide_memory() {
    // Where it is not possible, everything else still works.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

pub fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    let installed = info.totalram as u64 * u64::from(info.mem_unit);
    let limit = |path: &&str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    MEMORY_LIMITS.iter().filter_map(limit).fold(installed, u64::min)
}

pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What one of `workers` workers gives to tasks.
pub fn share(settings: &Settings, workers: u32) -> Needs {
    share_of(cpus(), memory(), settings, workers)
}

fn share_of(cpus: u32, memory: u64, settings: &Settings, workers: u32) -> Needs {
    let workers = workers.max(1);
    let even = Cpus { milli: (cpus.saturating_mul(1000) / workers).max(Cpus::ONE.milli) };
    Needs {
        cpus: match settings.worker_cpus {
            Auto::Set(cpus) => cpus,
            Auto::Auto => even,
        },
        memory: match settings.worker_memory {
            Auto::Set(memory) => memory,
            Auto::Auto => Bytes(memory / u64::from(workers)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, FromFlags, Given};

    fn settings(pairs: &[&str]) -> Settings {
        let given = pairs.iter().map(|pair| Given::pair(pair).unwrap()).collect();
        Config::load(&FromFlags { file: None, given }, []).unwrap().settings
    }

    #[test]
    fn the_machine_is_shared_out_evenly_and_everybody_gets_a_cpu() {
        let auto = settings(&[]);
        assert_eq!(share_of(8, 16 << 30, &auto, 2), Needs { cpus: Cpus { milli: 4_000 }, memory: Bytes(8 << 30) });
        assert_eq!(share_of(3, 9, &auto, 2).cpus, Cpus { milli: 1_500 });
        assert_eq!(share_of(2, 9, &auto, 5).cpus, Cpus::ONE);
        assert_eq!(share_of(2, 9, &auto, 0).cpus, Cpus { milli: 2_000 });
    }

    #[test]
    fn what_is_set_is_taken_as_it_is() {
        let set = settings(&["worker.cpus=0.5", "worker.memory=64M"]);
        assert_eq!(share_of(8, 16 << 30, &set, 2), Needs { cpus: Cpus { milli: 500 }, memory: Bytes(64 << 20) });
    }

    #[test]
    fn this_machine_has_something_to_give() {
        assert!(cpus() >= 1 && memory() > 1 << 20 && !host_name().is_empty());
    }
}
