//! `mutirao node …`

use std::time::Duration;

use clap::{Args, Subcommand};
use mutirao_core::node::{Allowance, RubbishView, RunsView};
use mutirao_core::quantity::Span;
use mutirao_core::{Clock, SystemClock, Timestamp};
use mutirao_elastic::packing::amounts::{CPU_MILLI, MEMORY_BYTES, said};
use mutirao_elastic::protocol::Wish;
use mutirao_elastic::view::{NodeView, NodeWorker};
use serde_json::json;

use super::device::MayArgs;
use super::out::Out;
use super::show::{ago, facts, or_dash, size, table};
use super::{Globals, reach};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct NodeArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show all nodes: those that workers are put on, and those that run actions
    List,
    /// Show one node: the workers on it, or the actions that it runs
    Show { node: String },
    /// Let a node of this program in by a key of its own, and print the one-time token with which it gives it
    Invite {
        node: String,
        #[command(flatten)]
        may: MayArgs,
    },
    /// Take out a node that runs actions; it may register again
    Forget { node: String },
    /// Show what nodes said and nobody could work with, the newest first
    Rubbish {
        /// How many
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Put no new workers on a node; those it has stay
    Cordon { node: String },
    /// Let a node take workers again, after cordon or drain
    Uncordon { node: String },
    /// Put no new workers on a node, drain those it has, and have others take their place elsewhere
    Drain { node: String },
}

pub async fn run(globals: &Globals, args: NodeArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    let now = SystemClock.now();
    match args.verb {
        Verb::List => out.answer(&client.nodes().await?, |nodes| list(nodes, now)),
        Verb::Show { node } => out.answer(&client.node(&node).await?, |node| show(node, now)),
        Verb::Invite { node, may } => {
            let may = may.into();
            let invited = client.invite_node(&node, &may).await?;
            out.answer(&invited, |invited| invited.token.clone())?;
            out.note("this is the only time the token is shown; it is good for a day, once:");
            out.note(format!(
                "  MUTIRAO_ENROL_TOKEN=… MUTIRAO_URL={} mutirao role node --id {node}{} --transport mqtt --server mqtt://HOST:1883 \
                 --actions DIR",
                client.url(),
                as_it_may(&may)
            ));
            Ok(())
        }
        Verb::Forget { node } => {
            client.forget_node(&node).await?;
            out.answer(&json!({ "forgotten": node }), |_| format!("node {node} is forgotten until it registers again"))
        }
        Verb::Rubbish { limit } => out.answer(&client.rubbish(limit).await?, |rubbish| tossed(rubbish, now)),
        Verb::Cordon { node } => out.answer(&client.cordon_node(&node).await?, |node| show(node, now)),
        Verb::Uncordon { node } => out.answer(&client.uncordon_node(&node).await?, |node| show(node, now)),
        Verb::Drain { node } => out.answer(&client.drain_node(&node).await?, |node| show(node, now)),
    }
}

/// The options of a node that says of itself what it may.
fn as_it_may(may: &Allowance) -> String {
    let layer = may.layer.iter().map(|layer| format!(" --layer {layer}"));
    let labels = may.labels.iter().map(|(key, value)| format!(" --label {key}={value}"));
    let slots = may.slots.iter().map(|slots| format!(" --slots {slots}"));
    layer.chain(labels).chain(slots).collect()
}

fn amount(node: &NodeView, resource: &str) -> String {
    let amount = node.capacity.get(resource);
    if resource == MEMORY_BYTES { size(amount) } else { said(resource, amount).0 }
}

/// What people want of it, and whether it is there.
fn state(node: &NodeView) -> String {
    if let (Some(runs), None) = (&node.runs, node.offered_at) {
        return runs.presence.clone();
    }
    let wish = match node.wish {
        Wish::Open => "open",
        Wish::Cordoned => "cordoned",
        // Its workers finish what they run first.
        Wish::Drained if !node.workers.is_empty() => "draining",
        Wish::Drained => "drained",
    };
    match (node.offered_at, &node.note, node.answers) {
        (None, ..) => format!("gone ({wish})"),
        (Some(_), Some(note), _) if node.wish == Wish::Open => note.clone(),
        (Some(_), Some(note), _) => format!("{note} ({wish})"),
        (Some(_), None, false) => format!("silent ({wish})"),
        (Some(_), None, true) => wish.into(),
    }
}

fn layer(node: &NodeView) -> String {
    format!("{:?}", node.layer).to_lowercase()
}

fn list(nodes: &[NodeView], now: Timestamp) -> String {
    if nodes.is_empty() {
        return "no nodes; a resource manager offers them (docs/elastic.md), or they register (docs/nodes.md)".into();
    }
    let row = |node: &NodeView| {
        [
            node.name.clone(),
            node.provider.clone(),
            layer(node),
            amount(node, CPU_MILLI),
            amount(node, MEMORY_BYTES),
            node.workers.len().to_string(),
            or_dash(node.runs.as_ref().map(doing)),
            state(node),
            or_dash(seen_at(node).map(|at| ago(at, now))),
        ]
    };
    let heading = ["NODE", "PROVIDER", "LAYER", "CPUS", "MEMORY", "WORKERS", "ACTIONS", "STATE", "SEEN"];
    table(heading, nodes.iter().map(row))
}

/// How many actions it runs, over what, and what is to be known of it.
fn doing(runs: &RunsView) -> String {
    let ill = runs.actions.iter().filter(|one| one.health != "ok").count();
    let mut text = format!("{} by {}", runs.actions.len(), runs.over.join(", "));
    for (count, what) in passed_over(runs) {
        text.push_str(&format!(", {count} {what}"));
    }
    if ill > 0 {
        text.push_str(&format!(", {ill} failing"));
    }
    if runs.anonymous {
        text.push_str(", anonymous");
    }
    text
}

