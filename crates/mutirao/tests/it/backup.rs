//! Backup and restore as a person does them, with work in flight: what was accepted before the backup ends once after
//! the restore, on either engine and from one into the other.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mutirao_testkit::Installation;
use mutirao_testkit::services::{POSTGRES_VARIABLE, Service, shared};

use crate::said::{Said, mutirao, run};

const TASKS: usize = 400;

/// What was accepted before a backup: one job that had ended, with an output too long for its row, and one amid its work.
struct Before {
    ended: String,
    running: String,
}

impl Before {
    fn submit(up: &Installation) -> Self {
        let submit = |args: &[&str]| up.ok(&[&["submit"], args].concat()).trim().to_owned();
        let ended = submit(&["--name", "ended", "--", "seq", "1", "60000"]);
        assert!(up.cli(&["job", "wait", &ended]).status.success());
        let running = submit(&["--array", &format!("1-{TASKS}"), "--", "sh", "-c", "echo $MUTIRAO_TASK_INDEX"]);
        Self { ended, running }
    }

    #[track_caller]
    fn is_whole_in(&self, up: &Installation) {
        let waited = Said::from(up.cli(&["job", "wait", &self.running]));
        assert_eq!(waited.code, Some(0), "{waited:?}\n{}", up.stderr());
        let shown: serde_json::Value = serde_json::from_str(&up.ok(&["--json", "job", "show", &self.running])).unwrap();
        assert_eq!(shown["counts"]["ok"], TASKS, "{shown}");
        assert_eq!(up.ok(&["job", "logs", &self.running, "--task", "7"]), "7\n");
        let log = up.ok(&["job", "logs", &self.ended]);
        assert!(log.starts_with("1\n2\n") && log.ends_with("59999\n60000\n"), "{} bytes", log.len());
    }
}

fn backup(up: &Installation, archive: &Path, database: Option<&str>) -> Said {
    let mut command = up.command(&["backup", "create", archive.to_str().unwrap()]);
    command.envs(database.map(|url| ("MUTIRAO_DATABASE", url)));
    Said::from(command.output().unwrap())
}

fn restore(archive: &Path, data: &Path, database: Option<&str>, more: &[&str]) -> Said {
    let args = ["backup", "restore", archive.to_str().unwrap(), "--data", data.to_str().unwrap()];
    let mut command = mutirao(&[&args, more].concat());
    command.envs(database.map(|url| ("MUTIRAO_DATABASE", url)));
    run(command)
}

#[track_caller]
fn good(said: &Said) {
    assert_eq!(said.code, Some(0), "{said:?}");
}

/// PostgreSQL runs as another user, who must be able to pass.
fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o711)).tempdir().unwrap()
}

#[test]
fn every_task_accepted_before_a_backup_is_there_after_the_restore_and_ends_once() {
    let dir = tempfile::tempdir().unwrap();
    let (archive, data) = (dir.path().join("b"), dir.path().join("restored"));
    let mut up = Installation::start();
    let before = Before::submit(&up);
    let made = backup(&up, &archive, None);
    good(&made);
    assert!(made.err.contains("admin token"), "the secrets are not mentioned: {made:?}");
    assert!(Said::from(up.cli(&["submit", "--wait", "--", "true"])).code == Some(0), "the original does not go on");
    before.is_whole_in(&up);
    up.kill9_everything();

    let verified = run(mutirao(&["backup", "verify", archive.to_str().unwrap()]));
    assert!(verified.code == Some(0) && verified.out.contains("from SQLite"), "{verified:?}");
    good(&restore(&archive, &data, None, &[]));
    let token = std::fs::metadata(data.join("admin.token")).unwrap();
    assert_eq!(token.permissions().mode() & 0o777, 0o600);
    let restored = Installation::setup().data(&data).start();
    before.is_whole_in(&restored);
    assert_eq!(restored.ok(&["--json", "job", "list"]).matches("\"id\"").count(), 2, "only what was there before");
    let again = restore(&archive, &data, None, &["--replace"]);
    assert!(again.code == Some(1) && again.err.contains("in use"), "{again:?}");
}

