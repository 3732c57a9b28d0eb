//! `mutirao action …`

use clap::{Args, Subcommand};
use mutirao_flows::catalogue::{ActionView, OfferView};

use super::out::Out;
use super::show::{facts, table};
use super::{Globals, reach};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct ActionArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the actions that nodes offer
    List,
    /// Show one action: its versions, which nodes offer it, and how they do at it
    Show {
        /// As flows call it, or its URN
        action: String,
    },
}

pub async fn run(globals: &Globals, args: ActionArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    match args.verb {
        Verb::List => out.answer(&client.actions::<ActionView>().await?, |actions| list(actions)),
        Verb::Show { action } => out.answer(&client.action::<ActionView>(&action).await?, show),
    }
}

fn version(version: u32) -> String {
    if version == 0 { "-".into() } else { version.to_string() }
}

fn versions(action: &ActionView) -> String {
    action.versions.iter().map(|one| version(*one)).collect::<Vec<_>>().join(", ")
}

/// How many nodes could take a task now, and what keeps the others from it.
fn standing(action: &ActionView) -> String {
    let away = action.nodes.iter().filter(|offer| offer.presence != "registered").count();
    let down = action.nodes.iter().filter(|offer| offer.presence == "registered" && offer.health == "down").count();
    let mut parts = vec![format!("{} ready", action.nodes.len() - away - down)];
    parts.extend((down > 0).then(|| format!("{down} spared")));
    parts.extend((away > 0).then(|| format!("{away} away")));
    parts.join(", ")
}

fn list(actions: &[ActionView]) -> String {
    if actions.is_empty() {
        return "no node offers an action; docs/nodes.md says how nodes register".into();
    }
    let row = |action: &ActionView| [action.name.clone(), versions(action), standing(action)];
    table(["ACTION", "VERSIONS", "NODES"], actions.iter().map(row))
}

fn show(action: &ActionView) -> String {
    let about = facts(&[("action", action.name.clone()), ("urn", action.urn.clone()), ("versions", versions(action))]);
    let row = |offer: &OfferView| {
        let layer = format!("{:?}", offer.layer).to_lowercase();
        [offer.node.clone(), layer, version(offer.version), offer.presence.clone(), offer.health.clone()]
    };
    let nodes = table(["NODE", "LAYER", "VERSION", "STATE", "HEALTH"], action.nodes.iter().map(row));
    format!("{about}\n\n{nodes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_shown_with_its_versions_and_who_could_run_it() {
        let offer = |node: &str, version: u32, presence: &str, health: &str| serde_json::json!({"node": node, "layer": "edge", "version": version, "presence": presence, "health": health});
        let nodes = [
            offer("n1", 2, "registered", "ok"),
            offer("n2", 1, "registered", "down"),
            offer("n3", 0, "away", "ok"),
            offer("n4", 2, "registered", "recovering"),
        ];
        let action =
            serde_json::json!({"name": "upper", "urn": "urn:m:Action:upper", "versions": [2, 1, 0], "nodes": nodes});
        let action: ActionView = serde_json::from_value(action).unwrap();
        assert_eq!((versions(&action), standing(&action)), ("2, 1, -".into(), "2 ready, 1 spared, 1 away".into()));
        assert!(list(&[]).contains("docs/nodes.md"));
        let text = format!("{}\n{}", list(std::slice::from_ref(&action)), show(&action));
        for part in ["upper", "urn:m:Action:upper", "n2", "down", "away", "edge"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
