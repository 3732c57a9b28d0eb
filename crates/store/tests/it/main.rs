//! The store against real files and a real server: groups, crashes, full disks, several processes.

mod backup;
mod blobs;
mod child;
mod closing;
mod durability;
mod full_disk;
mod gate;
mod groups;
mod installation;
mod opening;
mod postgres;
mod reading;

use mutirao_store::{Migration, Sqlite};

/// One table of integer-keyed rows.
pub const ROWS: Migration = Migration {
    component: "rows",
    version: 1,
    sql: "CREATE TABLE rows (k INTEGER PRIMARY KEY, v BLOB); CREATE TABLE child (k INTEGER REFERENCES rows (k))",
};

pub fn insert(k: i64) -> impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<()> + Send + 'static {
    move |sql| sql.prepare_cached("INSERT INTO rows (k) VALUES (?1)")?.execute([k]).map(|_| ())
}

pub async fn keys(store: &Sqlite) -> Vec<i64> {
    let read = store.read(|sql| {
        let mut select = sql.prepare_cached("SELECT k FROM rows ORDER BY k")?;
        select.query_map([], |row| row.get(0))?.collect()
    });
    read.await.unwrap()
}
