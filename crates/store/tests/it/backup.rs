//! Backups against real files and a real server: what comes back, what is refused, and what stays untouched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use mutirao_core::Timestamp;
use mutirao_core::blobs::Blobs;
use mutirao_store::backup::{self, BackupError, JUMP, Manifest, Onlooker, Place, Present, Stamp, Tables};
use mutirao_store::postgres::{Ask, BLOBS_MIGRATIONS};
use mutirao_store::suite::schema::Schema;
use mutirao_store::{FileBlobs, FolderLock, Migration, PgBlobs, Postgres, Sqlite};
use mutirao_testkit::services::{POSTGRES_VARIABLE, shared};

const THINGS: Migration = Migration {
    component: "things",
    version: 1,
    sql: "CREATE TABLE things (k INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, body BLOB, good INTEGER NOT NULL) STRICT;
          CREATE TABLE generations (name TEXT PRIMARY KEY, n INTEGER NOT NULL) STRICT",
};
const WIDER: Migration = Migration {
    component: "things",
    version: 2,
    sql: "ALTER TABLE things ADD COLUMN length INTEGER; UPDATE things SET length = length(name)",
};
const PG_THINGS: Migration = Migration {
    component: "things",
    version: 1,
    sql: "CREATE TABLE things (k bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, body bytea, good boolean NOT NULL);
          CREATE TABLE generations (name text PRIMARY KEY, n bigint NOT NULL)",
};

/// Hard for every format between here and there.
const NAMES: [&str; 4] = ["plain", "tab\tline\nback\\slash", "\\N", "ü\u{1f980}"];
/// Blobs that go away, and as many that come, while backups are made.
const REMOVED: u32 = 400;
const LOG: &str = "logs/j1/1/1-1/stdout";

struct Silent;

impl Onlooker for Silent {
    fn begins(&self, _: &'static str, _: u64) {}
    fn passed(&self, _: u64) {}
}

fn place(data: &Path, server: Option<String>) -> Place {
    let postgres = [&[PG_THINGS], BLOBS_MIGRATIONS].concat();
    let after = format!("UPDATE generations SET n = n + {JUMP}");
    Place {
        data: data.into(),
        server,
        database: "store.db",
        blobs: "blobs",
        files: vec!["admin.token".into(), "workers/a/identity".into(), "not.there".into()],
        tables: Tables { sqlite: vec![THINGS], postgres, after },
    }
}

/// An installation with something of everything; `large` does not fit into one frame of an archive.
async fn furnish(data: &Path) -> (Sqlite, FileBlobs) {
    std::fs::create_dir_all(data.join("workers/a")).unwrap();
    std::fs::write(data.join("admin.token"), "mut_secret").unwrap();
    std::fs::write(data.join("workers/a/identity"), "key").unwrap();
    let store = Sqlite::open(&data.join("store.db"), &[THINGS]).unwrap();
    store
        .write(|db| {
            for name in NAMES {
                db.execute("INSERT INTO things (name, body, good) VALUES (?1, x'00ff0a09', 1)", [name])?;
            }
            db.execute("INSERT INTO things (k, name, good) VALUES (1000, 'gone', 0)", [])?;
            db.execute("DELETE FROM things WHERE k = 1000", [])?;
            db.execute("INSERT INTO generations VALUES ('jobs', 3)", [])
        })
        .await
        .unwrap();
    let blobs = FileBlobs::open(&data.join("blobs")).unwrap();
    blobs.append(LOG, 0, large()).await.unwrap();
    blobs.append("logs/j2/1/1-1/stderr", 0, Bytes::from_static(b"short")).await.unwrap();
    (store, blobs)
}

fn large() -> Bytes {
    (0..3_000_001u32).map(|n| (n % 251) as u8).collect()
}

async fn create(of: &Place, to: &Path) -> Result<Manifest, BackupError> {
    let stamp = Stamp { program: "0.0.0".into(), at: Timestamp(7) };
    backup::create(of, to, &stamp, &Silent).await
}

async fn restore(archive: &Path, into: &Place, present: Present) -> Result<Manifest, BackupError> {
    backup::restore(archive, into, present, &Silent).await
}

async fn all(blobs: &dyn Blobs, key: &str) -> Bytes {
    let mut found = Vec::new();
    loop {
        let piece = blobs.read(key, found.len() as u64, 1 << 20).await.unwrap();
        if piece.is_empty() {
            return found.into();
        }
        found.extend_from_slice(&piece);
    }
}

/// Everything under a folder, to see whether anything changed.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(contents(&entry.path()));
        } else {
            found.insert(entry.path(), std::fs::read(entry.path()).unwrap());
        }
    }
    found
}

