//! A folder with programs and definitions in it, for tests.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mutirao_actions::exec::Surroundings;
use mutirao_actions::folder::Folder;
use mutirao_actions::{Table, exec};
use mutirao_core::{Clock, Dice, SessionId, SystemClock};
use mutirao_nodes::errand::End;
use mutirao_nodes::{ActionName, Namespace};
use mutirao_worker::Confinement;
use serde_json::Value;
use tempfile::TempDir;

pub struct Stage {
    pub folder: TempDir,
    pub table: Arc<Table>,
    pub confinement: Arc<Confinement>,
}

impl Stage {
    pub fn new() -> Self {
        let table = Arc::new(Table::new(SystemClock::shared()));
        // As on a machine without control groups, unless a test has others.
        let confinement = Arc::new(Confinement::without_limits(&SessionId::random()));
        Self { folder: TempDir::new().unwrap(), table, confinement }
    }

    pub fn surroundings(&self) -> Surroundings {
        Surroundings {
            dir: self.folder.path().to_owned(),
            environment: [("PATH".to_owned(), OsString::from("/usr/local/bin:/usr/bin:/bin"))].into(),
            confinement: self.confinement.clone(),
            clock: SystemClock::shared(),
            dice: Arc::new(Dice::seeded(1)),
        }
    }

    pub fn watcher(&self) -> Folder {
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
            serde_json::from_str::<Value>(&text).map(|value| vec![value]).map_err(|error| error.to_string())
        };
        Folder::new(self.surroundings(), Namespace::default(), Arc::new(read), self.table.clone())
    }

    pub fn write(&self, name: &str, text: &str) {
        // Written aside and put in place, as editors do: no program is run half-written.
        let aside = self.folder.path().join(".aside");
        std::fs::write(&aside, text).unwrap();
        std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(aside, self.folder.path().join(name)).unwrap();
    }

    /// One definition, at once in the table.
    pub fn define(&self, definition: Value) {
        let read = mutirao_actions::definition::Definition::read(definition, &Namespace::default()).unwrap();
        self.table.put(exec::entry(&read, &self.surroundings())).unwrap();
    }

    pub async fn run(&self, name: &str, data: &str) -> End {
        self.table.run(&named(name), data).await
    }
}

pub fn named(name: &str) -> ActionName {
    ActionName::within(&Namespace::default(), name).unwrap()
}

pub fn ok(text: &str) -> End {
    End::Ok(text.into())
}

pub fn why(end: End) -> String {
    match end {
        End::Failed(why) => why,
        End::Ok(output) => panic!("it gave {output}"),
    }
}

pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let clock = SystemClock;
    let until = clock.monotonic().plus(Duration::from_secs(60));
    while !holds().await {
        assert!(clock.monotonic() < until, "{what} did not come to be");
        clock.sleep(Duration::from_millis(20)).await;
    }
}
