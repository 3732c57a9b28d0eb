//! SQLite.
pub struct Sqlite;