#[test]
fn a_backup_of_postgresql_comes_back_in_the_place_of_what_is_there_and_in_an_empty_one() {
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let (servers, others, dir) = (folder(), folder(), tempfile::tempdir().unwrap());
    let server = Service::postgres(servers.path()).unwrap();
    let archive = dir.path().join("b");
    let mut up = Installation::setup().env("MUTIRAO_DATABASE", server.url()).start();
    let before = Before::submit(&up);
    good(&backup(&up, &archive, Some(server.url())));
    let later = up.ok(&["submit", "--wait", "--", "echo", "later"]);
    let busy = restore(&archive, &dir.path().join("beside"), Some(server.url()), &["--replace"]);
    assert!(busy.code == Some(1) && busy.err.contains("stop its managers"), "{busy:?}");
    up.kill9_everything();

    let full = restore(&archive, up.data(), Some(server.url()), &[]);
    assert!(full.code == Some(1) && full.err.contains("--replace"), "{full:?}");
    good(&restore(&archive, up.data(), Some(server.url()), &["--replace"]));
    up.restart();
    before.is_whole_in(&up);
    assert_eq!(up.ok(&["--json", "job", "list"]).matches("\"id\"").count(), 2, "{later} was after the backup");
    drop(up);

    let other = Service::postgres(others.path()).unwrap();
    let data = dir.path().join("restored");
    good(&restore(&archive, &data, Some(other.url()), &[]));
    let forgotten = run(mutirao(&["doctor", "--data", data.to_str().unwrap()]));
    assert!(
        forgotten.out.contains("MUTIRAO_DATABASE"),
        "a folder whose state is elsewhere is no empty one: {forgotten:?}"
    );
    let restored = Installation::setup().data(&data).env("MUTIRAO_DATABASE", other.url()).start();
    before.is_whole_in(&restored);
}

#[test]
fn an_installation_that_outgrew_sqlite_goes_on_in_postgresql() {
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let (servers, dir) = (folder(), tempfile::tempdir().unwrap());
    let (archive, data) = (dir.path().join("b"), dir.path().join("data"));
    let mut up = Installation::start();
    let before = Before::submit(&up);
    good(&backup(&up, &archive, None));
    up.kill9_everything();
    let server = Service::postgres(servers.path()).unwrap();
    good(&restore(&archive, &data, Some(server.url()), &[]));
    let moved = Installation::setup().data(&data).env("MUTIRAO_DATABASE", server.url()).start();
    before.is_whole_in(&moved);
    assert!(!data.join("mutirao.db").exists());
}

#[test]
fn an_archive_that_is_damaged_cut_foreign_or_not_there_is_one_line_and_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (archive, bad, data) = (dir.path().join("b"), dir.path().join("bad"), dir.path().join("data"));
    let up = Installation::start();
    good(&backup(&up, &archive, None));
    let second = backup(&up, &archive, None);
    assert!(second.code == Some(1) && second.err.contains("is there already"), "{second:?}");
    let whole = std::fs::read(&archive).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    for (bytes, part) in [
        (&flipped[..], "is damaged"),
        (&whole[..whole.len() / 2], "ends too early"),
        (&whole[..whole.len() - 1], "ends too early"),
        (b"SQLite format 3\0 and so on and on", "is not a backup"),
        (b"", "is not a backup"),
    ] {
        std::fs::write(&bad, bytes).unwrap();
        let path = bad.to_str().unwrap();
        for said in [restore(&bad, &data, None, &[]), run(mutirao(&["backup", "verify", path]))] {
            assert_eq!((said.code, said.err.lines().count(), said.out.as_str()), (Some(1), 1, ""), "{said:?}");
            assert!(said.err.contains(part) && said.err.contains(path), "{part}: {said:?}");
        }
    }
    let none = run(mutirao(&["backup", "verify", dir.path().join("none").to_str().unwrap()]));
    assert_eq!((none.code, none.err.lines().count()), (Some(3), 1), "{none:?}");
    assert!(!data.exists(), "something was touched");
    let nothing = run(mutirao(&["backup", "create", "x", "--data", data.to_str().unwrap()]));
    assert!(nothing.code == Some(1) && nothing.err.contains("--database"), "{nothing:?}");
}

#[test]
fn a_manager_does_not_start_where_a_restore_did_not_end() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("restoring"), "").unwrap();
    let said = run(mutirao(&["up", "--data", dir.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]));
    assert!(said.code == Some(1) && said.err.contains("backup restore"), "{said:?}");
}
