//! Who appends to which log. Each stage and each sink reads one log; to it append all that say what it reads.

use std::sync::Arc;

use super::{Does, Graph, Port, unfit_schema};
use crate::schema::Schema;
use crate::wire::What;

/// All parts of a graph, and what passes between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Sources, then stages, then sinks, each in the order of the graph.
    pub parts: Vec<Planned>,
}

/// One part, all its replicas together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub what: What,
    /// That of the source or sink; of a stage, that of its last operator.
    pub name: String,
    pub replicas: u32,
    /// The ports that come together in its log, each once. Of a source none.
    pub hears: Vec<Port>,
    /// The parts that append to its log.
    pub fed_by: Vec<What>,
    /// The ports at which it says something that somebody reads.
    pub says: Vec<Spoken>,
    /// To whose logs it appends.
    pub feeds: Vec<What>,
    /// Whether it remembers no more than how far it is.
    pub stateless: bool,
}

/// A port, and whose logs get what comes out there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoken {
    pub port: Port,
    pub to: Vec<What>,
}

impl Plan {
    pub fn part(&self, what: What) -> Option<&Planned> {
        self.parts.iter().find(|part| part.what == what)
    }
}

/// Who reads whom, by part.
pub fn plan(graph: &Graph) -> Plan {
    let sources = (0..graph.sources.len()).map(|n| What::Source(n as u32));
    let stages = (0..graph.stages.len()).map(|n| What::Stage(n as u32));
    let sinks = (0..graph.sinks.len()).map(|n| What::Sink(n as u32));
    let parts = sources.chain(stages).chain(sinks);
    Plan { parts: parts.map(|what| graph.planned(what)).collect() }
}

impl Port {
    /// Under this its events stand in logs.
    pub fn number(self) -> u32 {
        let (n, kind) = match self {
            Port::Source(n) => (n, 0),
            Port::Unfit(n) => (n, 1),
            Port::Operator(n) => (n, 2),
            Port::Late(n) => (n, 3),
        };
        (n as u32) << 2 | kind
    }

    pub fn of_number(number: u32) -> Port {
        let n = (number >> 2) as usize;
        match number & 3 {
            0 => Port::Source(n),
            1 => Port::Unfit(n),
            2 => Port::Operator(n),
            _ => Port::Late(n),
        }
    }
}

impl Graph {
    fn planned(&self, what: What) -> Planned {
        let hears = self.hears(what);
        let mut fed_by: Vec<What> = hears.iter().filter_map(|port| self.speaker(*port)).collect();
        fed_by.sort_unstable();
        fed_by.dedup();
        let spoken = |port: Port| Spoken { port, to: self.readers(port) };
        let says: Vec<Spoken> =
            self.says(what).into_iter().map(spoken).filter(|spoken| !spoken.to.is_empty()).collect();
        let mut feeds: Vec<What> = says.iter().flat_map(|spoken| spoken.to.iter().copied()).collect();
        feeds.sort_unstable();
        feeds.dedup();
        let (name, replicas, stateless) = match what {
            What::Source(n) => (self.sources[n as usize].name.clone(), 1, true),
            What::Sink(n) => (self.sinks[n as usize].name.clone(), 1, true),
            What::Stage(n) => {
                let stage = &self.stages[n as usize];
                let mut operators = stage.operators.iter().map(|n| &self.operators[*n]);
                let stateless = operators.clone().all(|operator| operator.does.is_stateless());
                let name = operators.next_back().map(|operator| operator.name.clone()).unwrap_or_default();
                (name, stage.replicas, stateless)
            }
        };
        Planned { what, name, replicas, hears, fed_by, says, feeds, stateless }
    }

