//! The database that a manager here would use: reachable, new enough, durable, and with which tables.

use mutirao_store::StoreError;
use mutirao_store::postgres::{Checkup, check};

use super::Finding;
use crate::cli::size;
use crate::config::{Config, Origin};
use crate::database::{file_in, postgres_steps};

pub async fn look(config: &Config) -> Vec<Finding> {
    if let Some(url) = config.settings.database.set() {
        return match check(&url.0, &postgres_steps()).await {
            Ok(checkup) => of(&checkup),
            Err(error) => vec![refused(&error)],
        };
    }
    // Someone who speaks to a server elsewhere has no database here, and needs none.
    if *config.values.origin("url") != Origin::Default {
        return Vec::new();
    }
    let file = file_in(&config.settings.data.0);
    let found = match std::fs::metadata(&file) {
        Ok(meta) => format!("SQLite, {} in {}", size(meta.len()), file.display()),
        Err(_) => "SQLite; the first start makes it".into(),
    };
    vec![Finding::ok("database", found)]
}

fn of(checkup: &Checkup) -> Vec<Finding> {
    let mut findings = vec![Finding::ok("database", format!("PostgreSQL {} at {}", checkup.version, checkup.address))];
    if !checkup.fsync {
        let found = "the server confirms writes before they are on disk (fsync = off)";
        findings.push(Finding::fail("durability", found, "set fsync = on in postgresql.conf and restart it"));
    }
    findings.push(match checkup.steps_missing {
        0 => Finding::ok("tables", "are those of this version"),
        n => Finding::warn("tables", format!("{n} steps are missing"), "the next start of a manager makes them"),
    });
    findings
}

fn refused(error: &StoreError) -> Finding {
    let line = error.to_string();
    // The line carries its own remedy, after the last semicolon.
    match line.rsplit_once("; ") {
        Some((found, remedy)) => Finding::fail("database", found, remedy),
        None => Finding::fail("database", line, "check the setting database, and the server's log"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mark;
    use super::*;

    #[test]
    fn a_server_that_may_forget_is_a_failure_and_missing_tables_are_not() {
        let checkup =
            Checkup { address: "postgres://h/d".into(), version: "15.6".into(), steps_missing: 2, fsync: false };
        let marks: Vec<Mark> = of(&checkup).iter().map(|finding| finding.mark).collect();
        assert_eq!(marks, [Mark::Ok, Mark::Fail, Mark::Warn]);
        let sound = of(&Checkup { steps_missing: 0, fsync: true, ..checkup });
        assert!(sound.iter().all(|finding| finding.mark == Mark::Ok), "{sound:?}");
    }

    #[test]
    fn a_refusal_is_told_apart_from_its_remedy() {
        let error = StoreError::Unusable { path: "postgres://h/d".into(), why: "no such thing; make it".into() };
        let finding = refused(&error);
        assert_eq!(
            (finding.found.as_str(), finding.remedy.as_deref()),
            ("cannot use postgres://h/d: no such thing", Some("make it"))
        );
    }
}
