//! One connection to a host: a master of the system's `ssh`, and everything else over it. What is said goes by stdin; the
//! arguments of a process, which everybody may read, hold nothing but what is in the file of hosts.
//!
//! It is found again by its socket, so it may outlive who opened it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Clock;
use mutirao_core::clock::ClockExt;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use super::script::quoted;
use super::spec::{HostSpec, UnknownKey};
use crate::local::process::without_secrets;

/// From asking for a connection until the host has said that it is there.
const OPEN_MAX: Duration = Duration::from_secs(25);
/// What ssh itself waits for an answer to its first packet.
const CONNECT_S: u32 = 10;
/// A connection over which nothing comes for this long, three times in a row, is over.
const ALIVE_S: u32 = 5;
/// For what ssh does by itself: asked whether it is there, told to go, to forward.
const WORD_MAX: Duration = Duration::from_secs(10);
/// What a host may answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// The master's socket in our folder. Named from within the folder, because a socket's path may only be short.
const CONTROL: &str = "./ssh";
const COMPLAINTS: &str = "ssh.err";

pub struct Line {
    /// A folder of its own.
    dir: PathBuf,
    spec: HostSpec,
    clock: Arc<dyn Clock>,
}

impl Line {
    pub fn new(dir: PathBuf, spec: HostSpec, clock: Arc<dyn Clock>) -> Self {
        Self { dir, spec, clock }
    }

