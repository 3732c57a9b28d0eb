//! Who else checks: blackbox_exporter (Debian's package prometheus-blackbox-exporter), asked as Prometheus asks it, and the
//! document's worker of 50 threads in Python, on RabbitMQ.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use mutirao_core::{Clock, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Running;
use super::endpoint::Target;
use crate::peers::Peers;
use crate::proc;

const BLACKBOX: &str = "prometheus-blackbox-exporter";
/// Probes that are asked for at once.
const ASKERS: usize = 64;
const SETTLING: Duration = Duration::from_secs(4);

/// What a peer did in the time it was looked at.
pub struct Done {
    pub checks_per_s: f64,
    pub millicores: f64,
}

impl Done {
    pub fn per_core(&self) -> f64 {
        self.checks_per_s / self.millicores * 1_000.0
    }
}

/// As fast as it can: each probe has a connection of its own to the endpoint, and is asked for over one that is kept.
pub fn blackbox(endpoint: u16, seconds: u64) -> anyhow::Result<Done> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut config = tempfile::NamedTempFile::new()?;
    writeln!(
        config,
        "modules:\n  http:\n    prober: http\n    timeout: 5s\n    http: {{ preferred_ip_protocol: ip4 }}"
    )?;
    let child = Command::new(BLACKBOX)
        .arg(format!("--config.file={}", config.path().display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg("--log.level=error")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {BLACKBOX} (Debian: apt-get install {BLACKBOX})"))?;
    let running = Running(child);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let done = Arc::new(AtomicU64::new(0));
    runtime.block_on(async {
        SystemClock.sleep(Duration::from_secs(1)).await;
        let mut askers = tokio::task::JoinSet::new();
        for _ in 0..ASKERS {
            askers.spawn(ask(port, endpoint, done.clone()));
        }
        tokio::select! {
            done = measured(seconds, || proc::cpu(running.0.id()), || done.load(Ordering::Relaxed)) => done,
            Some(broke) = askers.join_next() => Err(broke?.expect_err("nobody stops asking by itself")),
        }
    })
}

async fn ask(port: u16, endpoint: u16, done: Arc<AtomicU64>) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let target = Target::Local.url(endpoint, 0);
    let request = format!("GET /probe?module=http&target={target} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
    let mut answer = Vec::new();
    loop {
        stream.write_all(request.as_bytes()).await?;
        answer.clear();
        // The text ends with its last, empty chunk.
        while !answer.ends_with(b"\r\n0\r\n\r\n") && !is_whole(&answer) {
            anyhow::ensure!(stream.read_buf(&mut answer).await? > 0, "{BLACKBOX} hung up");
        }
        let text = String::from_utf8_lossy(&answer);
        anyhow::ensure!(!text.contains("probe_success 0"), "{BLACKBOX} found the endpoint to be down");
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether an answer that says its length is there.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= end + 4 + length)
}

/// The document's worker, offered checks at a steady rate.
pub fn python(peers: &Peers, amqp: &str, target: Target, port: u16, rate: u64, seconds: u64) -> anyhow::Result<Done> {
    let folder = tempfile::tempdir()?;
    let effects = folder.path().join("effects");
    let start = |args: &[String]| -> anyhow::Result<Running> {
        let mut command = peers.python("sentryweb_worker.py");
        command.args(args).env("AMQP", amqp).env("EFFECTS", &effects).stdin(Stdio::null()).stderr(Stdio::null());
        Ok(Running(command.spawn()?))
    };
    let worker = start(&["work".into()])?;
    let whole = SETTLING.as_secs() + seconds + 2;
    let offer = [rate.to_string(), whole.to_string(), port.to_string(), target.word().to_owned()];
    let _offering = start(&[&["offer".to_owned()], offer.as_slice()].concat())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measured(seconds, || proc::cpu(worker.0.id()), || bytes(&effects)))
}

fn bytes(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |data| data.len())
}

async fn measured(seconds: u64, cpu: impl Fn() -> Duration, done: impl Fn() -> u64) -> anyhow::Result<Done> {
    SystemClock.sleep(SETTLING).await;
    let (cpu_before, done_before, from) = (cpu(), done(), SystemClock.monotonic());
    SystemClock.sleep(Duration::from_secs(seconds)).await;
    let took = SystemClock.monotonic().since(from).as_secs_f64();
    let many = done() - done_before;
    anyhow::ensure!(many > 0, "a peer checked nothing");
    Ok(Done { checks_per_s: many as f64 / took, millicores: (cpu() - cpu_before).as_secs_f64() / took * 1_000.0 })
}
