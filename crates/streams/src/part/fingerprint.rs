//! What tells parts apart that could not read each other's snapshots.

use crate::graph::{Does, From, Graph};
use crate::wire::What;

/// Of what a part reads, does, and says. Limits are no part of it, nor how many replicas there are: both may change.
pub fn of(graph: &Graph, what: What) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    let mut text = |text: &str| {
        hash.update(&(text.len() as u32).to_le_bytes());
        hash.update(text.as_bytes());
    };
    text(&format!("{what:?}"));
    for port in graph.hears(what) {
        text(&format!("{} {}", port.number(), graph.flows(port)));
    }
    for port in graph.says(what).into_iter().filter(|port| !graph.readers(*port).is_empty()) {
        text(&format!("{} {}", port.number(), graph.flows(port)));
    }
    match what {
        What::Source(n) => {
            let source = &graph.sources[n as usize];
            text(source.time.as_ref().map_or("", |time| time.text()));
            if let From::Generator { rate, seed, fields } = &source.from {
                text(&format!("{rate:?} {seed}"));
                fields.iter().for_each(|field| text(field.text()));
            }
        }
        What::Stage(n) => {
            for operator in graph.stages[n as usize].operators.iter().map(|n| &graph.operators[*n]) {
                match &operator.does {
                    Does::Filter(test) => text(&format!("filter {}", test.text())),
                    Does::Map(made) => made.iter().for_each(|made| text(&format!("map {}", made.text()))),
                    Does::KeyBy(keys) => text(&format!("key by {keys:?}")),
                    Does::Union => text("union"),
                    Does::Window(grouping) => {
                        text(&format!("window {:?} {:?} {:?}", grouping.keys, grouping.window, grouping.aggregates));
                    }
                }
            }
        }
        What::Sink(_) => {}
    }
    hash.finalize()
}
