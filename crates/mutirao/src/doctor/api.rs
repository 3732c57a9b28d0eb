//! What the API says of itself: there, ready, of our version, on time, letting us in, with workers.

use std::collections::BTreeSet;

use mutirao_client::{Client, ClientError, Credentials, JobFilter, PageArgs};
use mutirao_core::auth::SIGNATURE_WINDOW_S;
use mutirao_core::job::{JobView, LetterCount};
use mutirao_core::shard::ShardView;
use mutirao_core::{Clock, Timestamp};

use super::{Finding, tls};
use crate::cli::{Found, find};
use crate::config::Settings;
use crate::failure::Failure;
use crate::membership::broker_user_of;

pub async fn look(settings: &Settings, clock: &dyn Clock) -> Vec<Finding> {
    let found = match find(settings) {
        Ok(found) => found,
        Err(failure) => return vec![no_way_in(failure)],
    };
    let mut findings = vec![Finding::ok("address", found.url.clone())];
    let own_user = settings.broker.set().and_then(|url| mutirao_broker::rabbit::user_in(&url.0).ok());
    match examine(found, own_user.as_deref(), clock, &mut findings).await {
        Ok(()) => {}
        Err(error) => findings.push(unwilling(error)),
    }
    findings
}

fn no_way_in(failure: Failure) -> Finding {
    let line = match failure {
        Failure::Said { line, .. } => line,
        Failure::Silent { .. } | Failure::BrokenPipe => "cannot be found".into(),
    };
    // The line carries its own remedy, after the last semicolon.
    match line.rsplit_once("; ") {
        Some((found, remedy)) => Finding::fail("address", found, remedy),
        None => Finding::fail("address", line, "start it with `mutirao up`"),
    }
}

fn unwilling(error: ClientError) -> Finding {
    let line = error.to_string();
    let what = if matches!(error.status(), Some(401 | 403)) { "token" } else { "API" };
    match line.rsplit_once("; ") {
        Some((found, remedy)) => Finding::fail(what, found, remedy),
        None => Finding::fail(what, line, "look at the server's log"),
    }
}

async fn examine(
    found: Found,
    own_user: Option<&str>,
    clock: &dyn Clock,
    findings: &mut Vec<Finding>,
) -> Result<(), ClientError> {
    let open = Client::trusting(&found.url, Credentials::None, &found.trust)?;
    let health = open.health().await?;
    findings.push(Finding::ok("API", "answers"));
    findings.push(tls::connection(&found.url, found.trust.certificate_until(), clock.now()));
    findings.push(version(health.version.as_deref(), env!("CARGO_PKG_VERSION")));
    findings.extend(health.now.map(|there| skew(there, clock.now())));
    match open.ready().await {
        Ok(()) => findings.push(Finding::ok("ready", "store, broker and capabilities answer")),
        Err(error) => findings.push(Finding::fail("ready", error.to_string(), "look at the server's log")),
    }
    let client = Client::trusting(&found.url, found.credentials, &found.trust)?;
    client.jobs(JobFilter::default(), PageArgs { limit: Some(1), cursor: None }).await?;
    findings.push(Finding::ok("token", "is accepted"));
    match client.shards().await {
        Ok(views) => {
            findings.push(shards(&views));
            findings.extend(users(&views, own_user));
        }
        // For operators only, and not there in older servers.
        Err(error) if matches!(error.status(), Some(403 | 404)) => {}
        Err(error) => return Err(error),
    }
    match client.letter_counts().await {
        Ok(counts) => findings.extend(counts.iter().map(letters)),
        // As with shards; and a broker that does not answer has been told.
        Err(error) if matches!(error.status(), Some(403 | 404 | 503)) => {}
        Err(error) => return Err(error),
    }
    match client.unreadable_jobs().await {
        Ok(jobs) => findings.extend(unreadable(&jobs)),
        // As with shards; an older server takes it for the name of a job.
        Err(error) if matches!(error.status(), Some(400 | 403 | 404 | 422)) => {}
        Err(error) => return Err(error),
    }
    findings.push(match client.workers().await?.iter().filter(|worker| !worker.draining).count() {
        0 => Finding::warn(
            "workers",
            "there are none, so nothing runs",
            "start some: `mutirao up --workers 2` or `mutirao worker invite`",
        ),
        n => Finding::ok("workers", format!("{n}")),
    });
    Ok(())
}

/// Jobs that wait because a row of theirs cannot be read. None when all can.
fn unreadable(jobs: &[JobView]) -> Option<Finding> {
    let first = jobs.first()?;
    let (count, open) = (jobs.len(), jobs.iter().map(|job| job.tasks.saturating_sub(job.counts.ended())).sum::<u64>());
    let are = if count == 1 { "job has" } else { "jobs have" };
    Some(Finding::warn(
        "jobs",
        format!("{count} {are} rows that this version cannot read, so {open} tasks wait"),
        format!(
            "`mutirao job show {}` says why of the first; upgrade the managers, restore a backup, or cancel with `mutirao job \
             cancel`",
            first.id
        ),
    ))
}