    fn ssh(&self) -> Command {
        let mut command = without_secrets(Command::new("ssh"));
        command.current_dir(&self.dir).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    fn destination(&self) -> String {
        match &self.spec.user {
            Some(user) => format!("{user}@{}", self.spec.address),
            None => self.spec.address.clone(),
        }
    }

    /// Whether there is a connection, opened by us or by who was here before.
    pub async fn is_open(&self) -> bool {
        self.word(&["-O", "check"]).await.is_ok()
    }

    /// Connects, and has the script run there for as long as the connection lasts. Its first line is awaited.
    pub async fn open(&self, hold: &str) -> Result<(), String> {
        let unusable = |error: std::io::Error| format!("{}: {error}", self.dir.display());
        std::fs::create_dir_all(&self.dir).map_err(unusable)?;
        let _ = std::fs::remove_file(self.dir.join(CONTROL));
        let complaints = std::fs::File::create(self.dir.join(COMPLAINTS)).map_err(unusable)?;
        let mut command = self.ssh();
        command.args(["-M", "-S", CONTROL, "-T", "-a", "-x"]);
        let strict = match self.spec.unknown_key {
            UnknownKey::Refuse => "yes",
            UnknownKey::Accept => "accept-new",
        };
        for option in [
            "ControlPersist=no".into(),
            "BatchMode=yes".into(),
            "StreamLocalBindUnlink=yes".into(),
            "RemoteCommand=none".into(),
            "PermitLocalCommand=no".into(),
            format!("StrictHostKeyChecking={strict}"),
            format!("ConnectTimeout={CONNECT_S}"),
            format!("ServerAliveInterval={ALIVE_S}"),
            "ServerAliveCountMax=3".into(),
        ] {
            command.args(["-o", &option]);
        }
        if let Some(port) = self.spec.port {
            command.args(["-p", &port.to_string()]);
        }
        if let Some(key) = &self.spec.key {
            command.args(["-o", "IdentitiesOnly=yes", "-i"]).arg(key);
        }
        if let Some(file) = &self.spec.known_hosts {
            command.arg("-o").arg(format!("UserKnownHostsFile=\"{}\"", file.display()));
        }
        // It outlives us, and Ctrl-C is not for it.
        command.args([&self.destination(), "sh", "-s"]).kill_on_drop(false).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints);
        let mut child = command.spawn().map_err(|error| format!("ssh cannot be started: {error}"))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else { return Err("ssh has no stdin".into()) };
        let greeted = async {
            stdin.write_all(hold.as_bytes()).await?;
            drop(stdin);
            let mut line = String::new();
            BufReader::new(stdout.take(ANSWER_BYTES_MAX)).read_line(&mut line).await?;
            std::io::Result::Ok(line.trim_end() == "up")
        };
        let up = match self.clock.timeout(OPEN_MAX, greeted).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false) | Err(_)) => Err(None),
            Err(_) => Err(Some(format!("no connection within {} s", OPEN_MAX.as_secs()))),
        };
        if up.is_err() {
            let _ = child.start_kill();
        }
        // Nobody else waits for it when it ends.
        let ended = tokio::spawn(async move { child.wait().await });
        match up {
            Ok(()) => Ok(()),
            Err(why) => {
                let _ = ended.await;
                Err(why.unwrap_or_else(|| self.complaint()))
            }
        }
    }

    /// What ssh said last.
    fn complaint(&self) -> String {
        let said = std::fs::read(self.dir.join(COMPLAINTS)).unwrap_or_default();
        last_line(&said).unwrap_or_else(|| "the connection ended without a word".into())
    }

    pub async fn close(&self) {
        let _ = self.word(&["-O", "exit"]).await;
    }

    /// Has a socket there appear in our folder.
    pub async fn bring_socket(&self, name: &str, there: &str) -> Result<(), String> {
        self.word(&["-O", "forward", "-L", &format!("./{name}:{there}")]).await.map(drop)
    }

    /// Lets processes there reach an address from here, at a port of its loopback: this one, or any that is free.
    pub async fn lend_address(&self, port: Option<u16>, address: &str) -> Result<u16, String> {
        let lent = self.forward_here(port, address).await;
        let (Some(known), Err(_)) = (port, &lent) else { return lent };
        // Who was here before may have asked this very connection for any port, and was given that one: then ssh knows it by
        // having been asked for any. To open the connection anew would cut off who works there.
        match self.forward_here(None, address).await {
            Ok(found) if found == known => Ok(known),
            Ok(_) => {
                let _ = self.word(&["-O", "cancel", "-R", &format!("127.0.0.1:0:{address}")]).await;
                lent
            }
            Err(_) => lent,
        }
    }

    async fn forward_here(&self, port: Option<u16>, address: &str) -> Result<u16, String> {
        let asked = port.unwrap_or(0);
        let said = self.word(&["-O", "forward", "-R", &format!("127.0.0.1:{asked}:{address}")]).await?;
        match port {
            Some(port) => Ok(port),
            None => said.trim().parse().map_err(|_| format!("ssh did not say which port it took: {said}")),
        }
    }

    async fn word(&self, args: &[&str]) -> Result<String, String> {
        let mut command = self.ssh();
        command.args(["-S", CONTROL]).args(args).arg(self.destination());
        let output = match self.clock.timeout(WORD_MAX, command.output()).await {
            Ok(output) => output.map_err(|error| format!("ssh cannot be started: {error}"))?,
            Err(_) => return Err(format!("no answer within {} s", WORD_MAX.as_secs())),
        };
        said(output)
    }

    /// Runs a script there.
    pub async fn run(&self, script: &str, limit: Duration) -> Result<String, String> {
        self.over(&["sh", "-s"], Stdio::piped(), Some(script), limit).await
    }

    /// Runs a script there that reads a file of ours.
    pub async fn send(&self, script: &str, file: &Path, limit: Duration) -> Result<String, String> {
        let file = std::fs::File::open(file).map_err(|error| format!("{}: {error}", file.display()))?;
        self.over(&["sh", "-c", &quoted(script)], file.into(), None, limit).await
    }

    async fn over(
        &self,
        words: &[&str],
        stdin: Stdio,
        script: Option<&str>,
        limit: Duration,
    ) -> Result<String, String> {
        let mut command = self.ssh();
        // Without the master it would be a connection of its own, with other settings.
        command.args([
            "-S",
            CONTROL,
            "-T",
            "-o",
            "ProxyCommand=false",
            "-o",
            "BatchMode=yes",
            "-o",
            "RemoteCommand=none",
        ]);
        command.arg(self.destination()).args(words).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("ssh cannot be started: {error}"))?;
        let done = async {
            if let (Some(script), Some(mut stdin)) = (script, child.stdin.take()) {
                // Whoever does not listen to the end says why by its own end.
                let _ = stdin.write_all(script.as_bytes()).await;
            }
            child.wait_with_output().await
        };
        match self.clock.timeout(limit, done).await {
            Ok(output) => {
                let said = said(output.map_err(|error| error.to_string())?);
                // What ssh says of a master that has gone is about the connection that it then may not make.
                if said.is_err() && !self.is_open().await { Err("the connection broke".into()) } else { said }
            }
            Err(_) => Err(format!("not done within {} s", limit.as_secs())),
        }
    }
}

fn said(output: Output) -> Result<String, String> {
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(last_line(&output.stderr).unwrap_or_else(|| format!("it ended with {}", output.status))),
    }
}

/// The last line that says something, without what would disturb a terminal.
pub(crate) fn last_line(said: &[u8]) -> Option<String> {
    let said = String::from_utf8_lossy(said);
    let line = said.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(300).collect())
}
