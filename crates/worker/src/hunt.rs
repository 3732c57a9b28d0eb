//! Finding processes by what their environment says, wherever in the process tree they have gone, and killing them.
//!
//! A process that was started with an emptied environment is not found this way; its process group, and its cgroup
//! where there is one, are.

use std::io::Read;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Environments are at most a quarter of the stack limit, 2 MiB by default.
const ENVIRON_BYTES_MAX: u64 = 8 << 20;

/// A killed process takes a moment to go, and may have started another just before.
const LOOKS_MAX: u32 = 50;
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Kills until a look finds nobody. Blocks for some milliseconds, most of them where there is somebody.
pub(crate) fn kill_all_marked(marks: &[String]) {
    for _ in 0..LOOKS_MAX {
        if kill_marked(marks) == 0 {
            return;
        }
        pause(LOOK_EVERY);
    }
}

#[allow(clippy::disallowed_methods, reason = "on a thread of its own, waiting for real processes to go")]
fn pause(for_: Duration) {
    std::thread::sleep(for_);
}

/// Kills every process whose environment holds all of `marks` (`NAME=value`), but for this one. Answers with how many
/// were found.
pub(crate) fn kill_marked(marks: &[String]) -> usize {
    let me = std::process::id() as i32;
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != me && is_marked(*pid, marks) && kill(*pid, marks))
        .count()
}

/// A pid may be given to another process between looking and killing, so it is pinned first and looked at again.
fn kill(pid: i32, marks: &[String]) -> bool {
    let Some(pinned) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return false;
    };
    is_marked(pid, marks) && pidfd_send_signal(&pinned, Signal::KILL).is_ok()
}

fn is_marked(pid: i32, marks: &[String]) -> bool {
    let Ok(file) = std::fs::File::open(format!("/proc/{pid}/environ")) else { return false };
    let mut environ = Vec::new();
    if file.take(ENVIRON_BYTES_MAX).read_to_end(&mut environ).is_err() {
        return false;
    }
    marks.iter().all(|mark| environ.split(|byte| *byte == 0).any(|var| var == mark.as_bytes()))
}
