//! Ending processes that nobody holds any more: orphans of a killed parent, found by a mark in their environment,
//! which every descendant inherits, or by their working directory.
//!
//! Not the normal way to stop something: a holder signals its child by pid.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::wait;

/// How long processes that were sent SIGKILL may take to vanish.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// One process, as `/proc` shows it.
#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    pub command: Vec<String>,
}

impl Process {
    /// Whether two words follow each other in its command line: `role worker`.
    pub fn runs(&self, noun: &str, verb: &str) -> bool {
        self.command.windows(2).any(|pair| pair[0] == noun && pair[1] == verb)
    }
}

/// Every process of this machine that we may look at, but for ourselves and the dead.
pub fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id()).filter_map(look_at).collect()
}

fn look_at(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may itself contain some.
    let mut after_name = stat[stat.rfind(')')? + 1..].split_whitespace();
    let (state, parent) = (after_name.next()?, after_name.next()?.parse().ok()?);
    if state == "Z" {
        return None;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = line.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    Some(Process { pid, parent, command })
}

/// Whether the process was started with this variable, or is a descendant of one that was.
pub fn is_marked(pid: u32, variable: &str, value: &str) -> bool {
    let mark = format!("{variable}={value}");
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|e| e.split(|b| *b == 0).any(|v| v == mark.as_bytes()))
}

pub fn works_in(pid: u32, folder: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|dir| dir.starts_with(folder))
}

/// Asks every process that `chosen` picks to end, in a way that it may clear up after itself; then as [`kill_all`].
pub fn end_all(asking: Signal, patience: Duration, chosen: impl Fn(&Process) -> bool) -> bool {
    let still_there = || processes().into_iter().filter(|p| chosen(p)).collect::<Vec<_>>();
    for process in still_there() {
        signal_if(process.pid, asking, || look_at(process.pid).is_some_and(|now| chosen(&now)));
    }
    wait::holds_within(patience, || still_there().is_empty()) || kill_all(chosen)
}

/// SIGKILL to every process that `chosen` picks, again and again until none is left. False when some stayed.
pub fn kill_all(chosen: impl Fn(&Process) -> bool) -> bool {
    wait::holds_within(GONE_WITHIN, || {
        let mut none_left = true;
        for process in processes().iter().filter(|p| chosen(p)) {
            none_left = false;
            signal_if(process.pid, Signal::KILL, || look_at(process.pid).is_some_and(|now| chosen(&now)));
        }
        none_left
    })
}

/// The pid may have passed to a stranger since we looked, so: hold it, look again, and only then shoot.
fn signal_if(pid: u32, signal: Signal, still_chosen: impl Fn() -> bool) {
    let Some(raw) = Pid::from_raw(pid as i32) else { return };
    let Ok(held) = pidfd_open(raw, PidfdFlags::empty()) else { return };
    if still_chosen() {
        let _ = pidfd_send_signal(held, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_is_found_by_its_inherited_mark_and_killed() {
        let value = mutirao_core::SessionId::random().0;
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 1000 & exec sleep 1001"])
            .env("MUTIRAO_TEST_MARK", &value)
            .spawn()
            .unwrap();
        let marked = |p: &Process| is_marked(p.pid, "MUTIRAO_TEST_MARK", &value);
        let count = || processes().iter().filter(|p| marked(p)).count();
        wait::until("both to run", Duration::from_secs(5), || count() == 2);
        assert!(kill_all(marked));
        assert_eq!(count(), 0);
        shell.wait().unwrap();
    }
}
