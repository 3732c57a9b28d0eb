//! What a definition says, before anybody asked whether it fits together.

use std::time::Duration;

use super::ends::{self, SinkSpec, SourceSpec};
use super::fields::{Fields, short};
use super::operators::{self, OperatorSpec};
use super::yaml::{Content, Node, Word};
use super::{Fault, Place};
use crate::schema::{Field, Kind, Schema, SchemaError};

pub const SOURCES_MAX: usize = 64;
pub const OPERATORS_MAX: usize = 500;
pub const SINKS_MAX: usize = 64;
pub const REPLICAS_MAX: u32 = 5;
const NAME_CHARS_MAX: usize = 64;

#[derive(Clone, Debug)]
pub struct Spec {
    pub place: Place,
    pub name: String,
    pub sources: Vec<SourceSpec>,
    pub operators: Vec<OperatorSpec>,
    pub sinks: Vec<SinkSpec>,
    pub keeping: Keeping,
    /// Names of what is there and too wrong to go on with: whoever reads those is not to blame.
    pub broken: Vec<String>,
}

/// How an operator is kept alive; of the whole stream, what its operators do not say themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeping {
    pub replicas: Option<u32>,
    pub snapshot: Option<Duration>,
}

/// Whether a document is a stream. A fault where it does not say what it is.
pub fn kind(document: &Node) -> Result<bool, Fault> {
    let kind = document.field("kind").and_then(Node::word);
    match (&document.what, kind) {
        (Content::Fields(_), Some(kind)) => Ok(kind.text == "Stream"),
        (Content::Fields(_), None) => {
            Err(Fault::new(document.place, "kind is missing").hint("a stream begins with kind: Stream"))
        }
        _ => Err(Fault::new(document.place, "it is not a list of fields").hint("a stream begins with kind: Stream")),
    }
}

pub fn read(document: &Node, faults: &mut Vec<Fault>) -> Spec {
    const KNOWN: [&str; 8] = ["kind", "name", "schema", "sources", "operators", "sinks", "replicas", "snapshot"];
    let mut spec = Spec {
        place: document.place,
        name: String::new(),
        sources: Vec::new(),
        operators: Vec::new(),
        sinks: Vec::new(),
        keeping: Keeping::default(),
        broken: Vec::new(),
    };
    let Some(fields) = Fields::of(document, "a stream", &KNOWN, faults) else { return spec };
    if let Some(name) = name(&fields, "a stream", faults) {
        spec.name = name.text.clone();
    }
    spec.keeping = keeping(&fields, faults);
    let shared = fields.get("schema").and_then(|node| schema(node, faults));
    let said = fields.get("schema").is_some();
    for node in bounded(&fields, "sources", SOURCES_MAX, faults) {
        let read = ends::source(node, shared.as_ref(), said, faults);
        spec.broken.extend(broken(node, read.is_some()));
        spec.sources.extend(read);
    }
    for node in bounded(&fields, "operators", OPERATORS_MAX, faults) {
        let read = operators::read(node, faults);
        spec.broken.extend(broken(node, read.is_some()));
        spec.operators.extend(read);
    }
    for node in bounded(&fields, "sinks", SINKS_MAX, faults) {
        let read = ends::sink(node, faults);
        spec.broken.extend(broken(node, read.is_some()));
        spec.sinks.extend(read);
    }
    for (name, what) in [("sources", "nothing comes in"), ("sinks", "nothing goes out")] {
        if fields.list(name, &mut Vec::new()).is_empty() {
            faults.push(Fault::new(document.place, format!("there are no {name}: {what}")));
        }
    }
    spec
}

/// What something that could not be read would have been called.
fn broken(node: &Node, read: bool) -> Option<String> {
    let name = node.field("name").and_then(Node::word).map(|word| word.text.clone());
    (!read).then(|| name.unwrap_or_default())
}

fn bounded<'a>(fields: &Fields<'a>, name: &str, most: usize, faults: &mut Vec<Fault>) -> &'a [Node] {
    let list = fields.list(name, faults);
    match list.get(most) {
        None => list,
        Some(node) => {
            faults.push(Fault::new(node.place, format!("there are {} {name}, the most is {most}", list.len())));
            &list[..most]
        }
    }
}

/// The name of something that others refer to. It becomes part of topics, queues and keys.
pub fn name<'a>(fields: &Fields<'a>, what: &str, faults: &mut Vec<Fault>) -> Option<&'a Word> {
    let word = fields.needed("name", what, faults)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if word.text.is_empty() || word.text.len() > NAME_CHARS_MAX || !word.text.chars().all(fits) {
        let fault = Fault::new(word.place, format!("\"{}\" is no name", short(&word.text)));
        faults.push(fault.hint("write 1 to 64 letters, digits, - and _"));
    }
    Some(word)
}

pub fn keeping(fields: &Fields<'_>, faults: &mut Vec<Fault>) -> Keeping {
    let replicas = fields.figure("replicas", 1, REPLICAS_MAX, faults);
    let snapshot = fields.span("snapshot", faults);
    if snapshot.is_some_and(|every| every < Duration::from_secs(1)) {
        let place = fields.get("snapshot").map_or(fields.place, |node| node.place);
        faults.push(Fault::new(place, "a snapshot is taken once a second at most"));
    }
    Keeping { replicas, snapshot }
}

/// `{ meter: text, volts: float }`
pub fn schema(node: &Node, faults: &mut Vec<Fault>) -> Option<Schema> {
    let Content::Fields(written) = &node.what else {
        let fault = Fault::new(node.place, format!("a schema is a list of fields, and this is {}", node.shown()));
        faults.push(fault.hint("write schema: { meter: text, volts: float, at: time }"));
        return None;
    };
    let (mut fields, before) = (Vec::new(), faults.len());
    for (name, kind) in written {
        let word = kind.word();
        let read = word.and_then(|word| word.text.parse::<Kind>().ok());
        match (read, word) {
            (Some(kind), _) => fields.push(Field { name: name.text.clone(), kind }),
            (None, Some(word)) => {
                let fault = Fault::new(word.place, format!("there is no kind \"{}\"", short(&word.text)));
                let others = [("string", "text"), ("number", "float"), ("double", "float"), ("integer", "int")]
                    .iter()
                    .chain(&[("boolean", "bool"), ("timestamp", "time"), ("datetime", "time"), ("str", "text")])
                    .find(|(other, _)| other.eq_ignore_ascii_case(&word.text));
                faults.push(match others {
                    Some((_, ours)) => fault.hint(format!("it is called \"{ours}\" here")),
                    None => fault.instead(&word.text, Kind::ALL.map(Kind::name)),
                });
            }
            (None, None) => {
                let fault = Fault::new(kind.place, format!("\"{}\" is {}", short(&name.text), kind.shown()));
                faults.push(fault.hint("a field is one of int, float, bool, text, time"));
            }
        }
    }
    match Schema::checked(fields) {
        Ok(schema) if faults.len() == before => Some(schema),
        Ok(_) => None,
        Err(error) => {
            let wrong = match &error {
                SchemaError::Twice(name) | SchemaError::Name(name) | SchemaError::Reserved(name) => Some(name),
                SchemaError::Empty | SchemaError::TooMany(_) => None,
            };
            let place = written.iter().rfind(|(name, _)| Some(&name.text) == wrong).map(|(name, _)| name.place);
            if faults.len() == before {
                faults.push(Fault::new(place.unwrap_or(node.place), error.to_string()));
            }
            None
        }
    }
}
