//! A program of one's own, by the convention of Nagios plugins: 0 is ok, 1 warning, 2 critical, anything else unknown; the
//! first line of its output is for people, what follows a `|` are figures.
//!
//! It runs in a process group of its own, which is killed when the probe is over, however it ends.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::check::Exec;
use crate::observation::{Phase, Watch};
use crate::reach::Fault;

/// Output that is kept; the rest is read and thrown away.
const OUTPUT_BYTES_MAX: usize = 8 << 10;

struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // It may have ended by itself, which is what was wanted.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

pub async fn run(check: &Exec, watch: &mut Watch) -> Result<(), Fault> {
    watch.enter(Phase::FirstByte);
    let (program, arguments) = check.command.split_first().ok_or_else(|| Fault::Http("there is no command".into()))?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&check.env).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.envs(check.env.get("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| Fault::Http(format!("{program} cannot be run: {error}")))?;
    let _group = Group(child.id().and_then(|id| Pid::from_raw(id as i32)));
    let output = match child.stdout.take() {
        Some(stdout) => read_some(stdout).await.map_err(|error| Fault::Http(error.to_string()))?,
        None => Vec::new(),
    };
    let status = child.wait().await.map_err(|error| Fault::Http(error.to_string()))?;
    watch.seen.body = output;
    match status.code() {
        Some(code) => watch.seen.exit = Some(code),
        None => return Err(Fault::Http(format!("{program} was ended: {status}"))),
    }
    Ok(())
}

async fn read_some(mut stdout: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = stdout.read(&mut buffer).await?;
        if read == 0 {
            return Ok(kept);
        }
        let room = OUTPUT_BYTES_MAX - kept.len();
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
}
