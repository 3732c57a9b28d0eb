//! The life of one process that stays.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Clock;
use mutirao_core::clock::ClockExt;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};

use super::Order;
use crate::exec::process::{Held, Running, last_line};

/// How often it is looked whether anybody still waits.
const LOOK: Duration = Duration::from_millis(500);
/// It may have one that nobody waits for any more and still do others; one that says nothing for so long hangs.
const HUNG: Duration = Duration::from_secs(5);
/// Tasks that nobody waits for any more and that it may still answer; past this they are forgotten.
const LEFT_MAX: usize = 64;
/// How long it may take to end by itself once nothing more will be said to it.
const LEAVE: Duration = Duration::from_secs(2);
/// Around an output on its line.
const FRAME_BYTES: usize = 1 << 10;

pub enum Parted {
    /// Also when it hung, and was ended.
    Died,
    NotNeeded,
}

type Waiting = HashMap<String, oneshot::Sender<Result<String, String>>>;

pub struct Talk {
    child: tokio::process::Child,
    held: Held,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    complaint: Arc<Mutex<String>>,
    output_bytes_max: usize,
    waiting: Waiting,
    given: u64,
    /// What it was not given yet: it may have to be heard before it reads on.
    unwritten: Vec<u8>,
}

#[derive(Deserialize)]
struct Said {
    id: Value,
    #[serde(default)]
    output: Value,
    #[serde(default)]
    error: Option<Value>,
}

impl Talk {
    pub fn new(running: Running, output_bytes_max: usize, waiting: Waiting) -> Self {
        let Running { mut child, held } = running;
        let complaint = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            let kept = complaint.clone();
            // Ends with the process, or with whoever inherited its pipe, which its end ends.
            tokio::spawn(async move { last_line(stderr, |line| *kept.lock() = line.to_owned()).await });
        }
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        Self { child, held, stdin, stdout, complaint, output_bytes_max, waiting, given: 0, unwritten: Vec::new() }
    }

    pub async fn run(mut self, first: Order, orders: &mut mpsc::Receiver<Order>, clock: &dyn Clock) -> Parted {
        let Some(mut stdout) = self.stdout.take() else { return self.die("it has no output") };
        self.give(first);
        let line_max = self.output_bytes_max + FRAME_BYTES;
        // Kept over turns: a line may come in pieces while something else happens.
        let mut line = Vec::new();
        let mut needed = true;
        let mut heard_at = clock.monotonic();
        // It may say a lot, and answer nothing: whatever else happens, it is looked.
        let mut look_at = heard_at.plus(LOOK);
        loop {
            if !needed && self.waiting.is_empty() {
                return self.leave(clock).await;
            }
            tokio::select! {
                read = read_line(&mut stdout, &mut line, line_max) => match read {
                    Ok(true) => {
                        self.hear(&line);
                        line.clear();
                        heard_at = clock.monotonic();
                    }
                    Ok(false) => {
                        let why = self.last_words(clock).await;
                        return self.die(&why);
                    }
                    Err(why) => return self.die(&why),
                },
                written = write_on(&mut self.stdin, &self.unwritten), if !self.unwritten.is_empty() => match written {
                    Ok(bytes) => drop(self.unwritten.drain(..bytes)),
                    Err(why) => return self.die(why),
                },
                order = orders.recv(), if needed && self.unwritten.is_empty() => match order {
                    None => needed = false,
                    Some(order) => {
                        if self.waiting.is_empty() {
                            // It had nothing to say.
                            heard_at = clock.monotonic();
                            look_at = heard_at.plus(LOOK);
                        }
                        self.give(order);
                    }
                },
                () = clock.sleep_until(look_at), if !self.waiting.is_empty() => {
                    look_at = clock.monotonic().plus(LOOK);
                    let left = self.waiting.values().filter(|done| done.is_closed()).count();
                    let silent = clock.monotonic().since(heard_at) >= HUNG;
                    if left == self.waiting.len() || (left > 0 && silent) {
                        tracing::warn!("a program of an action does not answer: it is ended");
                        return self.die("the program hung, and was ended");
                    }
                    if left > LEFT_MAX {
                        self.waiting.retain(|_, done| !done.is_closed());
                    }
                }
            }
        }
    }

    fn give(&mut self, order: Order) {
        self.given += 1;
        let id = self.given.to_string();
        // What is not JSON is given as a text.
        let input = serde_json::from_str(&order.data).unwrap_or_else(|_| Value::String(order.data.clone()));
        self.unwritten = format!("{}\n", json!({"id": id, "input": input})).into_bytes();
        self.waiting.insert(id, order.done);
    }

    fn hear(&mut self, line: &[u8]) {
        let Ok(said) = serde_json::from_slice::<Said>(line) else {
            tracing::debug!("a program wrote a line that is no answer");
            return;
        };
        let id = match &said.id {
            Value::String(id) => id.clone(),
            other => other.to_string(),
        };
        let Some(done) = self.waiting.remove(&id) else { return };
        let answer = match said.error {
            None | Some(Value::Null) => Ok(said.output.to_string()),
            Some(Value::String(why)) => Err(why),
            Some(why) => Err(why.to_string()),
        };
        // Its time may have been up.
        let _ = done.send(answer);
    }

    /// Why it ended, if it says so.
    async fn last_words(&mut self, clock: &dyn Clock) -> String {
        let ended = tokio::select! {
            ended = self.child.wait() => ended.ok(),
            () = clock.sleep(LEAVE) => None,
        };
        let complaint = self.complaint.lock().clone();
        match (complaint.is_empty(), ended) {
            (false, _) => format!("the program ended: {complaint}"),
            (true, Some(status)) => format!("the program ended with {status}"),
            (true, None) => "the program closed its output".into(),
        }
    }

    fn die(mut self, why: &str) -> Parted {
        let why = self.held.broken().unwrap_or_else(|| why.to_owned());
        for (_, done) in self.waiting.drain() {
            let _ = done.send(Err(why.clone()));
        }
        Parted::Died
    }

    async fn leave(mut self, clock: &dyn Clock) -> Parted {
        drop(self.stdin.take());
        tokio::select! {
            _ = self.child.wait() => {}
            () = clock.sleep(LEAVE) => {}
        }
        Parted::NotNeeded
    }
}

/// One line of bounded length into `line`, which may hold the beginning of it; false at the end.
async fn read_line(
    from: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<bool, String> {
    loop {
        let room = (bytes_max + 1).saturating_sub(line.len());
        if room == 0 {
            return Err(format!("it wrote a line of more than {bytes_max} bytes"));
        }
        let read = (&mut *from).take(room as u64).read_until(b'\n', line).await;
        match read.map_err(|error| format!("its output cannot be read: {error}"))? {
            0 => return Ok(false),
            _ if line.last() == Some(&b'\n') => return Ok(true),
            _ => {}
        }
    }
}

/// Some of it. Cancel-safe.
async fn write_on(stdin: &mut Option<ChildStdin>, bytes: &[u8]) -> Result<usize, &'static str> {
    let Some(stdin) = stdin else { return Err("it takes no more input") };
    match stdin.write(bytes).await {
        Ok(0) | Err(_) => Err("it closed its input"),
        Ok(written) => Ok(written),
    }
}
