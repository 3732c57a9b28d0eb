//! A small typed language for filters and maps: `volts * amps > 1000 and meter != "test"`.
//!
//! An expression is read once ([`syntax`]), checked against a schema once ([`check`]), and becomes a tree of typed steps
//! ([`plan`]). Each step takes whole columns and fills one ([`run`](mod@run)): nothing is looked up or decided for a row.
//! A step whose operands are the same for all rows is worked out once, at definition where it can be.
//!
//! Every expression has an answer for every event, and the same one everywhere: whole numbers stop at their largest
//! instead of going round, dividing by zero is defined, and functions like `exp` are our own and not the machine's.
//! docs/streams.md is the reference.
//!
//! ```
//! use mutirao_streams::batch::json::Rows;
//! use mutirao_streams::expression::{Expression, Scratch};
//! use mutirao_streams::{Kind, Schema, Value};
//!
//! let schema = Schema::of([("volts", Kind::Float), ("amps", Kind::Float)]);
//! let watts = Expression::compile("volts * amps", &schema).unwrap();
//! assert_eq!(watts.kind(), Kind::Float);
//!
//! let mut rows = Rows::new(schema.clone().into());
//! rows.read(br#"{"volts": 230, "amps": 2}"#);
//! let column = watts.run(&rows.take().batch, &mut Scratch::default());
//! assert_eq!(column.get(0), Value::Float(460.0));
//!
//! let flaws = Expression::compile("volt * amps", &schema).unwrap_err();
//! assert_eq!(flaws[0].to_string(), "there is no field \"volt\"; did you mean \"volts\"?");
//! ```

pub mod check;
pub mod functions;
mod lexer;
#[cfg(test)]
pub(crate) mod naive;
pub mod plan;
pub mod run;
pub mod syntax;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::batch::{Batch, Column, Value};
use crate::schema::{Kind, Schema};

pub use run::Scratch;

use plan::Node;

/// Something that is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// At which byte of the text.
    pub at: usize,
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Flaw {
    pub fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at, what: what.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// One that was checked against a schema, and runs over batches of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    text: String,
    node: Node,
    kind: Kind,
}

impl Expression {
    /// All that is wrong with it, or none of it.
    pub fn compile(text: &str, schema: &Schema) -> Result<Self, Vec<Flaw>> {
        let tree = syntax::parse(text).map_err(|flaw| vec![flaw])?;
        let check::Typed { node, kind } = check::check(&tree, schema)?;
        Ok(Self { text: text.trim().to_owned(), node, kind })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Of what it gives.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The plan, for whoever shows it.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The field that it is, when it is no more than that.
    pub fn field(&self) -> Option<usize> {
        match self.node {
            Node::Field(field) => Some(field),
            _ => None,
        }
    }

    /// The fields that it reads.
    pub fn fields(&self) -> Vec<usize> {
        let mut fields = Vec::new();
        self.node.fields(&mut fields);
        fields.sort_unstable();
        fields.dedup();
        fields
    }

    /// What it gives for each row.
    pub fn run(&self, batch: &Batch, scratch: &mut Scratch) -> Column {
        run::column(&self.node, self.kind, batch, scratch)
    }

    /// The numbers of the rows for which a bool expression holds, in place of what is in `rows`.
    pub fn select(&self, batch: &Batch, scratch: &mut Scratch, rows: &mut Vec<u32>) {
        run::select(&self.node, batch, scratch, rows);
    }

    /// What it always gives, when it reads nothing.
    pub fn always(&self) -> Option<&Value> {
        match &self.node {
            Node::One(value) => Some(value),
            _ => None,
        }
    }
}

/// The known name that is most like this one, if one is like it at all.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|one| (strsim::damerau_levenshtein(name, one), one)).min()?;
    (near.0 <= 1 + name.chars().count() / 3).then_some(near.1)
}
