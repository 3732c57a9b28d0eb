//! Limits that the kernel keeps, for programs that others than tasks start: those of a node's actions.

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use mutirao_core::SessionId;
use mutirao_core::quantity::{Bytes, Cpus};

use crate::cgroup::{Cgroups, Group};

/// Where programs of one session get their limits.
#[derive(Debug)]
pub struct Confinement {
    cgroups: Cgroups,
    made: AtomicU64,
}

impl Confinement {
    /// Or why there can be none on this machine. The session's [`Keeper`](crate::Keeper) removes what is left behind.
    pub fn prepare(session: &SessionId) -> Result<Self, String> {
        Cgroups::prepare(session).map(|cgroups| Self { cgroups, made: AtomicU64::new(0) })
    }

    /// For one program and all that it starts.
    pub fn cell(&self, memory: Option<Bytes>, cpus: Option<Cpus>) -> io::Result<Cell> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.cgroups.make(&format!("program-{number}"), memory.unwrap_or(Bytes(0)), cpus).map(Cell)
    }
}

/// The limits of one program. Whoever is in it when it is dropped is killed; that may take a tenth of a second.
pub struct Cell(Group);

impl Cell {
    /// Its process will be in it from its first moment.
    pub fn hold(&self, command: &mut Command) {
        self.0.join(command);
    }

    /// Whether the kernel killed something for its memory.
    pub fn ran_out_of_memory(&self) -> bool {
        self.0.oom_kills() > 0
    }
}
