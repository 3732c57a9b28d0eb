//! One run of a hook: so much time, so much output, and why it failed in one line. What it starts goes with it when its time is up.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Clock;
use mutirao_core::clock::ClockExt;
use mutirao_core::quantity::{Bytes, Span};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::local::process::without_secrets;
use crate::ssh::line::last_line;

/// Of what it complains about, the end is kept.
const COMPLAINT_BYTES_MAX: usize = 4 << 10;
/// What a hook left behind may still hold its stdout; nobody waits for that.
const AFTERWARDS: Duration = Duration::from_millis(200);

pub struct Run<'a> {
    pub words: &'a [String],
    /// Where it runs; its program is found from there.
    pub dir: &'a Path,
    pub environment: Vec<(&'static str, String)>,
    pub stdin: Vec<u8>,
    pub limit: Duration,
    pub printed_max: usize,
}

impl Run<'_> {
    /// What it printed, or why it failed.
    pub async fn done(self, clock: &Arc<dyn Clock>) -> Result<Vec<u8>, String> {
        let [program, args @ ..] = self.words else { return Err("there is no command".into()) };
        let path = found_from(self.dir, program);
        let mut command = without_secrets(Command::new(path));
        command.args(args).envs(self.environment).current_dir(self.dir).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| wrong(self.words, self.dir).unwrap_or_else(|| not_started(program, self.dir, &error)))?;
        let group = child.id().and_then(|id| Pid::from_raw(id as i32));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut printed, mut complaint) = (Vec::new(), Vec::new());
        let done = {
            let told = async {
                if let Some(mut stdin) = stdin {
                    // Whoever does not listen to the end says why by its own end.
                    let _ = stdin.write_all(&self.stdin).await;
                }
                std::future::pending::<()>().await
            };
            let heard = async {
                tokio::join!(fill(stdout, &mut printed, self.printed_max), keep_the_end(stderr, &mut complaint));
            };
            tokio::pin!(heard);
            let ended = async {
                let status = tokio::select! {
                    status = child.wait() => status?,
                    () = &mut heard => return child.wait().await,
                };
                let _ = clock.timeout(AFTERWARDS, &mut heard).await;
                std::io::Result::Ok(status)
            };
            let ended = async {
                tokio::select! {
                    ended = ended => ended,
                    () = told => Err(std::io::ErrorKind::Other.into()),
                }
            };
            clock.timeout(self.limit, ended).await
        };
        let end_all = || group.map(|group| kill_process_group(group, Signal::KILL));
        if printed.len() > self.printed_max {
            let _ = end_all();
            return Err(format!("it printed more than {}", Bytes(self.printed_max as u64)));
        }
        match done {
            Ok(Ok(status)) if status.success() => Ok(printed),
            Ok(Ok(status)) => Err(last_line(&complaint).unwrap_or_else(|| ended_with(status))),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => {
                let _ = end_all();
                Err(format!("not done within {}", Span(self.limit)))
            }
        }
    }
}

/// A program without a slash is looked for as everywhere.
fn found_from(dir: &Path, program: &str) -> PathBuf {
    if program.contains('/') { dir.join(program) } else { program.into() }
}

/// What can be seen to be wrong with a command whose program is a file, without running it.
pub fn wrong(words: &[String], dir: &Path) -> Option<String> {
    let program = words.first().filter(|program| program.contains('/'))?;
    match std::fs::metadata(found_from(dir, program)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Some(format!("{program} is not there (from {})", dir.display()))
        }
        Err(error) => Some(format!("{program}: {error}")),
        Ok(about) if about.is_dir() => Some(format!("{program} is a folder")),
        Ok(about) if about.permissions().mode() & 0o111 == 0 => Some(format!("{program} may not be run; chmod +x it")),
        Ok(_) => None,
    }
}

fn not_started(program: &str, dir: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound if program.contains('/') => {
            format!("{program} cannot be run: what its first line names after #! is not there")
        }
        std::io::ErrorKind::NotFound => format!("{program} is not there (from {})", dir.display()),
        _ => format!("{program} cannot be run: {error}; does it begin with #!?"),
    }
}

