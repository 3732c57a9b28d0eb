//! Names and who reads them: unknown ones, circles, and what nobody reads.

use std::collections::{BTreeMap, BTreeSet};

use crate::definition::Fault;
use crate::definition::fields::short;
use crate::definition::operators::DoesSpec;
use crate::definition::spec::Spec;
use crate::definition::yaml::Word;
use crate::graph::Port;

#[derive(Clone, Copy)]
enum Named {
    Source(usize),
    Operator(usize),
    Sink,
}

pub struct Names<'a> {
    all: BTreeMap<&'a str, Named>,
}

/// What each reads; nothing where that is unknown.
pub struct Reads {
    pub operators: Vec<Vec<Option<Port>>>,
    pub sinks: Vec<Option<Port>>,
}

impl<'a> Names<'a> {
    /// A name is one thing's only.
    pub fn of(spec: &'a Spec, faults: &mut Vec<Fault>) -> Self {
        let sources = spec.sources.iter().enumerate().map(|(n, source)| (&source.name, Named::Source(n)));
        let operators = spec.operators.iter().enumerate().map(|(n, one)| (&one.name, Named::Operator(n)));
        let sinks = spec.sinks.iter().map(|sink| (&sink.name, Named::Sink));
        let mut all = BTreeMap::new();
        for (name, named) in sources.chain(operators).chain(sinks) {
            if all.contains_key(name.text.as_str()) {
                let fault =
                    Fault::new(name.place, format!("\"{}\" is the name of something else too", short(&name.text)));
                faults.push(fault.hint("sources, operators and sinks each have a name of their own"));
            } else {
                all.insert(name.text.as_str(), named);
            }
        }
        Self { all }
    }

    pub fn reads(&self, spec: &Spec, faults: &mut Vec<Fault>) -> Reads {
        let operators = spec.operators.iter();
        let operators = operators
            .map(|one| one.inputs.iter().map(|input| self.port(spec, input, Some(&one.name.text), faults)).collect())
            .collect();
        let sinks = spec.sinks.iter().map(|sink| self.port(spec, &sink.input, None, faults)).collect();
        Reads { operators, sinks }
    }

    fn port(&self, spec: &Spec, input: &Word, reader: Option<&str>, faults: &mut Vec<Fault>) -> Option<Port> {
        let (base, out) = match input.text.split_once('.') {
            Some((base, out)) => (base, Some(out)),
            None => (input.text.as_str(), None),
        };
        let fault = match (self.all.get(base), out) {
            (Some(Named::Source(n)), None) => return Some(Port::Source(*n)),
            (Some(Named::Source(n)), Some("unfit")) => return Some(Port::Unfit(*n)),
            (Some(Named::Operator(n)), None) => return Some(Port::Operator(*n)),
            (Some(Named::Operator(n)), Some("late")) => match spec.operators[*n].does {
                DoesSpec::Window(_) => return Some(Port::Late(*n)),
                _ => Fault::new(input.place, format!("nothing is late for \"{base}\""))
                    .hint("only windows have late events"),
            },
            (Some(Named::Source(_)), Some(out)) => {
                Fault::new(input.place, format!("a source has no \"{}\"", short(out)))
                    .hint(format!("there is {base} and {base}.unfit"))
            }
            (Some(Named::Operator(_)), Some(out)) => {
                Fault::new(input.place, format!("an operator has no \"{}\"", short(out)))
                    .hint(format!("there is {base} and, of a window, {base}.late"))
            }
            (Some(Named::Sink), _) => {
                Fault::new(input.place, format!("\"{base}\" is a sink, and nothing comes out of it"))
                    .hint("read what the sink reads")
            }
            (None, _) if spec.broken.iter().any(|name| name == base) => return None,
            (None, _) => {
                let known =
                    self.all.iter().filter(|(name, named)| !matches!(named, Named::Sink) && Some(**name) != reader);
                Fault::new(input.place, format!("there is no \"{}\" to read", short(base)))
                    .instead(base, known.map(|(name, _)| *name))
            }
        };
        faults.push(fault);
        None
    }
}

/// The operators in an order in which each comes after those that it reads. Those that wait for each other are not in it.
pub fn order(spec: &Spec, reads: &[Vec<Option<Port>>], faults: &mut Vec<Fault>) -> Vec<usize> {
    let before = |n: usize| {
        reads[n].iter().flatten().filter_map(|port| match port {
            Port::Operator(n) | Port::Late(n) => Some(*n),
            _ => None,
        })
    };
    let (mut order, mut done) = (Vec::new(), vec![false; reads.len()]);
    loop {
        let ready: Vec<usize> =
            (0..reads.len()).filter(|n| !done[*n] && before(*n).all(|earlier| done[earlier])).collect();
        if ready.is_empty() {
            break;
        }
        // One at a time, so that they stay in the order of the definition where they can.
        done[ready[0]] = true;
        order.push(ready[0]);
    }
    let mut told = BTreeSet::new();
    for start in 0..reads.len() {
        if done[start] || told.contains(&start) {
            continue;
        }
        // Each of those that are left reads another of them, so following that leads round.
        let mut path = vec![start];
        let round = loop {
            let Some(next) = before(path[path.len() - 1]).find(|earlier| !done[*earlier]) else { break &path[..0] };
            match path.iter().position(|n| *n == next) {
                Some(at) => break &path[at..],
                None => path.push(next),
            }
        };
        if round.iter().any(|n| told.contains(n)) {
            told.extend(path.iter().copied());
            continue;
        }
        if let Some(first) = round.first() {
            let names: Vec<&str> = round.iter().chain([first]).map(|n| spec.operators[*n].name.text.as_str()).collect();
            let input = &spec.operators[*first].inputs[0];
            let fault = Fault::new(input.place, format!("it reads itself: {}", names.join(" from ")));
            faults.push(fault.hint("events only go forward; have one of them read something else"));
        }
        told.extend(path.iter().copied());
    }
    order
}

/// What comes out and goes nowhere is a slip.
pub fn unread(spec: &Spec, reads: &Reads, faults: &mut Vec<Fault>) {
    let read: BTreeSet<Port> = reads.operators.iter().flatten().chain(&reads.sinks).flatten().copied().collect();
    // Whoever reads something unknown, or could not be read itself, may have meant this.
    let unknown = reads.operators.iter().flatten().chain(&reads.sinks).any(Option::is_none);
    if unknown || !spec.broken.is_empty() {
        return;
    }
    for (n, source) in spec.sources.iter().enumerate() {
        if !read.contains(&Port::Source(n)) {
            let fault = Fault::new(source.name.place, format!("nobody reads \"{}\"", source.name.text));
            faults.push(fault.hint("have an operator or a sink read it, or leave it out"));
        }
    }
    for (n, operator) in spec.operators.iter().enumerate() {
        if !read.contains(&Port::Operator(n)) {
            let fault = Fault::new(operator.name.place, format!("nobody reads \"{}\"", operator.name.text));
            faults.push(fault.hint("have an operator or a sink read it, or leave it out"));
        }
    }
}
