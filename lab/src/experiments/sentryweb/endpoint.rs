//! What is checked: a web server on every address of the loopback that answers after as long as its path says. `/` answers at
//! once, `/slow` after two seconds, `/after/N` after N milliseconds, `/varied/N` after the N-th of a table of latencies. `/monitor/N` is counted, and `/report`
//! says how often it was asked for, and how often twice within half an interval.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mutirao_core::{Clock, Mono, SystemClock};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Running, part};

/// Endpoints of varied latency, each with an address of its own.
pub const VARIED: u32 = 100;
const SLOW: Duration = Duration::from_secs(2);
const HEAD_MAX: usize = 8_192;
/// Two probes of one monitor within this are one too many: monitors that are counted are checked every 60 s.
const DOUBLED_WITHIN: Duration = Duration::from_secs(30);

/// What was counted since the endpoint began.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    pub probes: u64,
    pub doubled: u64,
}

#[derive(Default)]
struct Book {
    counted: Counted,
    last: HashMap<u64, Mono>,
}

impl Book {
    fn note(&mut self, monitor: u64, now: Mono) {
        self.counted.probes += 1;
        if self.last.insert(monitor, now).is_some_and(|before| now.since(before) < DOUBLED_WITHIN) {
            self.counted.doubled += 1;
        }
    }
}

/// What the endpoint at this port has counted.
pub fn counted(port: u16) -> anyhow::Result<Counted> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /report HTTP/1.1\r\n\r\n")?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    Ok(serde_json::from_str(body)?)
}

/// What is asked, and how long the answer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// Answers at once.
    Local,
    /// Answers after two seconds.
    Slow,
    /// A hundred of varied latency.
    Varied,
}

impl Target {
    pub fn word(self) -> &'static str {
        match self {
            Target::Local => "local",
            Target::Slow => "slow",
            Target::Varied => "varied",
        }
    }

    /// The URL of the n-th check.
    pub fn url(self, port: u16, n: u64) -> String {
        match self {
            Target::Local => format!("http://127.0.0.1:{port}/"),
            Target::Slow => format!("http://127.0.0.1:{port}/slow"),
            Target::Varied => {
                let n = n % u64::from(VARIED);
                format!("http://127.0.1.{}:{port}/varied/{n}", n + 1)
            }
        }
    }
}

/// From 5 ms to about 2.4 s, the more the rarer: half answer within 110 ms, a tenth takes more than 1.3 s.
pub fn latency(n: u32) -> Duration {
    let share = f64::from(n % VARIED) / f64::from(VARIED);
    Duration::from_secs_f64(0.005 * 500.0_f64.powf(share))
}

#[derive(Args, Clone)]
pub struct Options {
    #[arg(long)]
    pub port: u16,
}

/// One in a process of its own, and its port.
pub fn start() -> anyhow::Result<(impl Drop, u16)> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let child = Running(part(&["part".into(), "endpoint".into(), "--port".into(), port.to_string()])?.spawn()?);
    let begin = SystemClock.monotonic();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        anyhow::ensure!(
            SystemClock.monotonic().since(begin) < Duration::from_secs(10),
            "the endpoint does not come up"
        );
        std::thread::yield_now();
    }
    Ok((child, port))
}

pub fn run(options: Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("0.0.0.0", options.port)).await?;
        let book = Arc::new(Mutex::new(Book::default()));
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            tokio::spawn(answer(stream, book.clone()));
        }
    })
}

async fn answer(mut stream: TcpStream, book: Arc<Mutex<Book>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    loop {
        let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else {
            if head.len() > HEAD_MAX || stream.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
            continue;
        };
        let path = String::from_utf8_lossy(&head[..end]).split(' ').nth(1).unwrap_or("/").to_owned();
        head.drain(..end + 4);
        let wait = match path.split('/').collect::<Vec<_>>()[..] {
            [_, "varied", n] => latency(n.parse().unwrap_or(0)),
            [_, "after", ms] => Duration::from_millis(ms.parse().unwrap_or(0)),
            [_, "slow"] => SLOW,
            _ => Duration::ZERO,
        };
        if !wait.is_zero() {
            SystemClock.sleep(wait).await;
        }
        if let Some(monitor) = path.strip_prefix("/monitor/").and_then(|n| n.parse().ok()) {
            book.lock().note(monitor, SystemClock.monotonic());
        }
        let body = match path.as_str() {
            "/report" => serde_json::to_string(&book.lock().counted)?,
            _ => "ok\n".to_owned(),
        };
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await?;
    }
}
