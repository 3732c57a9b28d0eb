//! Starting a program, confined, and ending it with all that it started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_worker::{Cell, Confinement};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::Surroundings;
use crate::definition::Definition;

/// Of what a program says on stderr, this much of its end is looked at.
const TAIL_BYTES_MAX: usize = 2 << 10;

/// All that is needed to start it.
pub struct Program {
    program: PathBuf,
    arguments: Vec<String>,
    dir: PathBuf,
    environment: BTreeMap<String, OsString>,
    memory: Option<Bytes>,
    cpus: Option<Cpus>,
    confinement: Arc<Confinement>,
    pub output_bytes_max: usize,
}

impl Program {
    pub fn new(definition: &Definition, around: &Surroundings) -> Self {
        let (name, arguments) = definition.command.split_first().map_or(("", &[][..]), |(name, rest)| (name, rest));
        let here = around.dir.join(name);
        // Without a slash it may also be a program of the system.
        let program = if name.contains('/') || here.is_file() { here } else { PathBuf::from(name) };
        let mut environment = around.environment.clone();
        environment.extend(definition.env.iter().map(|(name, value)| (name.clone(), value.into())));
        Self {
            program,
            arguments: arguments.to_vec(),
            dir: around.dir.clone(),
            environment,
            memory: definition.memory,
            cpus: definition.cpus,
            confinement: around.confinement.clone(),
            output_bytes_max: definition.output_bytes_max,
        }
    }

    pub fn start(&self) -> Result<Running, String> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.dir).env_clear().envs(&self.environment);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let cell = self.confinement.cell(self.memory, self.cpus);
        let cell = cell.map_err(|error| format!("its limits cannot be set: {error}"))?;
        cell.hold(command.as_std_mut());
        let started = command.process_group(0).kill_on_drop(true).spawn();
        let child = started.map_err(|error| cannot(&self.program, &error))?;
        let group = child.id().and_then(|id| Pid::from_raw(id as i32));
        let held = Held { group, cell: Some(Arc::new(cell)) };
        if let (Some(pid), Some(memory)) = (group, self.memory) {
            let limit = Rlimit { current: Some(memory.0), maximum: Some(memory.0) };
            prlimit(Some(pid), Resource::As, limit)
                .map_err(|error| format!("its memory cannot be limited: {error}"))?;
        }
        Ok(Running { child, held })
    }
}

fn cannot(program: &Path, error: &std::io::Error) -> String {
    let why = match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such program, or no interpreter for it".into(),
        std::io::ErrorKind::PermissionDenied => "it is not executable; chmod +x it".into(),
        _ => error.to_string(),
    };
    format!("{} cannot be run: {why}", program.display())
}

pub struct Running {
    pub child: Child,
    pub held: Held,
}

/// A program with everything that it started, which goes with it.
pub struct Held {
    group: Option<Pid>,
    cell: Option<Arc<Cell>>,
}

impl Held {
    /// Why it ended, if it is for its limits.
    pub fn broken(&self) -> Option<String> {
        let out = self.cell.as_ref().is_some_and(|cell| cell.ran_out_of_memory());
        out.then(|| "it used more memory than its definition lets it".into())
    }

    /// What it left behind is killed.
    pub async fn end(&self) {
        self.kill_group();
        if let Some(cell) = self.cell.clone() {
            // It may have to look at every process.
            let _ = tokio::task::spawn_blocking(move || cell.kill_rest()).await;
        }
    }

    /// The most of it, at once.
    fn kill_group(&self) {
        if let Some(pid) = self.group {
            // It may have ended by itself, which is what was wanted.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.kill_group();
        let Some(cell) = self.cell.take() else { return };
        // Whoever is killed takes a moment to go: nobody here waits for it.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(cell))),
            Err(_) => drop(cell),
        }
    }
}

/// The last line of what it says until it is closed. All of it is read: nobody waits in vain to say more.
pub async fn last_line(mut from: impl AsyncRead + Unpin, mut said: impl FnMut(&str)) {
    let (mut tail, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        tail.extend_from_slice(&buffer[..read]);
        if tail.len() > TAIL_BYTES_MAX {
            tail.drain(..tail.len() - TAIL_BYTES_MAX);
        }
        let text = String::from_utf8_lossy(&tail);
        if let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) {
            said(line);
        }
    }
}
