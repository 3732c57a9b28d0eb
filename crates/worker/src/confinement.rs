//! Holding programs that others than tasks start, those of a node's actions: to limits that the kernel keeps, and together, so that
//! each ends with all that it started.

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use mutirao_core::SessionId;
use mutirao_core::quantity::{Bytes, Cpus};

use crate::cgroup::{Cgroups, Group};
use crate::exec::SESSION_VAR;
use crate::hunt;

/// Tells the programs of a session apart.
const PROGRAM_VAR: &str = "MUTIRAO_PROGRAM";

/// Where programs of one session are held.
#[derive(Debug)]
pub struct Confinement {
    session: SessionId,
    /// None where they cannot be used: then programs are known by their marks.
    cgroups: Option<Cgroups>,
    made: AtomicU64,
}

impl Confinement {
    /// Or why nothing can be limited on this machine. The session's [`Keeper`](crate::Keeper) removes what is left behind.
    pub fn prepare(session: &SessionId) -> Result<Self, String> {
        Cgroups::prepare(session).map(|cgroups| Self::new(session, Some(cgroups)))
    }

    /// Where nothing can be limited.
    pub fn without_limits(session: &SessionId) -> Self {
        Self::new(session, None)
    }

    fn new(session: &SessionId, cgroups: Option<Cgroups>) -> Self {
        Self { session: session.clone(), cgroups, made: AtomicU64::new(0) }
    }

    /// For one program and all that it starts.
    pub fn cell(&self, memory: Option<Bytes>, cpus: Option<Cpus>) -> io::Result<Cell> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let marks = || [(SESSION_VAR, self.session.0.clone()), (PROGRAM_VAR, number.to_string())];
        let marked = || Cell(Held::Marked(marks()));
        let Some(cgroups) = &self.cgroups else { return Ok(marked()) };
        match cgroups.make(&format!("program-{number}"), memory.unwrap_or(Bytes(0)), cpus) {
            Ok(group) => Ok(Cell(Held::Grouped(group))),
            Err(error) if memory.is_some() || cpus.is_some() => Err(error),
            Err(error) => {
                tracing::debug!(%error, "no cgroup for this program: it is known by its mark");
                Ok(marked())
            }
        }
    }
}

/// What holds one program and all that it started, wherever that went. Whoever is in it when it is dropped is killed; that may
/// take a tenth of a second.
pub struct Cell(Held);

enum Held {
    /// In a control group, which nobody leaves by himself.
    Grouped(Group),
    /// By what its environment says, which all that it starts inherits.
    Marked([(&'static str, String); 2]),
}

impl Cell {
    /// Its process will be in it from its first moment. To be called once the command's environment is complete.
    pub fn hold(&self, command: &mut Command) {
        match &self.0 {
            Held::Grouped(group) => group.join(command),
            Held::Marked(marks) => drop(command.envs(marks.iter().map(|(name, value)| (name, value)))),
        }
    }

    /// Whether the kernel killed something for its memory.
    pub fn ran_out_of_memory(&self) -> bool {
        matches!(&self.0, Held::Grouped(group) if group.oom_kills() > 0)
    }

    /// Whoever is still in it. Looks at every process of the machine where there is no control group.
    pub fn kill_rest(&self) {
        match &self.0 {
            Held::Grouped(group) => group.kill_rest(),
            Held::Marked(marks) => {
                hunt::kill_all_marked(&marks.each_ref().map(|(name, value)| format!("{name}={value}")))
            }
        }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        // A group sees to that by itself when it is removed.
        if matches!(self.0, Held::Marked(_)) {
            self.kill_rest();
        }
    }
}