/// When it was last offered, or heard of.
fn seen_at(node: &NodeView) -> Option<Timestamp> {
    node.offered_at.max(node.runs.as_ref().map(|runs| runs.last_at))
}

fn tossed(rubbish: &[RubbishView], now: Timestamp) -> String {
    if rubbish.is_empty() {
        return "nothing that nodes said was refused".into();
    }
    let short = |text: &str| text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let row = |one: &RubbishView| {
        [ago(one.at, now), one.place.clone(), one.who.clone(), one.reason.clone(), short(&one.body)]
    };
    table(["WHEN", "WHERE", "WHO", "WHY", "WHAT"], rubbish.iter().map(row))
}

/// A node that runs actions and carries no workers.
fn show_runner(node: &NodeView, runs: &RunsView, now: Timestamp) -> String {
    let labels: Vec<String> = node.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let shown = match &runs.proof {
        Some(proof) => proof.clone(),
        None => "nothing: it is anonymous, and anybody could say what it says".into(),
    };
    let waiting = runs.waiting.as_ref().map(|waiting| {
        let there = if waiting.connected { "connected" } else { "not connected" };
        let bound = Span(Duration::from_millis(waiting.age_max_ms));
        format!(
            "{} messages, {}, for at most {bound}; at most {} and {} ({there})",
            waiting.messages,
            size(waiting.bytes),
            waiting.messages_max,
            size(waiting.bytes_max)
        )
    });
    let mut text = facts(&[
        ("node", node.name.clone()),
        ("kind", runs.kind.clone()),
        ("layer", layer(node)),
        ("labels", or_dash((!labels.is_empty()).then(|| labels.join(", ")))),
        ("state", state(node)),
        ("shows", shown),
        ("over", runs.over.join(", ")),
        ("endpoint", or_dash((!runs.endpoint.is_empty()).then(|| runs.endpoint.clone()))),
        ("offers", offers(runs)),
        ("tasks", format!("{} of {}", runs.in_flight, runs.slots)),
        ("waiting", or_dash(waiting)),
        ("refused", format!("{} since the manager began", runs.refused)),
        ("first seen", ago(runs.first_at, now)),
        ("last heard", ago(runs.last_at, now)),
    ]);
    text.push_str("\n\n");
    let rows = runs.actions.iter().map(|one| [one.action.clone(), one.health.clone()]);
    text.push_str(&table(["ACTION", "HEALTH"], rows));
    text
}

/// Actions that it says it has and will not be asked for.
fn passed_over(runs: &RunsView) -> impl Iterator<Item = (u32, &'static str)> {
    [(runs.not_understood, "not understood"), (runs.not_allowed, "not allowed")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
}

fn offers(runs: &RunsView) -> String {
    let said = runs.actions.len() as u64 + passed_over(runs).map(|(count, _)| u64::from(count)).sum::<u64>();
    let each: Vec<String> = passed_over(runs).map(|(count, what)| format!(", {count} {what}")).collect();
    let where_told = if each.is_empty() { "" } else { ": mutirao node rubbish says why" };
    let noun = if said == 1 { "action" } else { "actions" };
    format!("{said} {noun}{}{where_told}", each.concat())
}

fn show(node: &NodeView, now: Timestamp) -> String {
    if let (Some(runs), None) = (&node.runs, node.offered_at) {
        return show_runner(node, runs, now);
    }
    let labels: Vec<String> = node.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut text = facts(&[
        ("node", node.name.clone()),
        ("provider", node.provider.clone()),
        ("layer", layer(node)),
        ("cpus", amount(node, CPU_MILLI)),
        ("memory", amount(node, MEMORY_BYTES)),
        ("labels", or_dash((!labels.is_empty()).then(|| labels.join(", ")))),
        ("state", state(node)),
        ("offered", or_dash(node.offered_at.map(|at| ago(at, now)))),
    ]);
    if !node.workers.is_empty() {
        let life = |worker: &NodeWorker| format!("{:?}", worker.life).to_lowercase();
        let row = |worker: &NodeWorker| {
            [worker.worker.to_string(), worker.queue.to_string(), life(worker), ago(worker.since, now)]
        };
        text.push_str("\n\n");
        text.push_str(&table(["WORKER", "QUEUE", "LIFE", "SINCE"], node.workers.iter().map(row)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_shown_with_what_is_wanted_of_it_and_who_is_on_it() {
        let node = serde_json::json!({
            "name": "n1", "provider": "local", "capacity": { "cpu_milli": 2_000, "memory_bytes": 1_073_741_824 },
            "labels": { "disk": "ssd" }, "layer": "cloud", "answers": true, "wish": "cordoned", "offered_at": 0,
            "workers": [{ "worker": "w1", "queue": "gpu", "life": "reported", "since": 0 }]
        });
        let node: NodeView = serde_json::from_value(node).unwrap();
        let text =
            format!("{}\n{}", show(&node, Timestamp(5_000)), list(std::slice::from_ref(&node), Timestamp(5_000)));
        for part in ["n1", "cordoned", "disk=ssd", "1GiB", "w1", "reported"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let leaving = NodeView { wish: Wish::Drained, ..node.clone() };
        assert_eq!(state(&leaving), "draining", "a worker is on it");
        assert_eq!(state(&NodeView { workers: vec![], ..leaving }), "drained");
        let gone = NodeView { offered_at: None, ..node.clone() };
        assert_eq!(state(&gone), "gone (cordoned)");
        let taken = NodeView { wish: Wish::Open, note: Some("taken back 21:00".into()), ..node };
        assert_eq!(state(&taken), "taken back 21:00", "also while it answers");
    }
}
