//! Machines that commands of the user's create: the sets of hooks of the settings, and what each is given.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use mutirao_core::Clock;
use mutirao_resource::Hooks;
use mutirao_resource::hooks::{HooksParts, HooksSpec, spec};
use mutirao_resource::local::Workers;
use mutirao_resource::ssh::Means;

use super::super::Place;
use crate::cli::apply::documents;
use crate::config::Settings;
use crate::failure::Failure;

const HOOKS_BYTES_MAX: usize = 1 << 20;
/// Letters of a mark that nobody gave.
const MARK_CHARS: usize = 8;
const KEY_FILE: &str = "key";
const MARK_FILE: &str = "mark";

/// The hooks of the settings, read from their file.
pub(super) fn hooks(settings: &Settings) -> Result<Vec<HooksSpec>, Failure> {
    let Some(file) = settings.elastic_hooks.given() else { return Ok(Vec::new()) };
    let wrong = |why: String| Failure::usage(format!("elastic.hooks: {}: {why}", file.0.display()));
    let documents = documents::read(&file.0, HOOKS_BYTES_MAX).map_err(wrong)?;
    let path = std::path::absolute(&file.0)?;
    let beside = path.parent().unwrap_or(Path::new("/"));
    let mut sets = spec::read(documents.into_iter().map(|document| document.value).collect(), beside).map_err(wrong)?;
    for path in sets.iter_mut().flat_map(|set| &mut set.kinds).filter_map(|kind| kind.key.as_mut()) {
        *path = super::beside(beside, path)?;
    }
    Ok(sets)
}

pub(super) fn all(
    settings: &Settings,
    place: &Place,
    workers: &Workers,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Arc<Hooks>>, Failure> {
    let sets = hooks(settings)?;
    if sets.is_empty() {
        return Ok(Vec::new());
    }
    let (reach, way) = super::reach(settings, place, &workers.way)?;
    let dir = folder(&place.nodes)?;
    let own = own_mark(&dir)?;
    let key = key(&dir)?;
    let program = std::env::current_exe()?;
    let trust = (place.pin.clone(), workers.ca.clone());
    let made = sets.into_iter().map(|set| {
        let mark = set.mark.clone().unwrap_or_else(|| own.clone());
        let (dir, program) = (dir.join(&set.name), program.clone());
        // Whoever has the same mark is the same to the agents of these machines.
        let means =
            Means::new(set.name.clone(), program, dir, mark.clone(), reach.clone(), trust.clone(), clock.clone());
        Arc::new(Hooks::new(HooksParts {
            spec: set,
            mark,
            key: key.clone(),
            manager: place.url.clone(),
            means,
            workers: Workers { way: way.clone(), ..workers.clone() },
            workers_here: workers.clone(),
        }))
    });
    Ok(made.collect())
}

/// Each set of hooks with the mark that a resource manager of `up` would give its machines, for `doctor`.
pub fn doctored(settings: &Settings) -> Result<Vec<(HooksSpec, String)>, Failure> {
    let kept = settings.data.0.join("hooks").join(MARK_FILE);
    let own = std::fs::read_to_string(kept).unwrap_or_default().trim().to_owned();
    let own = if own.is_empty() { "none".to_owned() } else { own };
    Ok(hooks(settings)?.into_iter().map(|set| (set.clone(), set.mark.unwrap_or_else(|| own.clone()))).collect())
}

/// Beside the folder of nodes.
fn folder(nodes: &Path) -> Result<PathBuf, Failure> {
    let dir = nodes.with_file_name("hooks");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    Ok(dir)
}

/// What tells our machines from others', where nobody said: made once.
fn own_mark(dir: &Path) -> Result<String, Failure> {
    let path = dir.join(MARK_FILE);
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if known.trim().len() == MARK_CHARS && known.trim().chars().all(plain) {
        return Ok(known.trim().into());
    }
    let random = mutirao_core::SessionId::random().0.to_ascii_lowercase();
    let rest = random.chars().filter(|c| plain(*c)).take(MARK_CHARS - 1);
    let new: String = std::iter::once('m').chain(rest).collect();
    let beside = dir.join(format!("{MARK_FILE}.new"));
    let _ = std::fs::remove_file(&beside);
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
    writeln!(file, "{new}")?;
    file.sync_all()?;
    std::fs::rename(&beside, &path)?;
    Ok(new)
}

/// The key with which we come to the machines, made once. None where there is no ssh: then machines that are reached by it cannot be
/// used, and each says so.
fn key(dir: &Path) -> Result<Option<(PathBuf, String)>, Failure> {
    let path = dir.join(KEY_FILE);
    let public = path.with_extension("pub");
    if !path.exists() || !public.exists() {
        let _ = (std::fs::remove_file(&path), std::fs::remove_file(&public));
        let mut make = std::process::Command::new("ssh-keygen");
        make.args(["-q", "-t", "ed25519", "-N", "", "-C", "mutirao", "-f"]).arg(&path);
        let made = make.stdin(Stdio::null()).stdout(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
    }
    let public = std::fs::read_to_string(public)?;
    Ok(Some((path, public.trim().to_owned())))
}
