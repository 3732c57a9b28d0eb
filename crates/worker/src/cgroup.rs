//! Limits kept by the kernel: memory, and cpus where asked for, in a control group for each task. Both generations of
//! the interface; where neither can be used there is one notice, and memory is only counted against the capacity.
//!
//! Groups are made below the worker's own, in a folder named after the session, so that whatever limits the worker also
//! limits its tasks, and whoever comes after a killed worker knows what to remove.

mod group;
mod join;
mod places;

use std::io;
use std::path::{Path, PathBuf};

use mutirao_core::SessionId;
use mutirao_core::quantity::{Bytes, Cpus};

pub(crate) use group::Group;
use places::{Places, Version};

/// The folders under which a worker's tasks get their groups.
#[derive(Debug)]
pub(crate) struct Cgroups {
    version: Version,
    memory: PathBuf,
    /// The same as `memory` in version 2, which has one tree; absent where there is no such controller.
    cpu: Option<PathBuf>,
}

impl Cgroups {
    /// Makes the session's folders, or says why there can be none.
    pub fn prepare(session: &SessionId) -> Result<Self, String> {
        let places = Places::of_this_process().ok_or("this system has no memory control groups")?;
        Self::prepare_at(places, session)
    }

    fn prepare_at(places: Places, session: &SessionId) -> Result<Self, String> {
        let name = folder(session);
        match places.version {
            Version::One => {
                let memory = make_dir(&places.memory.join(&name))?;
                let cpu = places.cpu.and_then(|own| make_dir(&own.join(&name)).ok());
                Ok(Self { version: Version::One, memory, cpu })
            }
            Version::Two => {
                let base = make_dir(&places.memory.join(&name))?;
                let delegated =
                    delegate(&places.memory).and_then(|()| write(&base.join("cgroup.subtree_control"), "+memory +cpu"));
                if let Err(error) = delegated {
                    let _ = std::fs::remove_dir(&base);
                    return Err(format!("{} does not pass its controllers on: {error}", places.memory.display()));
                }
                Ok(Self { version: Version::Two, cpu: Some(base.clone()), memory: base })
            }
        }
    }

    /// A group for one task. No memory asked for is no limit.
    pub fn make(&self, name: &str, memory: Bytes, cpus: Option<Cpus>) -> io::Result<Group> {
        let mut group = Group::new(self.version, &self.memory.join(name))?;
        if memory.0 > 0 {
            group.limit_memory(memory)?;
        }
        if let (Some(cpus), Some(base)) = (cpus, &self.cpu) {
            group.limit_cpus(&base.join(name), cpus)?;
        }
        Ok(group)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for base in std::iter::once(&self.memory).chain(&self.cpu) {
            let _ = std::fs::remove_dir(base);
        }
    }
}

/// Removes what a session that is no more has left.
pub(crate) fn sweep(session: &SessionId) {
    let Some(places) = Places::of_this_process() else { return };
    for own in std::iter::once(places.memory).chain(places.cpu) {
        let base = own.join(folder(session));
        for child in std::fs::read_dir(&base).into_iter().flatten().flatten() {
            let _ = std::fs::remove_dir(child.path());
        }
        let _ = std::fs::remove_dir(&base);
    }
}

/// What cannot be limited here, and why.
pub(crate) fn notices() -> Vec<String> {
    match Cgroups::prepare(&SessionId::random()) {
        Ok(_) => Vec::new(),
        Err(why) => vec![notice(&why)],
    }
}

pub(crate) fn notice(why: &str) -> String {
    format!("memory limits of tasks are not enforced, only counted against the worker's capacity: {why}")
}

fn folder(session: &SessionId) -> String {
    format!("mutirao-{session}")
}

/// In version 2 only a group without processes of its own passes controllers on. A worker alone in its group, as under
/// systemd with `Delegate=yes`, steps aside into a leaf; with company it may not move others and leaves it.
fn delegate(own: &Path) -> io::Result<()> {
    let control = own.join("cgroup.subtree_control");
    let passed_on = std::fs::read_to_string(&control)?;
    if ["memory", "cpu"].iter().all(|wanted| passed_on.split_whitespace().any(|have| have == *wanted)) {
        return Ok(());
    }
    let Err(error) = write(&control, "+memory +cpu") else { return Ok(()) };
    let me = std::process::id().to_string();
    if std::fs::read_to_string(own.join("cgroup.procs"))?.split_whitespace().any(|pid| pid != me) {
        return Err(error);
    }
    let leaf = own.join("mutirao-worker");
    match std::fs::create_dir(&leaf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => write(&leaf.join("cgroup.procs"), "0")?,
    }
    write(&control, "+memory +cpu")
}

fn make_dir(path: &Path) -> Result<PathBuf, String> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(format!("{}: {error}", path.display())),
        _ => Ok(path.to_owned()),
    }
}

/// Control files are written in one call, and never created.
fn write(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    std::fs::File::options().write(true).open(path)?.write_all(text.as_bytes())
}
