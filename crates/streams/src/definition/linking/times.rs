//! What a source's time is. A window by time waits for its sources' time, so each of those must have one. Where all such windows
//! behind a source go by one of its own fields, passed on as it is, that field is its time; else the definition has to say.
//!
//! Behind a window by time, time is that of the window.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::definition::operators::DoesSpec;
use crate::definition::spec::Spec;
use crate::definition::windows::Extent;
use crate::definition::{Fault, Place};
use crate::expression::Expression;
use crate::graph::{Does, Graph, Port};
use crate::schema::Kind;
use crate::window::Window;

/// The most and the least by which a source's time moves at a time: a tenth of how far the windows move.
pub const PACE_MAX: Duration = Duration::from_secs(1);
const PACE_MIN: Duration = Duration::from_millis(1);

/// Where a field comes from, as seen from one source.
#[derive(Clone, Debug, PartialEq)]
enum Trace {
    /// It is a field of the source.
    Passed(usize),
    /// It is made of fields of the source, by this expression.
    Made(String),
    Unknown,
}

/// A window that waits for a source's time, and the field that it goes by.
struct Wait {
    operator: usize,
    trace: Trace,
    every_us: i64,
}

pub fn infer(graph: &mut Graph, spec: &Spec, order: &[usize], faults: &mut Vec<Fault>) {
    timeless(graph, spec, order, faults);
    for n in 0..graph.sources.len() {
        let waits = waits(graph, n);
        let every = waits.iter().map(|wait| wait.every_us).min().unwrap_or(i64::MAX);
        graph.sources[n].pace = Duration::from_micros(every.unsigned_abs() / 10).clamp(PACE_MIN, PACE_MAX);
        if graph.sources[n].time.is_some() {
            continue;
        }
        let source = &graph.sources[n];
        let Some(wait) = waits.first() else {
            if let Some((name, place)) = spec.sources[n].clock.about {
                let fault = Fault::new(place, format!("{name} is about an event's time, and nothing waits for that"));
                faults.push(fault.hint("write time: and a field of kind time, or leave it out"));
            }
            continue;
        };
        if waits.iter().all(|other| other.trace == wait.trace)
            && let Trace::Passed(field) = wait.trace
            && let Ok(time) = Expression::compile(&source.schema.fields[field].name, &source.schema)
        {
            graph.sources[n].time = Some(time);
            continue;
        }
        let window = &graph.operators[wait.operator].name;
        let what =
            format!("nothing says which time the events of \"{}\" have, and \"{window}\" waits for it", source.name);
        let mut times: BTreeSet<String> = waits
            .iter()
            .filter_map(|wait| match &wait.trace {
                Trace::Passed(field) => Some(source.schema.fields[*field].name.clone()),
                Trace::Made(text) => Some(text.clone()),
                Trace::Unknown => None,
            })
            .collect();
        if times.is_empty() {
            let fields = source.schema.fields.iter().filter(|field| field.kind == Kind::Time);
            times.extend(fields.map(|field| field.name.clone()));
        }
        let hint = match times.len() {
            0 => "give the source time: and an expression of kind time, like time(ms * 1000)".to_owned(),
            _ => {
                let times: Vec<String> = times.iter().map(|time| format!("time: {time}")).collect();
                format!("give the source {}", times.join(" or "))
            }
        };
        faults.push(Fault::new(spec.sources[n].name.place, what).hint(hint));
    }
}

/// The windows that wait for the time of a source.
fn waits(graph: &Graph, source: usize) -> Vec<Wait> {
    let mut waits = Vec::new();
    let fields = graph.sources[source].schema.len();
    // What goes out of each operator, where that is of this source.
    let mut made: Vec<Option<Vec<Trace>>> = Vec::new();
    for (n, operator) in graph.operators.iter().enumerate() {
        let inputs = operator.inputs.iter().filter_map(|port| match port {
            Port::Source(n) if *n == source => Some((0..fields).map(Trace::Passed).collect::<Vec<_>>()),
            Port::Operator(n) => made[*n].clone(),
            _ => None,
        });
        let input = inputs.reduce(|one, other| {
            let same = |(one, other)| if one == other { one } else { Trace::Unknown };
            one.into_iter().zip(other).map(same).collect()
        });
        let output = match (&input, &operator.does) {
            (None, _) => None,
            (Some(input), Does::Filter(_) | Does::KeyBy(_) | Does::Union) => Some(input.clone()),
            (Some(input), Does::Map(fields)) => {
                let schema = &graph.sources[source].schema;
                let own = |field: &usize| match &input[*field] {
                    Trace::Passed(of) => schema.fields[*of].name == operator.input.fields[*field].name,
                    _ => false,
                };
                let trace = |made: &Expression| match made.field() {
                    Some(field) => input[field].clone(),
                    None if made.fields().iter().all(own) => Trace::Made(made.text().to_owned()),
                    None => Trace::Unknown,
                };
                Some(fields.iter().map(trace).collect())
            }
            (Some(input), Does::Window(grouping)) => match grouping.window {
                Window::Time { field, every_us, .. } => {
                    waits.push(Wait { operator: n, trace: input[field].clone(), every_us });
                    None
                }
                Window::Count { .. } => {
                    let keys = grouping.keys.iter().map(|key| input[*key].clone());
                    Some(keys.chain(grouping.aggregates.iter().map(|_| Trace::Unknown)).collect())
                }
            },
        };
        made.push(output);
    }
    waits
}

/// Nobody knows how late what is late will be: a window by time behind it would wait to the end of the stream.
fn timeless(graph: &Graph, spec: &Spec, order: &[usize], faults: &mut Vec<Fault>) {
    let mut without: Vec<Option<String>> = Vec::new();
    for (n, operator) in graph.operators.iter().enumerate() {
        let mut inputs = operator.inputs.iter().map(|port| match port {
            Port::Late(_) | Port::Unfit(_) => Some(graph.port(*port)),
            Port::Operator(n) => without[*n].clone(),
            Port::Source(_) => None,
        });
        let input = inputs.find_map(|input| input);
        let by_time =
            matches!(&operator.does, Does::Window(grouping) if matches!(grouping.window, Window::Time { .. }));
        if by_time && let Some(port) = &input {
            let what = format!("a window by time cannot be behind \"{port}\", which has no time that goes on");
            let fault = Fault::new(place_of(spec, order[n]), what);
            faults.push(fault.hint("have a window by count: jump: 100 events"));
        }
        without.push(input.filter(|_| !by_time));
    }
}

fn place_of(spec: &Spec, operator: usize) -> Place {
    match &spec.operators[operator].does {
        DoesSpec::Window(window) => match &window.extent {
            Extent::Time { by, .. } => by.place,
            Extent::Count { .. } => window.place,
        },
        _ => spec.operators[operator].name.place,
    }
}
