//! A disk that fills up under a running installation, and has room again later.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use mutirao_testkit::disk::tmpfs;
use mutirao_testkit::http::Answer;
use mutirao_testkit::{Installation, wait};

use super::{Effects, LEAVE, ends_ok, json};
use crate::said::{SOON, Said};

/// Refused submissions that are tried before the disk counts as full: SQLite still has room in the log it wrote before.
const TRIES_MAX: usize = 2_000;

/// Makes each of these jobs need a little room.
const LABEL_CHARS: usize = 150;

/// Takes all the room that is left, and gives it back.
pub(super) struct Ballast(PathBuf);

impl Ballast {
    /// All but so many bytes.
    pub(super) fn leaving(folder: &Path, free_bytes: u64) -> Self {
        let disk = rustix::fs::statvfs(folder).expect("a disk");
        let ballast = Self(folder.join("ballast"));
        let bytes = (disk.f_bavail * disk.f_frsize).saturating_sub(free_bytes);
        let mut file = File::create(&ballast.0).expect("a file");
        std::io::copy(&mut std::io::repeat(0).take(bytes), &mut file).expect("there is room");
        ballast
    }

    pub(super) fn in_folder(folder: &Path) -> Self {
        let path = folder.join("ballast");
        let mut file = File::create(&path).expect("a file");
        let mut size = 1 << 20;
        while size > 0 {
            // A write that fails half-way has filled what there was.
            if file.write_all(&vec![0; size]).is_err() {
                size /= 2;
            }
        }
        Self(path)
    }

    pub(super) fn drop_it(self) {
        std::fs::remove_file(self.0).expect("the ballast can be dropped");
    }
}

/// Submits small jobs to an installation whose disk is full until one is refused; those that were accepted, and the refusal.
pub(super) fn submit_until_refused(up: &Installation, tries_max: usize) -> (Vec<String>, Answer) {
    let label = "x".repeat(LABEL_CHARS);
    let body = format!(r#"{{"labels": {{"l": "{label}"}}, "task": {{"action": {{"noop": {{}}}}}}}}"#);
    let mut accepted = Vec::new();
    for _ in 0..tries_max {
        let answer = up.request("POST /v1/jobs", body.as_bytes());
        if answer.status != 201 {
            return (accepted, answer);
        }
        accepted.push(json(&answer.text())["id"].as_str().expect("an id").to_owned());
    }
    panic!("a full disk took {tries_max} jobs");
}

#[test]
fn a_full_disk_refuses_clearly_loses_nothing_and_is_got_over_without_a_restart() {
    let Some(disk) = tmpfs("24m") else { return };
    let up = Installation::setup().data(&disk.path().join("data")).start();
    let (long, quick) = (Effects::new(), Effects::new());
    let running = long.submit(&up, 2, "500m", &format!("sleep 4; {LEAVE}"));
    wait::until("the long tasks to run", SOON, || long.processes().len() >= 4);
    // Accepted, and mostly still waiting when the disk is full.
    let waiting = quick.submit(&up, 300, "500m", &format!("sleep 0.02; {LEAVE}"));

    let ballast = Ballast::in_folder(disk.path());
    let (accepted, refusal) = submit_until_refused(&up, TRIES_MAX);
    let problem = json(&refusal.text());
    assert_eq!((refusal.status, problem["type"].as_str()), (429, Some("busy")), "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|why| why.contains("disk is full")), "{problem}");
    assert!(problem["remedy"].as_str().is_some_and(|remedy| remedy.contains("free some space")), "{problem}");
    let said = Said::from(up.cli(&["submit", "--name", &"x".repeat(LABEL_CHARS), "--", "true"]));
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    let told = |line: &str| line.contains("disk is full") && line.contains("trying again in");
    assert!(said.err.lines().next().is_some_and(told), "it waits, and says for what: {said:?}");
    let refused = |line: &str| line.contains("disk is full") && line.contains("free some space");
    assert!(said.err.lines().last().is_some_and(refused), "{said:?}");

    // Running tasks finish, whether or not their ends can be written down now.
    long.wait_for(2);
    assert_eq!(up.request("GET /healthz", b"").status, 200);
    eprintln!("{} small jobs accepted before the disk was full", accepted.len());

    ballast.drop_it();
    ends_ok(&up, &running, 2);
    ends_ok(&up, &waiting, 300);
    for job in &accepted {
        ends_ok(&up, job, 1);
    }
    assert_eq!((long.check(2).doubled, quick.check(300).doubled), (0, 0));
    wait::until("it to be ready again", SOON, || up.request("GET /readyz", b"").status == 200);
    super::still_works(&up);
}

#[test]
fn a_disk_that_is_full_from_the_start_is_one_clear_line() {
    let Some(disk) = tmpfs("4m") else { return };
    let _ballast = Ballast::in_folder(disk.path());
    let data = disk.path().join("data").display().to_string();
    let said = crate::said::run(crate::said::mutirao(&["up", "--data", &data, "--listen", "127.0.0.1:0"]));
    assert_eq!((said.code, said.err.lines().count(), said.out.as_str()), (Some(1), 1, ""), "{said:?}");
    assert!(said.err.contains("disk is full") && said.err.contains("free some space"), "{said:?}");
}