fn ended_with(status: ExitStatus) -> String {
    format!("it ended with {status} and said nothing on stderr")
}

/// One byte more than it may: then it is known to be too much.
async fn fill(from: Option<impl AsyncRead + Unpin>, all: &mut Vec<u8>, max: usize) {
    if let Some(from) = from {
        let _ = from.take(max as u64 + 1).read_to_end(all).await;
    }
}

async fn keep_the_end(from: Option<impl AsyncRead + Unpin>, end: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut piece = [0; 1 << 10];
    while let Ok(n @ 1..) = from.read(&mut piece).await {
        end.extend_from_slice(&piece[..n]);
        let too_many = end.len().saturating_sub(COMPLAINT_BYTES_MAX);
        end.drain(..too_many);
    }
}

#[cfg(test)]
mod tests {
    use mutirao_core::SystemClock;

    use super::*;

    const MAX: usize = 1_000;

    async fn run(script: &str, limit: Duration) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hook");
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        words(&["./hook", "word"], dir.path(), limit).await
    }

    async fn words(words: &[&str], dir: &Path, limit: Duration) -> Result<String, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let environment = vec![("HOOK_NAME", "m".to_owned())];
        let run = Run { words: &words, dir, environment, stdin: b"told\n".to_vec(), limit, printed_max: MAX };
        run.done(&SystemClock::shared()).await.map(|printed| String::from_utf8(printed).unwrap())
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_hook_hears_by_stdin_and_environment_and_is_heard() {
        assert_eq!(run(r#"read line; echo "$1 $line $HOOK_NAME""#, LONG).await.unwrap(), "word told m\n");
        assert_eq!(run("exit 0", LONG).await.unwrap(), "", "whoever does not listen is not held against it");
        // What it leaves behind holds its stdout.
        assert_eq!(run("echo a; sleep 50 & exit 0", LONG).await.unwrap(), "a\n");
    }

    #[tokio::test]
    async fn one_that_fails_says_why_in_one_line() {
        for (script, words) in [
            ("echo first >&2; echo 'no quota' >&2; echo >&2; exit 3", "no quota"),
            ("exit 3", "exit status: 3"),
            ("kill -9 $$", "signal: 9"),
            ("yes", "it printed more than 1000B"),
            ("yes '' | head -c 100000 >&2; printf 'at \\033[1mlast' >&2; exit 1", "at [1mlast"),
        ] {
            let why = run(script, LONG).await.unwrap_err();
            assert!(why.contains(words) && !why.contains('\n'), "{script}: {why}");
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("plain"), "echo").unwrap();
        let open = |name: &str| {
            std::fs::set_permissions(dir.path().join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        std::fs::write(dir.path().join("odd"), "#!/no/such/program\n").unwrap();
        open("odd");
        for (program, why) in [
            ("./none", "is not there"),
            ("./plain", "may not be run"),
            ("./", "is a folder"),
            ("./odd", "what its first line names after #! is not there"),
            ("no-such-program", "is not there"),
        ] {
            let said = words(&[program], dir.path(), LONG).await.unwrap_err();
            assert!(said.contains(why), "{program}: {said}");
        }
        open("plain");
        let said = words(&["./plain"], dir.path(), LONG).await.unwrap_err();
        assert!(said.contains("does it begin with #!"), "{said}");
    }

    #[tokio::test]
    async fn one_that_hangs_is_ended_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("sleep 300 & echo $! >{}; wait", pid.display());
        let why = run(&script, Duration::from_millis(500)).await.unwrap_err();
        assert!(why.contains("not done within"), "{why}");
        let pid: i32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        let gone = || std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "));
        for _ in 0..500 {
            if gone() {
                return;
            }
            SystemClock::shared().sleep(Duration::from_millis(10)).await;
        }
        panic!("{pid} is still there");
    }
}
