//! `mutirao elastic …`

mod plan;

use std::cmp::Ordering;

use clap::{Args, Subcommand};
use mutirao_client::{Client, PageArgs};
use mutirao_core::auth::ElasticKeyView;
use mutirao_core::{Clock, QueueName, SystemClock, Timestamp};
use mutirao_elastic::view::{ElasticStatus, HistoryLine, Holder, ManagersStatus, NodeView, QueueStatus};

use super::out::Out;
use super::show::{ago, or_dash, table};
use super::{Globals, reach};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct ElasticArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show how many workers each elastic queue should have and has, and why
    Status,
    /// Show what the resource manager would do now, and why, without doing it
    Plan,
    /// Show the changes of how many were wanted, the latest first, with their reasons
    History {
        /// Only of this queue
        #[arg(long)]
        queue: Option<QueueName>,
        /// How many
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// Go on where a former page ended
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Make a one-time token with which one resource manager may join
    Invite,
    /// The keys of resource managers
    Key {
        #[command(subcommand)]
        verb: KeyVerb,
    },
}

#[derive(Debug, Subcommand)]
enum KeyVerb {
    /// Show the keys, the oldest first
    List {
        /// How many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Go on where a former page ended
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Make a key worthless
    Revoke {
        /// The key's id, as `mutirao elastic key list` shows it
        key: String,
    },
}

pub async fn run(globals: &Globals, args: ElasticArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    let now = SystemClock.now();
    match args.verb {
        Verb::Status => {
            let (found, nodes) = (client.elastic_status().await?, client.nodes().await?);
            out.answer(&found, |found| [vec![status(found, now)], missing(&nodes)].concat().join("\n"))
        }
        Verb::Plan => {
            let found = client.elastic_plan().await?;
            out.answer(&found, |found| plan::plan(found, holder(found.holder.as_ref(), now)))
        }
        Verb::History { queue, limit, cursor } => {
            let page = client.elastic_history(queue.as_ref(), PageArgs { limit: Some(limit), cursor }).await?;
            out.answer(&page, |page| history(&page.items, now))?;
            more(&out, page.next.as_deref());
            Ok(())
        }
        Verb::Invite => {
            let invitation = client.invite_elastic().await?;
            out.answer(&invitation, |invitation| invitation.token.clone())?;
            out.note(format!("good once, until {}. Where the resource manager runs:", invitation.expires_at));
            out.note(format!("  MUTIRAO_ENROL_TOKEN=… mutirao role elastic --url {}", client.url()));
            Ok(())
        }
        Verb::Key { verb } => key(&out, &client, verb, now).await,
    }
}

async fn key(out: &Out, client: &Client, verb: KeyVerb, now: Timestamp) -> Result<(), Failure> {
    match verb {
        KeyVerb::List { limit, cursor } => {
            let keys = client.elastic_keys(PageArgs { limit: Some(limit), cursor }).await?;
            out.answer(&keys, |found| self::keys(&found.items, now))?;
            more(out, keys.next.as_deref());
        }
        KeyVerb::Revoke { key } => {
            client.revoke_elastic_key(&key).await?;
            out.note(format!("the key {key} is worthless now"));
        }
    }
    Ok(())
}

fn more(out: &Out, cursor: Option<&str>) {
    if let Some(cursor) = cursor {
        out.note(format!("there are more: add --cursor {cursor}"));
    }
}

const ACT: &str = "`mutirao up` runs one, `mutirao elastic invite` lets one in";

fn holder(holder: Option<&Holder>, now: Timestamp) -> String {
    let Some(holder) = holder else { return format!("no resource manager acts; {ACT}") };
    let at = holder.address.as_deref().map(|at| format!(" at {at}")).unwrap_or_default();
    let Holder { member, generation, .. } = holder;
    match holder.silent_since {
        None => format!("the resource manager is {member}{at} (generation {generation})"),
        Some(since) => {
            format!(
                "no resource manager acts: {member}{at} was the last, and was last heard {} ago; {ACT}",
                ago(since, now)
            )
        }
    }
}

fn status(status: &ElasticStatus, now: Timestamp) -> String {
    let holder = holder(status.holder.as_ref(), now);
    let managers = status.managers.as_ref().map(managers);
    if status.queues.is_empty() {
        let nothing = "no queue is elastic; `elastic:` in its definition makes it so (docs/elastic.md)".to_owned();
        return [Some(holder), Some(nothing), managers].into_iter().flatten().collect::<Vec<_>>().join("\n");
    }
    let bound = |min: Option<u32>, max: Option<u32>| match (min, max) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        _ => "none any more".into(),
    };
    let row = |queue: &QueueStatus| {
        [
            queue.queue.to_string(),
            bound(queue.min, queue.max),
            or_dash(queue.wanted),
            queue.creating.to_string(),
            queue.running.to_string(),
            queue.draining.to_string(),
            or_dash(queue.decided_at.map(|at| ago(at, now))),
        ]
    };
    let heading = ["QUEUE", "MAY HAVE", "WANTED", "CREATING", "RUNNING", "DRAINING", "DECIDED"];
    let mut lines = vec![holder, table(heading, status.queues.iter().map(row))];
    for queue in &status.queues {
        lines.extend(queue.because.as_ref().map(|because| format!("{}: {because}", queue.queue)));
        lines.extend(queue.trouble.as_ref().map(|why| format!("{}: the provider is in trouble: {why}", queue.queue)));
    }
    lines.extend(managers);
    lines.join("\n")
}