type Thing = (i64, String, Option<Vec<u8>>, bool);

async fn things(store: &Sqlite) -> Vec<Thing> {
    let read = store.read(|db| {
        let mut asked = db.prepare("SELECT k, name, body, good FROM things ORDER BY k")?;
        asked.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?.collect()
    });
    read.await.unwrap()
}

fn expected() -> Vec<Thing> {
    let thing = |(n, name): (usize, &&str)| (n as i64 + 1, (*name).to_owned(), Some(vec![0, 255, 10, 9]), true);
    NAMES.iter().enumerate().map(thing).collect()
}

async fn check_server(url: &str) {
    let store = Postgres::open(url, &place(Path::new("/"), None).tables.postgres).await.unwrap();
    let connection = store.connection().await.unwrap();
    let rows = connection.rows("SELECT k, name, body, good FROM things ORDER BY k", &[]).await.unwrap();
    let found: Vec<Thing> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
    assert_eq!(found, expected());
    let next = "INSERT INTO things (name, good) VALUES ('next', true) RETURNING k, (SELECT n FROM generations)";
    let row = connection.row(next, &[]).await.unwrap().unwrap();
    assert!(row.get::<_, i64>(0) > 1000 + JUMP, "a key that may have been given out before");
    assert!(row.get::<_, i64>(1) >= 3 + JUMP);
    drop(connection);
    let blobs = PgBlobs(store.clone());
    assert!(all(&blobs, LOG).await == large());
    assert_eq!(all(&blobs, "logs/j2/1/1-1/stderr").await, "short");
    assert_eq!(blobs.append("logs/j2/1/1-1/stderr", 5, Bytes::from_static(b"er")).await, Ok(7));
    assert_eq!(blobs.append("logs/new", 0, Bytes::from_static(b"x")).await, Ok(1));
    store.close().await;
}

#[tokio::test]
async fn everything_in_the_folder_comes_back_while_the_original_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (data, fresh, archive) = (dir.path().join("data"), dir.path().join("fresh"), dir.path().join("b"));
    let (store, blobs) = furnish(&data).await;
    let manifest = create(&place(&data, None), &archive).await.unwrap();
    assert_eq!(backup::verify(&archive, &Silent).unwrap(), manifest);
    assert_eq!(manifest.parts.iter().map(|part| part.items).collect::<Vec<_>>(), [2, 1, 2]);
    store.write(|db| db.execute("INSERT INTO things (name, good) VALUES ('later', 1)", [])).await.unwrap();
    blobs.append("logs/j2/1/1-1/stderr", 5, Bytes::from_static(b"er")).await.unwrap();

    restore(&archive, &place(&fresh, None), Present::Refuse).await.unwrap();
    let restored = Sqlite::open(&fresh.join("store.db"), &[THINGS]).unwrap();
    assert_eq!(things(&restored).await, expected());
    let numbers = restored.write(|db| {
        db.execute("INSERT INTO things (name, good) VALUES ('next', 1)", [])?;
        Ok((db.last_insert_rowid(), db.query_row("SELECT n FROM generations", [], |row| row.get::<_, i64>(0))?))
    });
    let (key, generation) = numbers.await.unwrap();
    assert!(key > 1000 + JUMP && generation == 3 + JUMP, "numbers that may have been given out before: {key}");
    let found = FileBlobs::open(&fresh.join("blobs")).unwrap();
    assert!(all(&found, LOG).await == large());
    assert_eq!(all(&found, "logs/j2/1/1-1/stderr").await, "short");
    let token = fresh.join("admin.token");
    assert_eq!(std::fs::read_to_string(&token).unwrap(), "mut_secret");
    let mode = |path: &Path| std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions());
    assert_eq!([mode(&token) & 0o777, mode(&archive) & 0o777], [0o600; 2]);
    assert!(!fresh.join("restore").exists() && contents(&data.join("backup")).len() <= 1, "something was left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_taken_amid_writes_and_removals_has_every_blob_that_it_refers_to() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (store, blobs) = furnish(&data).await;
    // As jobs do it: the blob before its row, the row gone before its blob; and what is removed is old.
    let key = |n: u32| format!("logs/busy{n}/1/1-1/stdout");
    for n in 0..REMOVED {
        blobs.append(&key(n), 0, Bytes::from_static(b"x")).await.unwrap();
    }
    let insert =
        |db: &rusqlite::Connection, key: &str| db.execute("INSERT INTO things (name, good) VALUES (?1, 1)", [key]);
    store.write(move |db| (0..REMOVED).try_for_each(|n| insert(db, &key(n)).map(drop))).await.unwrap();
    let busy = tokio::spawn(async move {
        for n in 0..REMOVED {
            let new = key(REMOVED + n);
            blobs.append(&new, 0, Bytes::from_static(b"x")).await.unwrap();
            store.write(move |db| insert(db, &new)).await.unwrap();
            let old = key(n);
            store.write(move |db| db.execute("DELETE FROM things WHERE name = ?1", [old])).await.unwrap();
            blobs.remove_all(&format!("logs/busy{n}/")).await.unwrap();
        }
    });
    let mut round = 0;
    while !busy.is_finished() || round == 0 {
        round += 1;
        let (archive, fresh) = (dir.path().join(format!("b{round}")), dir.path().join(format!("fresh{round}")));
        create(&place(&data, None), &archive).await.unwrap();
        restore(&archive, &place(&fresh, None), Present::Refuse).await.unwrap();
        let restored = Sqlite::open(&fresh.join("store.db"), &[THINGS]).unwrap();
        for (_, name, ..) in things(&restored).await.into_iter().filter(|(_, name, ..)| name.starts_with("logs/")) {
            assert!(fresh.join("blobs").join(&name).is_file(), "round {round}: {name} is referred to and not there");
        }
        restored.close().await;
    }
    busy.await.unwrap();
}

