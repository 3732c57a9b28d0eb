//! What a user writes: `kind: Stream`, checked whole. Everything that is wrong is found at once, and each fault has its line,
//! its column and, where there is one, a suggestion.
//!
//! ```yaml
//! kind: Stream
//! name: grid
//! schema: { meter: text, volts: float, amps: float, at: time }
//! sources:
//!   - name: meters
//!     mqtt: { topic: grid/+/reading }
//! operators:
//!   - name: watts
//!     from: meters
//!     add: { watts: volts * amps }
//!   - name: by_meter
//!     from: watts
//!     key_by: meter
//!   - name: means
//!     from: by_meter
//!     window: { slide: 1m, every: 10s, by: at, lateness: 2s }
//!     aggregate: { watts: mean(watts), events: count() }
//! sinks:
//!   - name: console
//!     from: means
//!     stdout: {}
//! ```
//!
//! - [`yaml`] is the text as a tree, each piece with its place. [`fields`] takes a mapping apart.
//! - [`spec`] is what was said; [`ends`] reads sources and sinks, [`addresses`] where those are, [`operators`] what is between them, [`windows`] and
//!   [`aggregates`] what those are made of, [`rate`] how many events a generator makes.
//! - [`linking`] finds out who reads whom and what flows between them, and makes a [`Graph`].
//!
//! docs/streams.md is the reference.

pub mod addresses;
pub mod aggregates;
pub mod ends;
pub mod fields;
pub mod linking;
pub mod operators;
pub mod rate;
pub mod spec;
#[cfg(test)]
mod tests;
pub mod windows;
pub mod yaml;

use std::fmt;

use serde::Serialize;

use crate::expression::nearest;
use crate::graph::Graph;

/// More than this is no definition.
pub const BYTES_MAX: usize = 1 << 20;
/// The most faults that are told at once.
pub const FAULTS_MAX: usize = 100;

/// Where something stands; both are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// Something that is wrong with a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    #[serde(flatten)]
    pub place: Place,
    pub what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Fault {
    pub fn new(place: Place, what: impl Into<String>) -> Self {
        Self { place, what: what.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Suggests the known name that is most like the wrong one; with none, all of them.
    pub fn instead<'a>(self, wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        match nearest(wrong, known.iter().copied()) {
            Some(near) => self.hint(format!("did you mean \"{near}\"?")),
            None if known.is_empty() => self,
            None => self.hint(format!("there is {}", known.join(", "))),
        }
    }
}

/// `12:7: there is no field "volt"; did you mean "volts"?`
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.place.line, self.place.column, self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// The streams that a text of YAML defines, or all that is wrong with them, by place. Documents of another kind are passed
/// over: one file may declare many things.
pub fn check(text: &str) -> Result<Vec<Graph>, Vec<Fault>> {
    let start = Place { line: 1, column: 1 };
    if text.len() > BYTES_MAX {
        return Err(vec![Fault::new(start, format!("it has {} bytes, the most is {BYTES_MAX}", text.len()))]);
    }
    let documents = yaml::read(text).map_err(|fault| vec![fault])?;
    let (mut graphs, mut faults) = (Vec::new(), Vec::new());
    let mut streams = 0;
    for document in &documents {
        match spec::kind(document) {
            Ok(true) => streams += 1,
            Ok(false) => continue,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        }
        let spec = spec::read(document, &mut faults);
        let before = faults.len();
        let graph = linking::link(&spec, &mut faults);
        if faults.len() == before
            && let Some(graph) = graph
        {
            graphs.push(graph);
        }
    }
    if streams == 0 && faults.is_empty() {
        faults.push(Fault::new(start, "it defines no stream").hint("a stream begins with kind: Stream"));
    }
    if faults.is_empty() {
        return Ok(graphs);
    }
    faults.sort_by_key(|fault| fault.place);
    faults.dedup();
    faults.truncate(FAULTS_MAX);
    Err(faults)
}