/// Machines that could carry workers and do not, with why.
fn missing(nodes: &[NodeView]) -> Vec<String> {
    let away = nodes.iter().filter(|node| node.offered_at.is_some() && !node.answers);
    away.filter_map(|node| Some(format!("node {}: {}", node.name, node.note.as_ref()?))).collect()
}

fn managers(ManagersStatus { running, wanted, because, .. }: &ManagersStatus) -> String {
    let act = match wanted.cmp(running) {
        Ordering::Greater => "; `mutirao role manager` with the same database and broker starts one",
        Ordering::Less => "; those to spare may be stopped",
        Ordering::Equal => "",
    };
    format!("managers: {running} there, {wanted} wanted: {because}{act}")
}

fn history(lines: &[HistoryLine], now: Timestamp) -> String {
    if lines.is_empty() {
        return "nothing was changed yet".into();
    }
    let row = |line: &HistoryLine| {
        let change = format!("{} → {}", line.from, line.to);
        [ago(line.at, now), line.queue.to_string(), change, line.because.clone()]
    };
    table(["WHEN", "QUEUE", "WANTED", "BECAUSE"], lines.iter().map(row))
}

fn keys(keys: &[ElasticKeyView], now: Timestamp) -> String {
    if keys.is_empty() {
        return "no resource manager was ever let in; `mutirao elastic invite` lets one in".into();
    }
    let row = |key: &ElasticKeyView| {
        [
            key.key.clone(),
            key.manager.clone(),
            key.name.clone(),
            ago(key.created_at, now),
            or_dash(key.last_used_at.map(|at| ago(at, now))),
            if key.revoked_at.is_some() { "revoked" } else { "good" }.into(),
        ]
    };
    table(["KEY", "FIRST KEY", "NAME", "MADE", "LAST USED", "STATE"], keys.iter().map(row))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_status_says_who_acts_what_is_wanted_and_why() {
        let queue = QueueStatus {
            queue: "gpu".parse().unwrap(),
            min: Some(0),
            max: Some(5),
            wanted: Some(3),
            creating: 1,
            running: 2,
            draining: 0,
            decided_at: Some(Timestamp(0)),
            because: Some("3 ready tasks need 3".into()),
            trouble: Some("2 failures: no room".into()),
        };
        let holder = Holder { member: "m1".into(), address: None, generation: 4, silent_since: None };
        let acts = ElasticStatus {
            holder: Some(holder.clone()),
            members: 1,
            queues: vec![queue],
            managers: Some(ManagersStatus {
                running: 2,
                wanted: 3,
                cpu_milli: Default::default(),
                because: "cpu is 95 %".into(),
            }),
        };
        let said = status(&acts, Timestamp(5_000));
        for part in ["m1 (generation 4)", "0 to 5", "gpu: 3 ready tasks need 3", "in trouble: 2 failures: no room"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let dead = Holder { silent_since: Some(Timestamp(0)), ..holder };
        let said = status(&ElasticStatus { holder: Some(dead), ..ElasticStatus::default() }, Timestamp(95_000));
        assert!(said.starts_with("no resource manager acts: m1 was the last, and was last heard 95s ago;"), "{said}");
        let nothing = status(&ElasticStatus::default(), Timestamp(0));
        assert!(nothing.contains("no resource manager acts") && nothing.contains("no queue is elastic"), "{nothing}");
    }
}
