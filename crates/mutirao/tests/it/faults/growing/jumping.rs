//! The clock of the whole machine is set, hours ahead and hours back, while workers come and go.

use std::path::Path;

use mutirao_core::{Clock, SystemClock};
use mutirao_testkit::{Installation, wait};

use super::{Effects, MAX, MIN, Work, limited_queue, within_limits};
use crate::growing::{LEASE, json, told};
use crate::said::SOON;

const HOUR_MS: i64 = 3_600_000;

/// What the wall shows the processes of an installation, by a file that they all look at.
fn set(wall: &Path, off_ms: i64) {
    std::fs::write(wall, off_ms.to_string()).expect("it can be written");
}

/// By how much the manager is off, as what it writes down shows.
fn off_ms(up: &Installation) -> i64 {
    let made = json(&up.ok(&["--json", "token", "create", "--role", "viewer", "--name", "clock"]));
    made["created_at"].as_i64().expect("a moment") - SystemClock.now().0
}

#[test]
fn a_machine_whose_clock_is_set_by_hours_forth_and_back_loses_no_task_and_leaks_no_worker() {
    let folder = tempfile::tempdir().expect("a folder");
    let wall = folder.path().join("off-ms");
    set(&wall, 0);
    let up = Installation::setup()
        .workers(0)
        .set("jobs.lease", LEASE)
        .set("elastic.nodes", "2")
        .set("elastic.cpus", "3")
        .env("MUTIRAO_TEST_WALL_OFF_MS", wall.to_str().expect("a path"))
        .start();
    limited_queue(&up);
    wait::until("the floor to be there", SOON, || told(&up, "work").1 == u64::from(MIN));
    let effects = Effects::new();
    within_limits(&up, &effects, || {
        let work = Work::submit(&up, &effects);
        wait::until("all to be there", SOON, || up.worker_pids().len() == MAX);
        let mut seen = effects.count();
        for off in [HOUR_MS, -HOUR_MS, 24 * HOUR_MS, -2 * HOUR_MS] {
            set(&wall, off);
            wait::until("the manager's clock to jump", SOON, || (off_ms(&up) - off).abs() < 60_000);
            seen += 200;
            wait::until("the work to go on", SOON, || effects.count() >= seen);
        }
        work.ends_ok(&up);
        // Back by a day while nobody has anything to do: the idle ones go all the same.
        set(&wall, -26 * HOUR_MS);
        work.all_is_well(&up, 0);
    });
}