#[tokio::test]
async fn an_older_backup_is_brought_up_to_date_and_a_newer_one_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (data, fresh, archive) = (dir.path().join("data"), dir.path().join("fresh"), dir.path().join("b"));
    furnish(&data).await.0.close().await;
    create(&place(&data, None), &archive).await.unwrap();
    let mut newer = place(&fresh, None);
    newer.tables.sqlite.push(WIDER);
    restore(&archive, &newer, Present::Refuse).await.unwrap();
    let restored = Sqlite::open(&fresh.join("store.db"), &[THINGS, WIDER]).unwrap();
    let length = "SELECT length FROM things WHERE k = 1";
    let length = restored.read(move |db| db.query_row(length, [], |row| row.get::<_, i64>(0))).await;
    assert_eq!(length.unwrap(), 5, "the step was applied to the rows of the backup");
    restored.close().await;

    let (second, other) = (dir.path().join("c"), dir.path().join("other"));
    create(&newer, &second).await.unwrap();
    let refused = restore(&second, &place(&other, None), Present::Refuse).await.unwrap_err();
    assert!(matches!(&refused, BackupError::NewerSchema { found: 2, known: 1, .. }), "{refused}");
    assert!(!other.exists(), "a refusal touches nothing");
}

#[tokio::test]
async fn what_is_there_is_kept_unless_told_otherwise_and_then_kept_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (data, archive) = (dir.path().join("data"), dir.path().join("b"));
    let (store, _) = furnish(&data).await;
    create(&place(&data, None), &archive).await.unwrap();
    store.write(|db| db.execute("DELETE FROM things", [])).await.unwrap();
    store.close().await;
    let before = contents(&data);
    let refused = restore(&archive, &place(&data, None), Present::Refuse).await.unwrap_err();
    assert!(matches!(&refused, BackupError::NotEmpty { .. }), "{refused}");
    let lock = data.join("lock");
    let unlocked = |mut found: BTreeMap<PathBuf, Vec<u8>>| {
        found.remove(&lock);
        found
    };
    assert!(unlocked(contents(&data)) == unlocked(before), "a refusal touches nothing");

    let held = FolderLock::take(&data).unwrap();
    assert!(restore(&archive, &place(&data, None), Present::Replace).await.unwrap_err().to_string().contains("in use"));
    drop(held);
    restore(&archive, &place(&data, None), Present::Replace).await.unwrap();
    let restored = Sqlite::open(&data.join("store.db"), &[THINGS]).unwrap();
    assert_eq!(things(&restored).await, expected());
    let old = Sqlite::open(&data.join("replaced-1/store.db"), &[THINGS]).unwrap();
    assert_eq!(things(&old).await, []);
}

