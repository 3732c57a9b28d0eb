//! One process from its start to its end: the hot path. A thread sleeps in `poll` on the process, its pipes and a bell,
//! with the nearest deadline as timeout, and reads only what `poll` announced, so that no pipe need be non-blocking.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use mutirao_core::{Clock, Mono};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use wait4::{ResourceUsage, Wait4};

use super::halt::{Halt, HaltReason};
use super::output::Capture;
use super::program::CannotStart;
use super::threads::Bench;

/// A task is reported as begun when it has run this long; a shorter one is not worth the word.
const LASTING_AFTER: Duration = Duration::from_millis(100);
/// Output is sent on while the task runs when it has run this long.
const LIVE_AFTER: Duration = Duration::from_millis(300);
/// What may still be in a pipe when the process has ended: the most that a pipe can be made to hold.
const PIPE_BYTES_MAX: usize = 1 << 20;

/// A started process and its pipes.
pub(crate) struct Started {
    child: Child,
    group: Pid,
    pidfd: OwnedFd,
}

pub(crate) fn spawn(command: &mut Command) -> io::Result<Started> {
    let mut child = command.spawn()?;
    let group = Pid::from_child(&child);
    match pidfd_open(group, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Started { child, group, pidfd }),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error.into())
        }
    }
}

/// How it ended.
pub(crate) struct Ended {
    pub status: ExitStatus,
    pub usage: ResourceUsage,
    /// It was stopped, and why.
    pub halted: Option<HaltReason>,
    pub stdout: Capture,
    pub stderr: Capture,
}

impl Ended {
    /// Of the commands of one task, what they cost together. The output is in one piece already.
    pub fn after(mut self, before: &ResourceUsage) -> Self {
        self.usage.utime += before.utime;
        self.usage.stime += before.stime;
        self.usage.maxrss = self.usage.maxrss.max(before.maxrss);
        self
    }
}

/// What is watched for while a process runs.
pub(crate) struct Attend<'a> {
    pub clock: &'a dyn Clock,
    pub began: Mono,
    pub timeout: Option<Duration>,
    pub grace: Duration,
    pub halt_grace_max: Duration,
    pub halt: &'a Halt,
    pub lasting: &'a dyn Fn(),
}

/// Stopping by force: SIGTERM was sent, SIGKILL follows.
struct Halting {
    reason: HaltReason,
    kill_at: Option<Mono>,
}

struct Pipe {
    end: Option<OwnedFd>,
    capture: Capture,
}

struct Feed<'a> {
    end: Option<OwnedFd>,
    rest: &'a [u8],
}

impl Attend<'_> {
    pub fn see_it_out(
        &self,
        mut started: Started,
        stdin: &str,
        (stdout, stderr): (Capture, Capture),
        bench: &mut Bench,
    ) -> Result<Ended, CannotStart> {
        let mut stdout = Pipe { end: started.child.stdout.take().map(OwnedFd::from), capture: stdout };
        let mut stderr = Pipe { end: started.child.stderr.take().map(OwnedFd::from), capture: stderr };
        let mut feed = Feed::new(started.child.stdin.take().map(OwnedFd::from), stdin.as_bytes());
        self.halt.ring(bench.bell.clone());
        let halted = self.until_exit(&started, &mut stdout, &mut stderr, &mut feed, bench);
        stdout.drain(&mut bench.buffer);
        stderr.drain(&mut bench.buffer);
        // The dead leader is not reaped yet, so its number, which is the group's, cannot be anybody else's.
        let _ = kill_process_group(started.group, Signal::KILL);
        let waited = started.child.wait4();
        let waited = waited.map_err(|error| CannotStart::System { program: "the process".into(), error })?;
        Ok(Ended {
            status: waited.status,
            usage: waited.rusage,
            halted,
            stdout: stdout.capture,
            stderr: stderr.capture,
        })
    }

    fn until_exit(
        &self,
        started: &Started,
        stdout: &mut Pipe,
        stderr: &mut Pipe,
        feed: &mut Feed,
        bench: &mut Bench,
    ) -> Option<HaltReason> {
        let deadline = self.timeout.map(|timeout| self.began.plus(timeout));
        let mut lasting_at = Some(self.began.plus(LASTING_AFTER));
        let mut live_at = Some(self.began.plus(LIVE_AFTER));
        let mut halting: Option<Halting> = None;
        loop {
            let now = self.clock.monotonic();
            if lasting_at.take_if(|at| *at <= now).is_some() {
                (self.lasting)();
            }
            if live_at.take_if(|at| *at <= now).is_some() {
                stdout.capture.go_live();
                stderr.capture.go_live();
            }
            self.halt_if_due(started, &mut halting, deadline, now);
            let next_halt = match &halting {
                Some(halting) => halting.kill_at,
                None => deadline,
            };
            let wait = [lasting_at, live_at, next_halt].into_iter().flatten().min().map(|at| at.since(now));
            let ready = Ready::wait(started, stdout, stderr, feed, bench, wait);
            if ready.bell {
                let _ = rustix::io::read(&bench.bell, &mut [0u8; 8]);
            }
            if ready.stdout {
                stdout.read(&mut bench.buffer);
            }
            if ready.stderr {
                stderr.read(&mut bench.buffer);
            }
            if ready.stdin {
                feed.write();
            }
            if ready.exited {
                return halting.map(|halting| halting.reason);
            }
        }
    }

    /// SIGTERM to the group when there is a reason to stop, SIGKILL once its grace is over.
    fn halt_if_due(&self, started: &Started, halting: &mut Option<Halting>, deadline: Option<Mono>, now: Mono) {
        match halting {
            None => {
                let timed_out = deadline.filter(|at| *at <= now).map(|_| HaltReason::TimedOut);
                let Some(reason) = self.halt.reason().or(timed_out) else { return };
                let _ = kill_process_group(started.group, Signal::TERM);
                // A stopped process would only die of the SIGKILL.
                let _ = kill_process_group(started.group, Signal::CONT);
                let grace = match reason {
                    HaltReason::Returned => self.grace.min(self.halt_grace_max),
                    HaltReason::Cancelled | HaltReason::TimedOut => self.grace,
                };
                *halting = Some(Halting { reason, kill_at: Some(now.plus(grace)) });
            }
            Some(halting) => {
                if halting.kill_at.take_if(|at| *at <= now).is_some() {
                    let _ = kill_process_group(started.group, Signal::KILL);
                }
            }
        }
    }
}

