//! A folder of definitions. It is looked at again and again: what was added is there, what was changed takes new tasks, what
//! was removed is gone, each without a restart. A definition that cannot be used is told once, and what it said before
//! goes on; it is tried again at each look, for what stands in its way may be another file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mutirao_nodes::{ActionName, Namespace};
use serde_json::Value;

use crate::definition::Definition;
use crate::exec::{self, Surroundings};
use crate::table::{Full, Table};

pub const LOOK: Duration = Duration::from_secs(2);
const FILES_MAX: usize = 256;

/// Reads a file into the documents in it; which formats there are is not for here to know.
pub type Read = Arc<dyn Fn(&Path) -> Result<Vec<Value>, String> + Send + Sync>;

pub struct Folder {
    around: Surroundings,
    namespace: Namespace,
    read: Read,
    table: Arc<Table>,
    files: BTreeMap<PathBuf, File>,
}

#[derive(Default)]
struct File {
    print: Print,
    /// Why it could not be used when it was last looked at.
    unfit: Option<String>,
    actions: BTreeSet<ActionName>,
    /// Files of the folder that its commands run.
    programs: BTreeSet<PathBuf>,
}

/// By what a change is seen: of the definition and of each program, what the file system says of it.
type Print = Vec<About>;
type About = Option<(u64, i64, i64, u64)>;

impl Folder {
    pub fn new(around: Surroundings, namespace: Namespace, read: Read, table: Arc<Table>) -> Self {
        Self { around, namespace, read, table, files: BTreeMap::new() }
    }

    /// Looks once, and answers with what is wrong and new, a line each.
    pub fn look(&mut self) -> Vec<String> {
        let mut notices = Vec::new();
        let found = match definitions(&self.around.dir) {
            Ok(found) => found,
            // A folder that cannot be read for a moment is no reason to drop everything.
            Err(error) => return vec![format!("{} cannot be read: {error}", self.around.dir.display())],
        };
        let gone: Vec<PathBuf> = self.files.keys().filter(|path| !found.contains(*path)).cloned().collect();
        for path in gone {
            let actions = self.files.remove(&path).unwrap_or_default().actions;
            actions.iter().for_each(|action| self.table.remove(action));
        }
        for path in found {
            let is_the_same = |file: &File| file.unfit.is_none() && file.print == print_of(&path, &file.programs);
            if self.files.get(&path).is_some_and(is_the_same) {
                continue;
            }
            let unfit = self.load(&path).err();
            let file = self.files.entry(path.clone()).or_default();
            let told = std::mem::replace(&mut file.unfit, unfit.clone());
            notices
                .extend(unfit.filter(|why| told.as_ref() != Some(why)).map(|why| format!("{}: {why}", path.display())));
        }
        notices
    }

    fn load(&mut self, path: &Path) -> Result<(), String> {
        // Before it is read: what is changed meanwhile is seen at the next look.
        let seen = about(path);
        let read = (self.read)(path)?;
        let definitions: Vec<Definition> =
            read.into_iter().map(|value| Definition::read(value, &self.namespace)).collect::<Result<_, _>>()?;
        let mut actions = BTreeSet::new();
        for definition in &definitions {
            let action = &definition.offer.action;
            if let Some((other, _)) =
                self.files.iter().find(|(other, file)| *other != path && file.actions.contains(action))
            {
                return Err(format!("{action} is in {} already", other.display()));
            }
            if !actions.insert(action.clone()) {
                return Err(format!("{action} is in it twice"));
            }
        }
        let programs: BTreeSet<PathBuf> =
            definitions.iter().filter_map(|definition| program_of(definition, &self.around.dir)).collect();
        let print = std::iter::once(seen).chain(programs.iter().map(|program| about(program))).collect();
        let file = self.files.entry(path.to_owned()).or_default();
        // All of a file or nothing: what runs is not begun anew for what finds no room.
        let (come, go) = (actions.difference(&file.actions).count(), file.actions.difference(&actions).count());
        if come > self.table.room() + go {
            return Err(Full.to_string());
        }
        file.actions.difference(&actions).for_each(|action| self.table.remove(action));
        for definition in &definitions {
            self.table.put(exec::entry(definition, &self.around)).map_err(|full| full.to_string())?;
        }
        (file.print, file.actions, file.programs) = (print, actions, programs);
        Ok(())
    }

    /// Looks for as long as it is polled.
    pub async fn watch(mut self) {
        let clock = self.around.clock.clone();
        loop {
            clock.sleep(LOOK).await;
            self.look().iter().for_each(|notice| tracing::warn!("{notice}"));
        }
    }
}

/// The file of the folder that is run, by itself or by an interpreter.
fn program_of(definition: &Definition, dir: &Path) -> Option<PathBuf> {
    definition.command.iter().take(2).map(|word| dir.join(word)).find(|file| file.is_file())
}

fn definitions(dir: &Path) -> std::io::Result<BTreeSet<PathBuf>> {
    let is_one = |path: &PathBuf| {
        let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        !hidden && path.extension().is_some_and(|end| ["yaml", "yml", "toml", "json"].iter().any(|one| end == *one))
    };
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if is_one(&path) && found.len() < FILES_MAX {
            found.insert(path);
        }
    }
    Ok(found)
}

fn print_of(path: &Path, programs: &BTreeSet<PathBuf>) -> Print {
    std::iter::once(about(path)).chain(programs.iter().map(|program| about(program))).collect()
}

fn about(path: &Path) -> About {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|about| (about.len(), about.mtime(), about.mtime_nsec(), about.ino()))
}
