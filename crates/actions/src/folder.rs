//! A folder of definitions. It is looked at again and again: what was added is there, what was changed takes new tasks, what
//! was removed is gone, each without a restart. A definition that cannot be read is told once, and what it said before
//! goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mutirao_nodes::{ActionName, Namespace};
use serde_json::Value;

use crate::definition::Definition;
use crate::exec::{self, Surroundings};
use crate::table::Table;

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
    actions: BTreeSet<ActionName>,
    /// Files of the folder that its commands run.
    programs: BTreeSet<PathBuf>,
}

/// By what a change is seen: of the definition and of each program, what the file system says of it.
type Print = Vec<Option<(u64, i64, i64, u64)>>;

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
            let known = self.files.get(&path);
            let print = known.map(|file| print_of(&path, &file.programs));
            if known.is_some_and(|file| Some(&file.print) == print.as_ref()) {
                continue;
            }
            if let Err(why) = self.load(&path) {
                notices.push(format!("{}: {why}", path.display()));
            }
        }
        notices
    }

    fn load(&mut self, path: &Path) -> Result<(), String> {
        let before = self.files.entry(path.to_owned()).or_default();
        before.print = print_of(path, &before.programs);
        let read = (self.read)(path)?;
        let definitions: Vec<Definition> =
            read.into_iter().map(|value| Definition::read(value, &self.namespace)).collect::<Result<_, _>>()?;
        for definition in &definitions {
            let action = &definition.offer.action;
            if let Some((other, _)) =
                self.files.iter().find(|(other, file)| *other != path && file.actions.contains(action))
            {
                return Err(format!("{action} is in {} already", other.display()));
            }
        }
        let programs: BTreeSet<PathBuf> =
            definitions.iter().filter_map(|definition| program_of(definition, &self.around.dir)).collect();
        let actions: BTreeSet<ActionName> = definitions.iter().map(|one| one.offer.action.clone()).collect();
        for definition in &definitions {
            self.table.put(exec::entry(definition, &self.around)).map_err(|full| full.to_string())?;
        }
        let file = self.files.entry(path.to_owned()).or_default();
        file.actions.difference(&actions).for_each(|action| self.table.remove(action));
        *file = File { print: print_of(path, &programs), actions, programs };
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
    use std::os::unix::fs::MetadataExt;
    let of = |path: &Path| {
        std::fs::metadata(path).ok().map(|about| (about.len(), about.mtime(), about.mtime_nsec(), about.ino()))
    };
    std::iter::once(path).chain(programs.iter().map(PathBuf::as_path)).map(of).collect()
}
