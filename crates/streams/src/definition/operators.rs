//! What stands between sources and sinks, as it was written.

use super::Fault;
use super::fields::{Fields, short};
use super::spec::{Keeping, keeping, name};
use super::windows::{self, WindowSpec};
use super::yaml::{Node, Word};

/// What an operator does; each operator does one of these.
pub const DOES: [&str; 6] = ["filter", "map", "add", "key_by", "union", "window"];

#[derive(Clone, Debug)]
pub struct OperatorSpec {
    pub name: Word,
    /// `NAME`, or `NAME.late`, `NAME.unfit`.
    pub inputs: Vec<Word>,
    pub does: DoesSpec,
    pub keeping: Keeping,
    /// Where it says how often a snapshot is taken.
    pub snapshot_at: Option<super::Place>,
}

#[derive(Clone, Debug)]
pub enum DoesSpec {
    Filter(Word),
    /// These fields and no others.
    Map(Vec<(Word, Word)>),
    /// These fields and all others.
    Add(Vec<(Word, Word)>),
    KeyBy(Vec<Word>),
    Union,
    Window(Box<WindowSpec>),
}

/// Nothing where too little is said to go on with; what is missing was noted.
pub fn read(node: &Node, faults: &mut Vec<Fault>) -> Option<OperatorSpec> {
    const KNOWN: [&str; 11] =
        ["name", "from", "filter", "map", "add", "key_by", "union", "window", "aggregate", "replicas", "snapshot"];
    let fields = Fields::of(node, "an operator", &KNOWN, faults)?;
    let name = name(&fields, "an operator", faults);
    let keeping = keeping(&fields, faults);
    let does = fields.among(&DOES);
    let [(how, _)] = does.as_slice() else {
        let fault = match does.as_slice() {
            [] => Fault::new(node.place, "the operator does nothing"),
            [_, (second, _), ..] => Fault::new(second.place, "an operator does one thing"),
            [_] => unreachable!("one was matched before"),
        };
        faults.push(fault.hint(format!("it has one of {}", DOES.join(", "))));
        return None;
    };
    let union = how.text == "union";
    if fields.get("aggregate").is_some() && how.text != "window" {
        let place = fields.get("aggregate").map_or(node.place, |node| node.place);
        faults.push(Fault::new(place, "aggregates are made of windows").hint("give the operator a window"));
    }
    let inputs = inputs(&fields, union, faults);
    let owned = |pairs: Vec<(&Word, &Word)>| pairs.into_iter().map(|(key, word)| (key.clone(), word.clone())).collect();
    let does = match how.text.as_str() {
        "filter" => DoesSpec::Filter(fields.word("filter", faults)?.clone()),
        "map" => DoesSpec::Map(owned(fields.pairs("map", faults)?)),
        "add" => DoesSpec::Add(owned(fields.pairs("add", faults)?)),
        "key_by" => DoesSpec::KeyBy(fields.words("key_by", faults)?.into_iter().cloned().collect()),
        "union" => DoesSpec::Union,
        _ => DoesSpec::Window(Box::new(windows::read(&fields, faults)?)),
    };
    Some(OperatorSpec {
        name: name?.clone(),
        inputs: inputs?,
        does,
        keeping,
        snapshot_at: fields.get("snapshot").map(|node| node.place),
    })
}

fn inputs(fields: &Fields<'_>, union: bool, faults: &mut Vec<Fault>) -> Option<Vec<Word>> {
    if union {
        if let Some(from) = fields.get("from") {
            let fault = Fault::new(from.place, "a union names its inputs itself");
            faults.push(fault.hint("leave from out: union: [ one, other ]"));
        }
        let names = fields.words("union", faults)?;
        if names.len() < 2 {
            let place = fields.get("union").map_or(fields.place, |node| node.place);
            faults.push(Fault::new(place, "a union has at least two inputs").hint("write union: [ one, other ]"));
        }
        for (n, name) in names.iter().enumerate() {
            if names[..n].iter().any(|earlier| earlier.text == name.text) {
                let fault = Fault::new(name.place, format!("\"{}\" is in the union twice", short(&name.text)));
                faults.push(fault.hint("an event comes out of a union once for each time that it came in"));
            }
        }
        return Some(names.into_iter().cloned().collect());
    }
    let from = fields.needed("from", "an operator", faults)?;
    Some(vec![from.clone()])
}
