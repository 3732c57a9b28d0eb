//! Who reads whom, and what flows between them. An operator that is wrong has no schema that those after it could be held
//! against; so they are looked at no further, and one slip gives one fault.

mod ends;
mod inputs;
mod steps;
mod times;

use std::sync::Arc;
use std::time::Duration;

use super::spec::Spec;
use super::yaml::Word;
use super::{Fault, Place};
use crate::expression::Expression;
use crate::graph::{Graph, Operator, Port, fusion};
use crate::schema::Schema;

/// Where neither the operator nor the stream says how often.
const SNAPSHOT: Duration = Duration::from_secs(30);

/// What flows out of a port.
#[derive(Clone, Debug)]
pub(super) struct Flowing {
    pub schema: Arc<Schema>,
    pub keys: Keys,
}

/// What events are kept apart by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    None,
    By(Vec<usize>),
    /// An operator left out or changed a field of the key.
    Lost {
        operator: String,
        field: String,
    },
}

/// Nothing where something is wrong; what, was noted.
pub fn link(spec: &Spec, faults: &mut Vec<Fault>) -> Option<Graph> {
    let before = faults.len();
    let names = inputs::Names::of(spec, faults);
    let sources: Vec<Option<_>> = spec.sources.iter().map(|source| ends::source(source, faults)).collect();
    let reads = names.reads(spec, faults);
    let order = inputs::order(spec, &reads.operators, faults);
    inputs::unread(spec, &reads, faults);
    ends::files(&spec.sinks, faults);

    // By their number in the definition; what is wrong stays empty.
    let mut made: Vec<Option<Operator>> = vec![None; spec.operators.len()];
    let mut flowing: Vec<Option<Flowing>> = vec![None; spec.operators.len()];
    let flow = |port: Port, made: &[Option<Operator>], flowing: &[Option<Flowing>]| match port {
        Port::Source(n) => sources[n]
            .as_ref()
            .map(|source: &crate::graph::Source| Flowing { schema: source.schema.clone(), keys: Keys::None }),
        Port::Unfit(_) => Some(Flowing { schema: Arc::new(crate::graph::unfit_schema()), keys: Keys::None }),
        Port::Operator(n) => flowing[n].clone(),
        Port::Late(n) => {
            let window = made[n].as_ref()?;
            Some(Flowing { schema: window.input.clone(), keys: Keys::None })
        }
    };
    for n in &order {
        let ports = reads.operators[*n].iter().copied().collect::<Option<Vec<Port>>>();
        let Some(ports) = ports else { continue };
        let given: Option<Vec<Flowing>> = ports.iter().map(|port| flow(*port, &made, &flowing)).collect();
        let Some(given) = given else { continue };
        let Some((operator, out)) = steps::operator(&spec.operators[*n], spec.keeping, ports, &given, faults) else {
            continue;
        };
        made[*n] = Some(operator);
        flowing[*n] = Some(out);
    }
    let sinks: Vec<Option<_>> = spec
        .sinks
        .iter()
        .zip(&reads.sinks)
        .map(|(sink, port)| {
            let port = (*port)?;
            ends::sink(sink, port, flow(port, &made, &flowing)?.schema, faults)
        })
        .collect();
    if faults.len() > before || order.len() < spec.operators.len() {
        return None;
    }
    let mut sinks = sinks.into_iter().collect::<Option<Vec<_>>>()?;
    let sources = sources.into_iter().collect::<Option<Vec<_>>>()?;

    // In the order in which events pass, with the ports numbered anew.
    let mut new = vec![0; spec.operators.len()];
    order.iter().enumerate().for_each(|(place, n)| new[*n] = place);
    let anew = |port: &mut Port| match port {
        Port::Operator(n) | Port::Late(n) => *n = new[*n],
        Port::Source(_) | Port::Unfit(_) => {}
    };
    let mut operators = order.iter().map(|n| made[*n].take()).collect::<Option<Vec<Operator>>>()?;
    operators.iter_mut().flat_map(|operator| &mut operator.inputs).for_each(anew);
    sinks.iter_mut().for_each(|sink| anew(&mut sink.input));
    let stages = fusion::stages(&operators, &sinks);
    let mut graph = Graph { name: spec.name.clone(), sources, operators, sinks, stages };
    times::infer(&mut graph, spec, &order, faults);
    (faults.len() == before).then_some(graph)
}

/// An expression of the definition, each of its flaws at its place.
pub(super) fn compiled(word: &Word, schema: &Schema, faults: &mut Vec<Fault>) -> Option<Expression> {
    let flaws = match Expression::compile(&word.text, schema) {
        Ok(expression) => return Some(expression),
        Err(flaws) => flaws,
    };
    let fault =
        |flaw: crate::expression::Flaw| Fault { place: word.place_of(flaw.at), what: flaw.what, hint: flaw.hint };
    faults.extend(flaws.into_iter().map(fault));
    None
}

/// The number of a field.
pub(super) fn field(word: &Word, schema: &Schema, faults: &mut Vec<Fault>) -> Option<usize> {
    named(&word.text, word.place, schema, faults)
}

pub(super) fn named(name: &str, place: Place, schema: &Schema, faults: &mut Vec<Fault>) -> Option<usize> {
    let found = schema.index(name);
    if found.is_none() {
        let fault = Fault::new(place, format!("there is no field \"{}\"", super::fields::short(name)));
        faults.push(fault.instead(name, schema.names()));
    }
    found
}
