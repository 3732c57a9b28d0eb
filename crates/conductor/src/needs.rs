//! What a definition asks to be run: its parts, and what each asks of the host that runs it.
//!
//! A source that is pushed to has no part on any host: whichever manager a push reaches appends it to the logs itself.

use mutirao_streams::Graph;
use mutirao_streams::graph::{From, Planned, To, plan};
use mutirao_streams::wire::{Part, StreamId, What};

use crate::placing::Needs;

const MQTT: &str = "the installation's own MQTT";
const AMQP: &str = "the installation's own RabbitMQ";

/// All parts of a stream, in their order, replica by replica.
pub fn parts(stream: &StreamId, graph: &Graph) -> Vec<(Part, Needs)> {
    let of = |planned: Planned| {
        let needs = needs(graph, planned.what);
        let (what, replicas) = (planned.what, planned.replicas);
        (0..replicas).map(move |replica| (Part { stream: stream.clone(), what, replica }, needs.clone()))
    };
    plan(graph).parts.into_iter().filter(|planned| is_hosted(graph, planned.what)).flat_map(of).collect()
}

/// Whether a host runs it.
pub fn is_hosted(graph: &Graph, what: What) -> bool {
    !matches!(what, What::Source(n) if graph.sources[n as usize].from == From::Http)
}

fn needs(graph: &Graph, what: What) -> Needs {
    match what {
        What::Source(n) => {
            let source = &graph.sources[n as usize];
            let inside = match &source.from {
                From::Mqtt { at: None, .. } => Some(MQTT),
                From::Amqp { at: None, .. } => Some(AMQP),
                _ => None,
            };
            Needs { inside, pin: source.host.clone() }
        }
        What::Stage(_) => Needs::default(),
        What::Sink(n) => {
            let sink = &graph.sinks[n as usize];
            let inside = match &sink.to {
                To::Mqtt { at: None, .. } => Some(MQTT),
                To::Amqp { at: None, .. } => Some(AMQP),
                _ => None,
            };
            Needs { inside, pin: sink.host.clone() }
        }
    }
}

/// `source meters`, `stage means, replica 1`, `sink alarm`: as people read it.
pub fn shown(graph: &Graph, part: &Part) -> String {
    let replicas = match part.what {
        What::Stage(n) => graph.stages.get(n as usize).map_or(1, |stage| stage.replicas),
        What::Source(_) | What::Sink(_) => 1,
    };
    let (kind, name) = named(graph, part.what);
    let replica = if replicas > 1 { format!(", replica {}", part.replica) } else { String::new() };
    format!("{kind} {name}{replica}")
}

/// What it is, and how its definition calls it; a stage by its last operator.
pub fn named(graph: &Graph, what: What) -> (&'static str, String) {
    let planned = plan(graph).part(what).map(|planned| planned.name.clone()).unwrap_or_default();
    let kind = match what {
        What::Source(_) => "source",
        What::Stage(_) => "stage",
        What::Sink(_) => "sink",
    };
    (kind, planned)
}

#[cfg(test)]
mod tests {
    use mutirao_streams::definition;

    use super::*;

    #[test]
    fn each_replica_is_a_part_and_what_speaks_to_our_own_brokers_stays_inside() {
        let text = "\
kind: Stream
name: s
schema: { k: int }
sources:
  - { name: pushed, http: {} }
  - { name: own, mqtt: { topic: a/b } }
  - { name: lines, file: { path: in.jsonl }, host: box }
operators:
  - { name: all, union: [ pushed, own, lines ] }
  - { name: some, from: all, filter: k > 0, replicas: 2 }
sinks:
  - { name: out, from: some, amqp: { key: q } }
  - { name: said, from: some, stdout: {} }
";
        let graph = definition::check(text).unwrap().remove(0);
        let id = StreamId("s1".into());
        let all = parts(&id, &graph);
        let lines: Vec<String> = all
            .iter()
            .map(|(part, needs)| format!("{} {:?} {:?}", shown(&graph, part), needs.inside.is_some(), needs.pin))
            .collect();
        assert_eq!(
            lines,
            [
                "source own true None",
                "source lines false Some(\"box\")",
                "stage all false None",
                "stage some, replica 0 false None",
                "stage some, replica 1 false None",
                "sink out true None",
                "sink said false None",
            ]
        );
    }
}
