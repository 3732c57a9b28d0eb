//! A wall clock that jumps, for tests of whole processes: a debug build that finds a file's name in its environment is off by as
//! many milliseconds as the file says, and looks again and again. No release build has it.

use std::time::Duration;

const VARIABLE: &str = "MUTIRAO_TEST_WALL_OFF_MS";
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// For as long as the process lives. Its children find the same.
pub fn follow() {
    let Some(file) = std::env::var_os(VARIABLE) else { return };
    let look = move || {
        // While it is written there may be nothing in it.
        let said = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        said.into_iter().for_each(mutirao_core::clock::set_wall_off_ms);
    };
    look();
    std::thread::spawn(move || {
        loop {
            std::thread::park_timeout(LOOK_EVERY);
            look();
        }
    });
}
