//! Which fields an event has, and of which kind each is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most fields of one event.
pub const FIELDS_MAX: usize = 256;
/// Of a field's name.
pub const NAME_BYTES_MAX: usize = 64;
/// Words of expressions, which no field can have for a name.
pub const RESERVED: [&str; 6] = ["and", "false", "in", "not", "or", "true"];

/// What a field holds. There are no nulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// 64 bits, signed.
    Int,
    /// 64 bits, IEEE 754.
    Float,
    Bool,
    Text,
    /// Microseconds since the epoch, in 64 bits, signed.
    Time,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Int, Kind::Float, Kind::Bool, Kind::Text, Kind::Time];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Int => "int",
            Kind::Float => "float",
            Kind::Bool => "bool",
            Kind::Text => "text",
            Kind::Time => "time",
        }
    }

    /// Whether events can be grouped by it. Two floats that look alike may differ in their last bit, so not by those.
    pub fn groups(self) -> bool {
        self != Kind::Float
    }

    pub fn is_number(self) -> bool {
        matches!(self, Kind::Int | Kind::Float)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Field {
    pub name: String,
    pub kind: Kind,
}

/// Fields in the order in which they were declared. Names are unique: whoever makes one sees to it, or asks
/// [`Schema::checked`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schema {
    pub fields: Vec<Field>,
}

/// Why fields make no schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("an event has no fields")]
    Empty,
    #[error("{0} fields are too many, the most is {FIELDS_MAX}")]
    TooMany(usize),
    #[error("there are two fields \"{0}\"")]
    Twice(String),
    #[error("\"{0}\" is no name of a field: write a letter or _, then letters, digits and _, at most 64 in all")]
    Name(String),
    #[error("\"{0}\" is a word of expressions, and no name of a field")]
    Reserved(String),
}

impl Schema {
    /// Of fields that are known to be fine.
    pub fn of<N: Into<String>>(fields: impl IntoIterator<Item = (N, Kind)>) -> Self {
        Self { fields: fields.into_iter().map(|(name, kind)| Field { name: name.into(), kind }).collect() }
    }

    pub fn checked(fields: Vec<Field>) -> Result<Self, SchemaError> {
        if fields.is_empty() {
            return Err(SchemaError::Empty);
        }
        if fields.len() > FIELDS_MAX {
            return Err(SchemaError::TooMany(fields.len()));
        }
        for (n, field) in fields.iter().enumerate() {
            if !is_name(&field.name) {
                return Err(SchemaError::Name(field.name.chars().take(NAME_BYTES_MAX).collect()));
            }
            if RESERVED.contains(&field.name.as_str()) {
                return Err(SchemaError::Reserved(field.name.clone()));
            }
            if fields[..n].iter().any(|earlier| earlier.name == field.name) {
                return Err(SchemaError::Twice(field.name.clone()));
            }
        }
        Ok(Self { fields })
    }

    pub fn len(&self) -> usize {
        self.fields.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Where a field stands.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    pub fn kind(&self, name: &str) -> Option<Kind> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.kind)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_str())
    }

    /// Tells schemas apart where both sides know theirs, and only want to know whether it is the same.
    pub fn fingerprint(&self) -> u32 {
        let mut hash = crc32fast::Hasher::new();
        for field in &self.fields {
            hash.update(field.name.as_bytes());
            hash.update(&[0, field.kind as u8]);
        }
        hash.finalize()
    }
}

/// `{ volts: float, at: time }`
impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{ ")?;
        for (n, field) in self.fields.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{}: {}", field.name, field.kind)?;
        }
        f.write_str(" }")
    }
}

/// Whether a field can have this name, but for [`RESERVED`] words.
pub fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    first && text.len() <= NAME_BYTES_MAX && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str) -> Field {
        Field { name: name.into(), kind: Kind::Int }
    }

    #[test]
    fn fields_that_make_no_schema_are_refused() {
        assert_eq!(Schema::checked(vec![]), Err(SchemaError::Empty));
        assert_eq!(Schema::checked(vec![field("a"), field("a")]), Err(SchemaError::Twice("a".into())));
        assert_eq!(Schema::checked(vec![field("1a")]), Err(SchemaError::Name("1a".into())));
        assert_eq!(Schema::checked(vec![field("in")]), Err(SchemaError::Reserved("in".into())));
        let many = (0..=FIELDS_MAX).map(|n| field(&format!("f{n}"))).collect();
        assert_eq!(Schema::checked(many), Err(SchemaError::TooMany(FIELDS_MAX + 1)));
    }

    #[test]
    fn a_fingerprint_sees_names_kinds_and_order() {
        let one = Schema::of([("a", Kind::Int), ("b", Kind::Float)]);
        for other in [
            Schema::of([("a", Kind::Int), ("b", Kind::Int)]),
            Schema::of([("b", Kind::Float), ("a", Kind::Int)]),
            Schema::of([("a", Kind::Int), ("c", Kind::Float)]),
            Schema::of([("a", Kind::Int)]),
        ] {
            assert_ne!(one.fingerprint(), other.fingerprint(), "{one} and {other}");
        }
        assert_eq!(one.fingerprint(), one.clone().fingerprint());
    }

    #[test]
    fn kinds_are_read_as_they_are_written() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }
}
