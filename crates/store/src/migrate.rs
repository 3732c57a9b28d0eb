//! Versioned steps. Each component (a capability, the api) has its own list, numbered from 1 without gaps; what has been
//! applied is in the table `migrations`. Steps only ever expand: dropping what an older program still reads waits for a
//! later release.
//!
//! All steps that are missing are applied in one transaction: a program that dies half way leaves the file as it was.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, params};

use crate::StoreError;

/// One step of a component's schema.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub component: &'static str,
    pub version: u32,
    pub sql: &'static str,
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS migrations (
    component TEXT NOT NULL,
    version INTEGER NOT NULL,
    applied_at INTEGER NOT NULL,
    PRIMARY KEY (component, version)
) STRICT, WITHOUT ROWID";

/// The newest version of each component, once it is certain that its steps go 1, 2, 3, …
pub(crate) fn known(migrations: &[Migration]) -> Result<BTreeMap<&'static str, u32>, StoreError> {
    let mut known = BTreeMap::new();
    for step in migrations {
        let last = known.entry(step.component).or_insert(0u32);
        if step.version != *last + 1 {
            let why = format!("version {} comes after version {last}", step.version);
            return Err(StoreError::BadMigrations { component: step.component.into(), why });
        }
        *last = step.version;
    }
    Ok(known)
}

/// The tables that these steps make, in the order in which they do: whoever is referred to comes first.
pub(crate) fn tables(migrations: &[Migration]) -> Vec<&'static str> {
    let of = |step: &Migration| step.sql.split("CREATE TABLE ").skip(1);
    let name = |rest: &'static str| rest.split([' ', '(', '\n']).next().unwrap_or(rest);
    migrations.iter().flat_map(of).map(name).collect()
}

/// Brings the file up to the newest version, or refuses it untouched.
pub(crate) fn apply(
    conn: &Connection,
    file: &Path,
    migrations: &[Migration],
    name: impl Fn(rusqlite::Error) -> StoreError,
) -> Result<(), StoreError> {
    let known = known(migrations)?;
    // Whoever comes second waits here, then finds the work done.
    conn.execute_batch("BEGIN EXCLUSIVE").map_err(&name)?;
    let applied =
        apply_inside(conn, file, migrations, &known, &name).and_then(|()| conn.execute_batch("COMMIT").map_err(&name));
    if !conn.is_autocommit() {
        // The first error is the one worth telling; closing the connection rolls back as well.
        let _ = conn.execute_batch("ROLLBACK");
    }
    applied
}

fn apply_inside(
    conn: &Connection,
    file: &Path,
    migrations: &[Migration],
    known: &BTreeMap<&'static str, u32>,
    name: impl Fn(rusqlite::Error) -> StoreError,
) -> Result<(), StoreError> {
    conn.execute_batch(TABLE).map_err(&name)?;
    let mut found: BTreeMap<&str, u32> = BTreeMap::new();
    for (component, known) in known {
        let version = conn
            .query_row("SELECT coalesce(max(version), 0) FROM migrations WHERE component = ?1", [component], |row| {
                row.get::<_, u32>(0)
            })
            .map_err(&name)?;
        if version > *known {
            return Err(StoreError::Newer {
                component: (*component).into(),
                path: file.display().to_string(),
                found: version,
                known: *known,
            });
        }
        found.insert(component, version);
    }
    for step in migrations.iter().filter(|step| step.version > found[step.component]) {
        conn.execute_batch(step.sql).map_err(&name)?;
        conn.execute(
            "INSERT INTO migrations (component, version, applied_at) VALUES (?1, ?2, unixepoch())",
            params![step.component, step.version],
        )
        .map_err(&name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Migration = Migration { component: "a", version: 1, sql: "CREATE TABLE a (x INTEGER)" };
    const TWO: Migration = Migration { component: "a", version: 2, sql: "ALTER TABLE a ADD COLUMN y INTEGER" };
    const OTHER: Migration = Migration { component: "b", version: 1, sql: "CREATE TABLE b (x INTEGER)" };
    const BROKEN: Migration = Migration { component: "b", version: 2, sql: "CREATE TABLE c (x INTEGER); NONSENSE" };

    fn apply_to(conn: &Connection, steps: &[Migration]) -> Result<(), StoreError> {
        apply(conn, Path::new("test.db"), steps, StoreError::Sqlite)
    }

    fn tables(conn: &Connection) -> i64 {
        conn.query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn only_missing_steps_are_applied_and_again_changes_nothing() {
        let conn = Connection::open_in_memory().unwrap();
        apply_to(&conn, &[ONE]).unwrap();
        apply_to(&conn, &[ONE, OTHER, TWO]).unwrap();
        apply_to(&conn, &[ONE, OTHER, TWO]).unwrap();
        conn.execute("INSERT INTO a (x, y) VALUES (1, 2)", []).unwrap();
        assert_eq!(tables(&conn), 3);
    }

    #[test]
    fn a_gap_a_repeat_and_a_late_start_are_refused_before_anything_is_touched() {
        let conn = Connection::open_in_memory().unwrap();
        for steps in
            [&[TWO][..], &[ONE, ONE], &[ONE, Migration { version: 3, ..TWO }], &[Migration { version: 0, ..ONE }]]
        {
            let refused = apply_to(&conn, steps).unwrap_err();
            assert!(matches!(refused, StoreError::BadMigrations { .. }), "{refused}");
        }
        assert_eq!(tables(&conn), 0);
    }

    #[test]
    fn a_failing_step_undoes_the_whole_upgrade() {
        let conn = Connection::open_in_memory().unwrap();
        apply_to(&conn, &[ONE]).unwrap();
        apply_to(&conn, &[ONE, TWO, OTHER, BROKEN]).unwrap_err();
        assert_eq!(tables(&conn), 2, "a and migrations");
        apply_to(&conn, &[ONE, TWO, OTHER]).unwrap();
    }

    #[test]
    fn steps_tell_the_tables_that_they_make() {
        assert_eq!(super::tables(&[ONE, TWO, OTHER]), ["a", "b"]);
    }

    #[test]
    fn a_newer_file_is_refused_untouched() {
        let conn = Connection::open_in_memory().unwrap();
        apply_to(&conn, &[ONE, TWO]).unwrap();
        let refused = apply_to(&conn, &[OTHER, ONE]).unwrap_err();
        assert!(matches!(&refused, StoreError::Newer { found: 2, known: 1, component, .. } if component == "a"));
        assert_eq!(tables(&conn), 2, "b was not made");
    }
}
