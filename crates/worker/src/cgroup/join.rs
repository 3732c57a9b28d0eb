//! Entering a control group between the birth of a process and the program it becomes. The one place that needs
//! `unsafe`: entering from outside would be a moment too late, and what the program used or started before would escape.

use std::fs::File;
use std::process::Command;

#[allow(unsafe_code, reason = "no safe interface runs anything between fork and exec")]
pub(crate) fn before_exec(command: &mut Command, doors: Vec<File>) {
    use std::os::unix::process::CommandExt;
    let enter = move || {
        for door in &doors {
            // "0" is whoever writes it.
            rustix::io::write(door, b"0")?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; `enter` makes one `write` for each file
    // that is already open, and allocates and locks nothing.
    unsafe {
        command.pre_exec(enter);
    }
}
