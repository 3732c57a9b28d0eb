//! One SQLite file: one thread that writes, a few connections that read.
//!
//! **Group commit.** An fsync costs as much as hundreds of small writes, so everything that waits when the writer is free
//! goes into one transaction and shares one. Each write has a savepoint of its own: one that fails or panics undoes only
//! itself. A write is answered after its group's COMMIT, so what was answered survives a kill and a power cut.
//!
//! Not here: any table or query. Those belong to the capabilities.

mod connect;
pub(crate) mod copy;
mod errors;
mod pending;
mod readers;
mod stats;
mod writer;

use std::path::Path;
use std::sync::Arc;

use mutirao_core::{Clock, SystemClock};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use crate::room::Room;
use crate::{Migration, StoreError, folder, migrate};
use pending::Pending;
use readers::Readers;
pub use stats::Stats;
use stats::Tally;
use writer::{Message, Writer};

/// Writes that have reached the writer and wait for it. Past this, callers wait in turn.
const INBOX_WRITES_MAX: usize = 1_024;
/// Writes that wait in all, callers among them. Past this, [`StoreError::Busy`].
const WRITES_WAITING_MAX: usize = 16_384;

/// A handle on one SQLite file; clones share it.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// # let folder = tempfile::tempdir().unwrap();
/// use mutirao_store::{Migration, Sqlite};
///
/// let steps = [Migration { component: "doc", version: 1, sql: "CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)" }];
/// let store = Sqlite::open(&folder.path().join("store.db"), &steps)?;
/// store.write(|sql| sql.prepare_cached("INSERT INTO t VALUES (?1, ?2)")?.execute((1, "one"))).await?;
/// let v: String = store.read(|sql| sql.query_row("SELECT v FROM t WHERE k = 1", [], |row| row.get(0))).await?;
/// assert_eq!(v, "one");
/// store.close().await;
/// # Ok::<(), mutirao_store::StoreError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Sqlite(Arc<Inner>);

struct Inner {
    file: Arc<Path>,
    inbox: mpsc::Sender<Message>,
    room: Room,
    readers: Arc<Readers>,
    tally: Arc<Tally>,
    /// Its other end is dropped when the writer has closed the file.
    writer_alive: watch::Receiver<()>,
}

impl Sqlite {
    /// Opens the file, making it (0600) and its folder (0700) if need be, and applies the steps that are missing. Blocks,
    /// also while another process is busy opening a file in the same folder.
    pub fn open(file: &Path, migrations: &[Migration]) -> Result<Sqlite, StoreError> {
        Self::open_with_clock(file, migrations, SystemClock::shared())
    }

    /// As [`open`](Self::open); the clock bounds and times groups.
    pub fn open_with_clock(file: &Path, migrations: &[Migration], clock: Arc<dyn Clock>) -> Result<Sqlite, StoreError> {
        let dir = folder::parent_of(file);
        folder::make(dir).map_err(|error| folder::name(&error, dir))?;
        // Switching a new file to WAL does not wait its turn by itself, so openers queue here. Let go of at the end.
        let turn = std::fs::File::open(dir).and_then(|dir| dir.lock().map(|()| dir));
        let _turn = turn.map_err(|error| folder::name(&error, dir))?;

        let conn = connect::writer(file)?;
        migrate::apply(&conn, file, migrations, |error| errors::name(error, file))?;

        let file: Arc<Path> = file.into();
        let (sender, inbox) = mpsc::channel(INBOX_WRITES_MAX);
        let (alive, writer_alive) = watch::channel(());
        let tally = Arc::new(Tally::default());
        let writer = Writer { conn, file: file.clone(), inbox, clock, tally: tally.clone() };
        writer.start(alive).map_err(|error| folder::name(&error, &file))?;
        let readers = Arc::new(Readers::of(file.clone()));
        let room = Room::for_at_most(WRITES_WAITING_MAX);
        Ok(Sqlite(Arc::new(Inner { file, inbox: sender, room, readers, tally, writer_alive })))
    }

    /// Runs `f` on the writer and returns when what it wrote is durable. An error means that nothing of it was written.
    ///
    /// `f` must be quick, since all other writes wait; must use no deferred constraints, since those fail at the COMMIT
    /// that it shares; and must leave transactions alone. When the caller goes away after the write has reached the
    /// writer, it is written all the same.
    pub async fn write<T, F>(&self, f: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let _place = self.0.room.enter()?;
        let (answer, answered) = oneshot::channel();
        let write = Message::Write(Box::new(Pending::new(f, answer)));
        self.0.inbox.send(write).await.map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    /// Runs `f` on a thread for blocking work, with a connection that cannot write. All of `f` sees one state of the
    /// file, in which every write answered before the call is present and no half of any other.
    ///
    /// While `f` runs the write-ahead log cannot shrink: read in pages.
    pub async fn read<T, F>(&self, f: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.0.readers.read(f).await
    }

    /// Finishes the reads and writes that wait, folds the write-ahead log into the file and closes it. Later calls, by any
    /// clone, get [`StoreError::Closed`]. Dropping the last handle does the same, but nobody can wait for it.
    pub async fn close(&self) {
        // Readers go first: while one is open the log cannot be folded.
        self.0.readers.close().await;
        // An error says that the writer is gone or going, which the next line waits for.
        let _ = self.0.inbox.send(Message::Close).await;
        let mut alive = self.0.writer_alive.clone();
        while alive.changed().await.is_ok() {}
    }

    pub fn stats(&self) -> Stats {
        self.0.tally.stats()
    }

    pub fn file(&self) -> &Path {
        &self.0.file
    }
}

impl std::fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sqlite").field("file", &self.file()).field("stats", &self.stats()).finish()
    }
}
