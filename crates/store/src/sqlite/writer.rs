//! The writer's thread: takes what waits, runs it in one transaction, commits, answers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Clock;
use rusqlite::{Connection, Error, ffi};
use tokio::sync::{mpsc, watch};

use super::errors;
use super::pending::Write;
use super::stats::Tally;

/// Writes in one group.
const GROUP_WRITES_MAX: usize = 1_024;
/// How long a group takes in more writes before it commits.
const GROUP_OPEN_MAX: Duration = Duration::from_millis(20);

pub(super) enum Message {
    Write(Box<dyn Write>),
    /// Finish what waits and let nothing more in.
    Close,
}

pub(super) struct Writer {
    pub conn: Connection,
    pub file: Arc<Path>,
    pub inbox: mpsc::Receiver<Message>,
    pub clock: Arc<dyn Clock>,
    pub tally: Arc<Tally>,
}

impl Writer {
    /// Starts the thread. It drops `alive` when it has closed the file.
    pub fn start(self, alive: watch::Sender<()>) -> std::io::Result<()> {
        let thread = std::thread::Builder::new().name("sqlite-writer".into());
        thread.spawn(move || {
            self.run();
            drop(alive);
        })?;
        Ok(())
    }

    fn run(mut self) {
        while let Some(message) = self.inbox.blocking_recv() {
            match message {
                Message::Write(first) => self.group(first),
                // What is inside still comes out.
                Message::Close => self.inbox.close(),
            }
        }
        let folded = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        if let Err(error) = folded {
            // Nothing is lost: the next to open the file reads the log.
            tracing::warn!(file = %self.file.display(), %error, "the write-ahead log was not folded into the file");
        }
    }

    fn group(&mut self, first: Box<dyn Write>) {
        let began = self.clock.monotonic();
        let mut group = Vec::new();
        let fate = self.fill(first, &mut group).and_then(|()| self.execute("COMMIT"));
        match fate {
            Ok(()) => self.tally.committed(group.len(), self.clock.monotonic().since(began)),
            Err(_) => {
                self.tally.failed();
                self.abandon();
            }
        }
        for write in group {
            let fate = fate.as_ref().copied().map_err(|error| errors::name(errors::copy(error), &self.file));
            write.answer(fate);
        }
    }

    /// Runs everything that waits. An error means that the whole transaction is gone.
    fn fill(&mut self, first: Box<dyn Write>, group: &mut Vec<Box<dyn Write>>) -> Result<(), Error> {
        if let Err(error) = self.execute("BEGIN IMMEDIATE") {
            // Whoever waits by now shares the error, or each would wait for the same lock in turn.
            group.push(first);
            while group.len() < GROUP_WRITES_MAX
                && let Some(write) = self.next_waiting()
            {
                group.push(write);
            }
            return Err(error);
        }
        let began = self.clock.monotonic();
        let mut next = Some(first);
        while let Some(mut write) = next {
            let ran = self.run_alone(&mut *write);
            group.push(write);
            ran?;
            let open = group.len() < GROUP_WRITES_MAX && self.clock.monotonic().since(began) < GROUP_OPEN_MAX;
            next = if open { self.next_waiting() } else { None };
        }
        Ok(())
    }

    fn next_waiting(&mut self) -> Option<Box<dyn Write>> {
        match self.inbox.try_recv() {
            Ok(Message::Write(write)) => Some(write),
            Ok(Message::Close) => {
                self.inbox.close();
                None
            }
            Err(_) => None,
        }
    }

    /// Runs one write between savepoints, so that its failure is its own.
    fn run_alone(&self, write: &mut dyn Write) -> Result<(), Error> {
        self.execute("SAVEPOINT mutirao_write")?;
        let ran = write.run(&self.conn, &self.file);
        if self.conn.is_autocommit() {
            // SQLite drops the transaction by itself when it finds no space or memory; otherwise the closure ended it.
            return Err(ran
                .err()
                .unwrap_or_else(|| errors::failure(ffi::SQLITE_MISUSE, "a write ended its transaction")));
        }
        if ran.is_err() {
            self.execute("ROLLBACK TO mutirao_write")?;
        }
        self.execute("RELEASE mutirao_write")
    }

    fn abandon(&self) {
        if self.conn.is_autocommit() {
            return;
        }
        if let Err(error) = self.execute("ROLLBACK") {
            tracing::error!(file = %self.file.display(), %error, "a failed group was not rolled back");
        }
    }

    fn execute(&self, sql: &str) -> Result<(), Error> {
        self.conn.prepare_cached(sql)?.execute([]).map(|_| ())
    }
}