    /// The ports that come together in the log of a part, each once.
    pub fn hears(&self, what: What) -> Vec<Port> {
        let mut ports = match what {
            What::Source(_) => Vec::new(),
            What::Stage(n) => self.stages[n as usize].inputs.clone(),
            What::Sink(n) => vec![self.sinks[n as usize].input],
        };
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// The ports at which a part may say something.
    pub fn says(&self, what: What) -> Vec<Port> {
        match what {
            What::Source(n) => vec![Port::Source(n as usize), Port::Unfit(n as usize)],
            What::Stage(n) => {
                let operators = &self.stages[n as usize].operators;
                let windows = operators.iter().filter(|n| matches!(self.operators[**n].does, Does::Window(_)));
                operators
                    .last()
                    .map(|n| Port::Operator(*n))
                    .into_iter()
                    .chain(windows.map(|n| Port::Late(*n)))
                    .collect()
            }
            What::Sink(_) => Vec::new(),
        }
    }

    /// Whose logs get what comes out at a port.
    pub fn readers(&self, port: Port) -> Vec<What> {
        let stages = self.stages.iter().enumerate().filter(|(_, stage)| stage.inputs.contains(&port));
        let sinks = self.sinks.iter().enumerate().filter(|(_, sink)| sink.input == port);
        let stages = stages.map(|(n, _)| What::Stage(n as u32));
        stages.chain(sinks.map(|(n, _)| What::Sink(n as u32))).collect()
    }

    /// Who says what comes out at a port. Nobody, where that passes on inside a stage.
    pub fn speaker(&self, port: Port) -> Option<What> {
        match port {
            Port::Source(n) | Port::Unfit(n) => Some(What::Source(n as u32)),
            Port::Operator(_) | Port::Late(_) => {
                let stages = (0..self.stages.len()).map(|n| What::Stage(n as u32));
                stages.into_iter().find(|what| self.says(*what).contains(&port))
            }
        }
    }

    /// The fields of what comes out at a port.
    pub fn flows(&self, port: Port) -> Arc<Schema> {
        match port {
            Port::Source(n) => self.sources[n].schema.clone(),
            Port::Unfit(_) => Arc::new(unfit_schema()),
            Port::Operator(n) => self.operators[n].output.clone(),
            Port::Late(n) => self.operators[n].input.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_who_reads_something_has_a_log_to_which_it_is_appended() {
        let text = "\
kind: Stream
name: plan
schema: { k: int, at: time }
sources:
  - name: one
    http: {}
  - name: other
    http: {}
operators:
  - name: both
    union: [ one, other ]
  - name: some
    from: both
    filter: k > 0
  - name: counts
    from: some
    window: { jump: 1s, by: at }
    aggregate: { n: count() }
  - name: many
    from: counts
    filter: n > 3
sinks:
  - name: said
    from: many
    stdout: {}
  - name: late
    from: counts.late
    stdout: {}
  - name: all
    from: one
    stdout: {}
  - name: unfit
    from: other.unfit
    stdout: {}
";
        let graph = crate::definition::check(text).unwrap().remove(0);
        let plan = plan(&graph);
        let shown = plan.parts.iter().map(|part| {
            let says = part.says.iter().map(|said| format!("{} to {:?}", graph.port(said.port), said.to));
            format!("{:?} {}: {}", part.what, part.name, says.collect::<Vec<_>>().join(", "))
        });
        let wanted = [
            "Source(0) one: one to [Stage(0), Sink(2)]",
            "Source(1) other: other to [Stage(0)], other.unfit to [Sink(3)]",
            "Stage(0) some: some to [Stage(1)]",
            "Stage(1) many: many to [Sink(0)], counts.late to [Sink(1)]",
            "Sink(0) said: ",
            "Sink(1) late: ",
            "Sink(2) all: ",
            "Sink(3) unfit: ",
        ];
        assert_eq!(shown.collect::<Vec<_>>(), wanted);
        let both = plan.part(What::Stage(0)).unwrap();
        assert_eq!(both.hears, [Port::Source(0), Port::Source(1)]);
        assert_eq!(both.fed_by, [What::Source(0), What::Source(1)]);
        assert!(both.stateless && !plan.part(What::Stage(1)).unwrap().stateless);
        assert_eq!(plan.part(What::Source(0)).unwrap().feeds, [What::Stage(0), What::Sink(2)]);
        for port in [Port::Source(0), Port::Unfit(7), Port::Operator(499), Port::Late(3)] {
            assert_eq!(Port::of_number(port.number()), port);
        }
    }
}
