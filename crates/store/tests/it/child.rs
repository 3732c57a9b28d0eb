//! This test program, started once more as a process that can be killed. What it is to do there are the ignored tests
//! below; by themselves they do nothing.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use mutirao_store::{FolderLock, Sqlite};

use crate::{ROWS, insert};

const FOLDER: &str = "STORE_TEST_FOLDER";

pub struct Other {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    pub fn start(what: &str, folder: &Path) -> Other {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("child::{what}"), "--ignored", "--nocapture"])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Other { process, lines }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The next number it says, or none when it has ended.
    pub fn hear(&mut self) -> Option<i64> {
        loop {
            // A kill may cut the last line short; `lines` still returns it, but without its full stop it does not count.
            let line = self.lines.next()?.unwrap();
            let said = line.split_once("said ").and_then(|(_, rest)| rest.strip_suffix('.'));
            if let Some(number) = said {
                return Some(number.parse().unwrap());
            }
        }
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
    }

    pub fn ends_well(mut self) -> bool {
        while self.hear().is_some() {}
        self.process.wait().unwrap().success()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

#[test]
#[ignore = "a part of other tests"]
fn opens() {
    let Some(folder) = folder() else { return };
    Sqlite::open(&folder.join("store.db"), &[ROWS]).unwrap();
}

#[test]
#[ignore = "a part of other tests"]
fn holds_the_folder() {
    let Some(folder) = folder() else { return };
    let _held = FolderLock::take(&folder).unwrap();
    println!("said 0.");
    std::thread::park();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of other tests"]
async fn writes_and_says_so() {
    let Some(folder) = folder() else { return };
    let store = Sqlite::open(&folder.join("store.db"), &[ROWS]).unwrap();
    let start = store.read(|sql| sql.query_row("SELECT coalesce(max(k), 0) FROM rows", [], |row| row.get::<_, i64>(0)));
    let start = start.await.unwrap();
    let writers: Vec<_> = (1..=8)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..1_000_000 {
                    let k = start + writer + 8 * n;
                    store.write(insert(k)).await.unwrap();
                    println!("said {k}.");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}