/// What `poll` announced.
#[derive(Default)]
struct Ready {
    exited: bool,
    bell: bool,
    stdout: bool,
    stderr: bool,
    stdin: bool,
}

impl Ready {
    fn wait(
        started: &Started,
        stdout: &Pipe,
        stderr: &Pipe,
        feed: &Feed,
        bench: &Bench,
        wait: Option<Duration>,
    ) -> Self {
        let mut fds = Vec::with_capacity(5);
        let mut add = |fd, flags| {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
            fds.len() - 1
        };
        let exited = Some(add(started.pidfd.as_fd(), PollFlags::IN));
        let bell = Some(add(bench.bell.as_fd(), PollFlags::IN));
        let stdout = stdout.end.as_ref().map(|end| add(end.as_fd(), PollFlags::IN));
        let stderr = stderr.end.as_ref().map(|end| add(end.as_fd(), PollFlags::IN));
        let stdin = feed.end.as_ref().map(|end| add(end.as_fd(), PollFlags::OUT));
        // Rounded up, so that what is due is due when we wake.
        let timeout = wait.map(|wait| wait + Duration::from_micros(50));
        let timeout =
            timeout.map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(_) => Self::default(),
            Ok(_) => {
                let is = |at: Option<usize>| at.is_some_and(|at| !fds[at].revents().is_empty());
                Self { exited: is(exited), bell: is(bell), stdout: is(stdout), stderr: is(stderr), stdin: is(stdin) }
            }
        }
    }
}

impl Pipe {
    /// Once, after `poll` said that there is something, or that there will be no more.
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        let Some(end) = &self.end else { return 0 };
        match rustix::io::read(end, &mut *buffer) {
            Ok(0) => self.end = None,
            Ok(n) => {
                self.capture.take(&buffer[..n]);
                return n;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.end = None,
        }
        0
    }

    /// Takes what is in the pipe now, without waiting for whoever else may hold it open.
    fn drain(&mut self, buffer: &mut [u8]) {
        let mut drained = 0;
        while drained < PIPE_BYTES_MAX
            && let Some(end) = &self.end
        {
            let mut fds = [PollFd::new(end, PollFlags::IN)];
            match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
                Ok(1) => drained += self.read(buffer),
                Ok(_) => return,
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

impl<'a> Feed<'a> {
    fn new(end: Option<OwnedFd>, rest: &'a [u8]) -> Self {
        // The one pipe that is written to: a large write would wait for its reader.
        let end = end.filter(|end| !rest.is_empty() && rustix::io::ioctl_fionbio(end, true).is_ok());
        Self { end, rest }
    }

    fn write(&mut self) {
        let Some(end) = &self.end else { return };
        match rustix::io::write(end, self.rest) {
            Ok(n) => self.rest = &self.rest[n..],
            Err(Errno::INTR | Errno::AGAIN) => return,
            // Nobody reads it any more.
            Err(_) => self.rest = &[],
        }
        if self.rest.is_empty() {
            self.end = None;
        }
    }
}