/// Letters on one way.
fn letters(count: &LetterCount) -> Finding {
    let LetterCount { way, letters, .. } = count;
    let are = if *letters == 1 { "dead letter is" } else { "dead letters are" };
    Finding::warn(
        "letters",
        format!("{letters} {are} in {way}"),
        "`mutirao task letters` shows them with the reason of each, `mutirao task letters rm ID` removes one, `--all` all",
    )
}

fn shards(views: &[ShardView]) -> Finding {
    let ownerless = views.iter().filter(|view| view.owner.is_none());
    let ownerless: Vec<String> = ownerless.map(|view| format!("{} {}", view.group, view.shard)).collect();
    if ownerless.is_empty() {
        let owners: BTreeSet<_> = views.iter().filter_map(|view| view.owner.as_ref()).collect();
        let managers = if owners.len() == 1 { "one manager".into() } else { format!("{} managers", owners.len()) };
        return Finding::ok("shards", format!("all {} are looked after, by {managers}", views.len()));
    }
    Finding::warn(
        "shards",
        format!("nobody looks after {}, so what is in them waits", ownerless.join(", ")),
        "if this lasts longer than half a minute, look at the managers' logs",
    )
}

/// Managers believe only what comes as their own user of RabbitMQ, or as a worker's. None where there is no RabbitMQ.
fn users(views: &[ShardView], own_user: Option<&str>) -> Option<Finding> {
    let owners = views.iter().filter_map(|view| view.owner.as_ref());
    let users: BTreeSet<&str> = owners.filter_map(broker_user_of).collect();
    let shown = users.iter().copied().collect::<Vec<_>>().join(", ");
    let remedy = "give every manager the same user in its broker's address, and restart those that had another";
    match own_user {
        _ if users.is_empty() => None,
        _ if users.len() > 1 => {
            let found = format!("managers are different users of RabbitMQ ({shown}) and do not believe each other");
            Some(Finding::fail("broker user", found, remedy))
        }
        Some(own) if !users.contains(own) => {
            let found = format!("the managers are the user {shown} of RabbitMQ, and the settings here say {own}");
            Some(Finding::warn(
                "broker user",
                found,
                format!("a manager with these settings would not start; {remedy}"),
            ))
        }
        _ => Some(Finding::ok("broker user", format!("every manager is the user {shown} of RabbitMQ"))),
    }
}

fn version(there: Option<&str>, here: &str) -> Finding {
    match there {
        Some(there) if there == here => Finding::ok("version", here),
        Some(there) => Finding::warn(
            "version",
            format!("the server is {there}, this program {here}"),
            "use the same on both sides",
        ),
        None => Finding::warn("version", "the server does not tell its version", "is it a Mutirão?"),
    }
}

fn skew(there: Timestamp, here: Timestamp) -> Finding {
    // The server's clock comes to the second, so one second is nothing.
    let skew_s = (there.0 - here.0).abs() / 1000;
    let found = format!("{skew_s} s apart from the server's");
    let remedy = "set the clocks of both machines (NTP): signed requests are refused past a minute";
    match skew_s {
        s if s >= SIGNATURE_WINDOW_S => Finding::fail("clock", found, remedy),
        s if s >= SIGNATURE_WINDOW_S / 4 => Finding::warn("clock", found, remedy),
        _ => Finding::ok("clock", "agrees with the server's"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mark;
    use super::*;

    #[test]
    fn clocks_apart_are_told_before_signatures_fail() {
        let at = |s: i64| skew(Timestamp(s * 1000), Timestamp(0)).mark;
        assert_eq!([at(1), at(-20), at(61), at(-3600)], [Mark::Ok, Mark::Warn, Mark::Fail, Mark::Fail]);
    }

    #[test]
    fn managers_that_do_not_believe_each_other_are_told() {
        let view = |owner: &str| ShardView {
            group: "jobs".into(),
            shard: mutirao_core::shard::ShardId(0),
            owner: Some(mutirao_core::shard::MemberId(owner.into())),
            address: None,
            generation: 1,
            silent_ms: None,
            expires_in_ms: None,
        };
        let mark = |owners: &[&str], own| {
            let views: Vec<ShardView> = owners.iter().map(|owner| view(owner)).collect();
            users(&views, own).map(|finding| finding.mark)
        };
        assert_eq!(mark(&["alone-h-1"], None), None);
        assert_eq!(mark(&["ana@h-1", "ana@i-2"], Some("ana")), Some(Mark::Ok));
        assert_eq!(mark(&["ana@h-1"], None), Some(Mark::Ok));
        assert_eq!(mark(&["ana@h-1"], Some("rui")), Some(Mark::Warn));
        assert_eq!(mark(&["ana@h-1", "rui@i-2"], Some("ana")), Some(Mark::Fail));
    }

    #[test]
    fn what_is_found_and_how_to_mend_it_are_told_apart() {
        let away = ClientError::Unreachable { url: "http://h:1".into(), why: "connection refused".into() };
        let finding = unwilling(away);
        assert_eq!(finding.found, "nothing answers at http://h:1 (connection refused)");
        assert!(finding.remedy.is_some_and(|remedy| remedy.starts_with("start it with")));
    }
}
