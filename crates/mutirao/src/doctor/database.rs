//! The database that a manager here would use: reachable, new enough, durable, roomy, ours to use, and with which tables.

use mutirao_core::{Clock, Timestamp};
use mutirao_store::StoreError;
use mutirao_store::postgres::{Checkup, check};

use super::Finding;
use crate::cli::size;
use crate::config::{Config, Origin};
use crate::database::{CONNECTIONS_MAX, file_in, postgres_steps, refuse_elsewhere};

/// Clocks of managers and their database that differ by more confuse whoever reads times.
const SKEW_MS_MAX: i64 = 5_000;
/// A settlement of many tasks, or a step that builds an index, may take this long on a busy server.
const STATEMENT_MS_MIN: i64 = 60_000;

pub async fn look(config: &Config, clock: &dyn Clock) -> Vec<Finding> {
    if let Some(url) = config.settings.database.set() {
        return match check(&url.0, &postgres_steps()).await {
            Ok(checkup) => of(&checkup, clock.now()),
            Err(error) => vec![refused(&error)],
        };
    }
    // Someone who speaks to a server elsewhere has no database here, and needs none.
    if *config.values.origin("url") != Origin::Default {
        return Vec::new();
    }
    if let Err(error) = refuse_elsewhere(&config.settings) {
        return vec![refused(&error)];
    }
    let file = file_in(&config.settings.data.0);
    let found = match std::fs::metadata(&file) {
        Ok(meta) => format!("SQLite, {} in {}", size(meta.len()), file.display()),
        Err(_) => "SQLite; the first start makes it".into(),
    };
    vec![Finding::ok("database", found)]
}

fn of(checkup: &Checkup, now: Timestamp) -> Vec<Finding> {
    let mut findings = vec![Finding::ok("database", format!("PostgreSQL {} at {}", checkup.version, checkup.address))];
    if checkup.standby {
        let remedy = "give the primary's address, or several with target_session_attrs=read-write";
        findings.push(Finding::fail("database", "it is a standby, which takes no writes", remedy));
    }
    findings.push(durability(checkup));
    findings.push(tables(checkup));
    findings.push(connections(checkup));
    if !checkup.settings.autovacuum {
        let found = "autovacuum is off, so the tables grow for ever";
        findings.push(Finding::fail("vacuum", found, "set autovacuum = on in postgresql.conf and reload it"));
    }
    let limit = checkup.settings.statement_timeout_ms;
    if (1..STATEMENT_MS_MIN).contains(&limit) {
        let found = format!("the server ends statements after {limit} ms");
        let remedy = "ALTER ROLE … SET statement_timeout = 0 for this user";
        findings.push(Finding::warn("timeout", found, remedy));
    }
    let skew = checkup.now.0 - now.0;
    if skew.abs() > SKEW_MS_MAX {
        let found = format!("the database's differs by {} s", skew / 1000);
        findings.push(Finding::warn("clock", found, "keep both on time with NTP"));
    }
    findings
}

fn durability(checkup: &Checkup) -> Finding {
    let settings = &checkup.settings;
    let off = [("fsync", settings.fsync), ("full_page_writes", settings.full_page_writes)];
    match off.iter().find(|(_, on)| !on) {
        Some((name, _)) => Finding::fail(
            "durability",
            format!("a power cut may lose what the server confirmed ({name} = off)"),
            format!("set {name} = on in postgresql.conf and restart it"),
        ),
        None => Finding::ok(
            "durability",
            format!("what is confirmed is on disk (synchronous_commit = {})", settings.synchronous_commit),
        ),
    }
}

fn tables(checkup: &Checkup) -> Finding {
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE on them, or make the user their owner";
    match checkup.steps_missing {
        _ if !checkup.forbidden.is_empty() => {
            Finding::fail("tables", format!("the user may not use {}", checkup.forbidden.join(", ")), grant)
        }
        0 => Finding::ok("tables", "are those of this version"),
        n if checkup.may_create => {
            Finding::warn("tables", format!("{n} steps are missing"), "the next start of a manager makes them")
        }
        n => Finding::fail(
            "tables",
            format!("{n} steps are missing, and the user may not make tables"),
            "GRANT CREATE, USAGE ON SCHEMA public TO it, or make it the database's owner",
        ),
    }
}

/// A manager that runs holds its connections already, so this is about one more of them.
fn connections(checkup: &Checkup) -> Finding {
    let (free, wanted) = (checkup.connections_free, CONNECTIONS_MAX as i64);
    let found = format!("{free} free; a manager holds up to {wanted}");
    if free < wanted {
        Finding::warn("connections", found, "raise max_connections there, or stop other programs")
    } else {
        Finding::ok("connections", found)
    }
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
    use mutirao_store::postgres::Settings;

    use super::super::Mark;
    use super::*;

    fn sound() -> Checkup {
        Checkup {
            address: "postgres://h/d".into(),
            version: "15.6".into(),
            steps_missing: 0,
            may_create: true,
            forbidden: vec![],
            standby: false,
            settings: Settings {
                fsync: true,
                full_page_writes: true,
                synchronous_commit: "on".into(),
                autovacuum: true,
                statement_timeout_ms: 0,
            },
            connections_free: 90,
            now: Timestamp(1_000_000),
        }
    }

    /// The worst mark, and what it is about.
    fn worst(checkup: &Checkup) -> (&'static str, Mark) {
        let findings = of(checkup, Timestamp(1_000_000));
        let worst = findings.iter().find(|finding| finding.mark != Mark::Ok);
        worst.map_or(("", Mark::Ok), |finding| (finding.what, finding.mark))
    }

    #[test]
    fn each_fault_of_a_server_is_told_by_itself() {
        assert_eq!(worst(&sound()), ("", Mark::Ok));
        let with = |change: fn(&mut Checkup)| {
            let mut checkup = sound();
            change(&mut checkup);
            worst(&checkup)
        };
        assert_eq!(with(|c| c.settings.fsync = false), ("durability", Mark::Fail));
        assert_eq!(with(|c| c.settings.full_page_writes = false), ("durability", Mark::Fail));
        assert_eq!(with(|c| c.steps_missing = 2), ("tables", Mark::Warn));
        assert_eq!(with(|c| (c.steps_missing, c.may_create) = (2, false)), ("tables", Mark::Fail));
        assert_eq!(with(|c| c.forbidden = vec!["jobs".into()]), ("tables", Mark::Fail));
        assert_eq!(with(|c| c.standby = true), ("database", Mark::Fail));
        assert_eq!(with(|c| c.connections_free = CONNECTIONS_MAX as i64 - 1), ("connections", Mark::Warn));
        assert_eq!(with(|c| c.settings.autovacuum = false), ("vacuum", Mark::Fail));
        assert_eq!(with(|c| c.settings.statement_timeout_ms = 5_000), ("timeout", Mark::Warn));
        assert_eq!(with(|c| c.now = Timestamp(990_000)), ("clock", Mark::Warn));
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