#[tokio::test]
async fn a_damaged_archive_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (data, fresh, archive) = (dir.path().join("data"), dir.path().join("fresh"), dir.path().join("b"));
    let (_store, _blobs) = furnish(&data).await;
    create(&place(&data, None), &archive).await.unwrap();
    let mut bytes = std::fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&archive, &bytes).unwrap();
    let refused = restore(&archive, &place(&fresh, None), Present::Replace).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Damaged { .. }), "{refused}");
    std::fs::write(&archive, &bytes[..middle]).unwrap();
    let refused = restore(&archive, &place(&fresh, None), Present::Replace).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Cut { .. }), "{refused}");
    assert!(!fresh.exists());
}

#[tokio::test]
async fn an_embedded_backup_goes_into_postgresql_and_from_there_into_another() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let (first, second) = (Schema::in_database(&server).await, Schema::in_database(&server).await);
    let dir = tempfile::tempdir().unwrap();
    let (data, archive) = (dir.path().join("data"), dir.path().join("b"));
    furnish(&data).await.0.close().await;
    create(&place(&data, None), &archive).await.unwrap();

    let one = place(&dir.path().join("one"), Some(first.url()));
    restore(&archive, &one, Present::Refuse).await.unwrap();
    assert_eq!(std::fs::read_to_string(one.data.join("admin.token")).unwrap(), "mut_secret");
    assert!(!one.data.join("store.db").exists() && !one.data.join("restore").exists());
    let out = dir.path().join("from-server");
    create(&one, &out).await.unwrap();
    check_server(&first.url()).await;

    let two = place(&dir.path().join("two"), Some(second.url()));
    restore(&out, &two, Present::Refuse).await.unwrap();
    check_server(&second.url()).await;
    let again = place(&dir.path().join("three"), Some(second.url()));
    let refused = restore(&out, &again, Present::Refuse).await.unwrap_err();
    assert!(matches!(&refused, BackupError::NotEmpty { .. }), "{refused}");
    assert!(!again.data.join("restore").exists(), "secrets were left behind");
    let refused = restore(&out, &place(&dir.path().join("four"), None), Present::Refuse).await.unwrap_err();
    assert!(matches!(&refused, BackupError::NeedsServer { .. }), "{refused}");
    first.remove().await;
    second.remove().await;
}

#[tokio::test]
async fn an_older_backup_of_postgresql_is_brought_up_to_date() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let (old, new) = (Schema::in_database(&server).await, Schema::in_database(&server).await);
    let dir = tempfile::tempdir().unwrap();
    let from = place(&dir.path().join("from"), Some(old.url()));
    let store = Postgres::open(&old.url(), &from.tables.postgres).await.unwrap();
    store.connection().await.unwrap().run("INSERT INTO things (name, good) VALUES ('four', true)", &[]).await.unwrap();
    store.close().await;
    let archive = dir.path().join("b");
    create(&from, &archive).await.unwrap();
    let mut into = place(&dir.path().join("into"), Some(new.url()));
    into.tables.postgres.push(WIDER);
    restore(&archive, &into, Present::Refuse).await.unwrap();
    let store = Postgres::open(&new.url(), &into.tables.postgres).await.unwrap();
    let connection = store.connection().await.unwrap();
    let row = connection.row("SELECT length::bigint FROM things", &[]).await.unwrap().unwrap();
    assert_eq!(row.get::<_, i64>(0), 4, "the step was applied to the rows of the backup");
    drop(connection);
    store.close().await;

    create(&into, &dir.path().join("c")).await.unwrap();
    let other = place(&dir.path().join("other"), Some(old.url()));
    let refused = restore(&dir.path().join("c"), &other, Present::Refuse).await.unwrap_err();
    assert!(matches!(&refused, BackupError::NewerSchema { .. }), "{refused}");
    old.remove().await;
    new.remove().await;
}
