//! The keeper: a tiny process that outlives a killed worker by a moment and ends the worker's tasks.
//!
//! It holds the reading end of a pipe whose writing end only the worker has. However the worker dies, SIGKILL included,
//! the kernel closes that end; the keeper then kills every process that carries the session's mark in its environment,
//! also those that left their process group, and goes.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use mutirao_core::SessionId;

use crate::exec::SESSION_VAR;
use crate::{cgroup, hunt};

/// Looks that must find nothing, one after the other, before the keeper believes it is done. More than one, because a
/// task being started when the worker died may not carry its mark yet.
const CLEAN_LOOKS: u32 = 3;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A process that cannot be killed must not keep the keeper for ever.
const LOOKS_MAX: u32 = 300;

/// The worker's handle on its keeper. Dropping it sets the keeper to work.
#[derive(Debug)]
pub struct Keeper {
    child: Child,
    /// Never written to: its closing is the message.
    line: Option<ChildStdin>,
}

impl Keeper {
    /// Starts `exe args… <session>`, which must call [`main`] with that session.
    pub fn start(exe: &Path, args: &[&str], session: &SessionId) -> std::io::Result<Self> {
        let mut child = Command::new(exe)
            .args(args)
            .arg(&session.0)
            .env_remove(SESSION_VAR)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A group of its own: a Ctrl-C or a kill meant for the worker's group must not take the keeper along.
            .process_group(0)
            .spawn()?;
        let line = child.stdin.take();
        Ok(Self { child, line })
    }

    /// Lets the keeper tidy up and waits until it has gone. Blocks for some hundred milliseconds.
    pub(crate) fn dismiss(mut self) {
        drop(self.line.take());
        let _ = self.child.wait();
    }
}

/// What the keeper process does. Returns once nothing of the session is left.
pub fn main(session: &SessionId) {
    // Nothing is ever sent, so this returns when the line is cut, or broken, which is as good.
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    let mark = [format!("{SESSION_VAR}={session}")];
    let mut clean = 0;
    for _ in 0..LOOKS_MAX {
        if hunt::kill_marked(&mark) == 0 {
            clean += 1;
        } else {
            clean = 0;
        }
        if clean == CLEAN_LOOKS {
            break;
        }
        pause(LOOK_EVERY);
    }
    cgroup::sweep(session);
}

#[allow(clippy::disallowed_methods, reason = "a process of one thread, without a runtime, watching real processes")]
fn pause(for_: Duration) {
    std::thread::sleep(for_);
}
