//! One object, read straight into columns: no tree is built of it, and no text is kept twice.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use crate::batch::{Column, TEXT_BYTES_MAX};
use crate::schema::{Kind, Schema};
use crate::time;

/// Where the fields of the next event go. When it fails, columns may have got a value already: whoever asked cuts them
/// back.
pub struct Event<'a> {
    pub schema: &'a Schema,
    pub columns: &'a mut [Column],
    pub rows: usize,
}

impl<'de> DeserializeSeed<'de> for Event<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Event<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Event { schema, columns, rows } = self;
        // Events tend to have their fields in the same order, so the one after the last is looked at first.
        let mut likely = 0;
        while let Some(place) = map.next_key_seed(Name { schema, likely })? {
            let Some(place) = place else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            likely = place + 1;
            let (field, column) = (&schema.fields[place], &mut columns[place]);
            if column.len() > rows {
                return Err(A::Error::custom(format_args!("it has the field \"{}\" twice", field.name)));
            }
            map.next_value_seed(Cell { name: &field.name, column })?;
        }
        match columns.iter().position(|column| column.len() == rows) {
            None => Ok(()),
            Some(missing) => {
                Err(A::Error::custom(format_args!("it lacks the field \"{}\"", schema.fields[missing].name)))
            }
        }
    }
}

/// Where the field of this name stands, if there is one.
struct Name<'a> {
    schema: &'a Schema,
    likely: usize,
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Option<usize>, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Option<usize>, E> {
        match self.schema.fields.get(self.likely) {
            Some(field) if field.name == name => Ok(Some(self.likely)),
            _ => Ok(self.schema.index(name)),
        }
    }
}

/// Where the value of one field goes.
struct Cell<'a> {
    name: &'a str,
    column: &'a mut Column,
}

impl Cell<'_> {
    fn wanted(&self) -> &'static str {
        match self.column.kind() {
            Kind::Int => "a number without a fraction",
            Kind::Float => "a number",
            Kind::Bool => "true or false",
            Kind::Text => "a text",
            Kind::Time => "a time like \"2026-11-16T15:50:34Z\"",
        }
    }

    fn not<E: Error>(&self, found: fmt::Arguments<'_>) -> E {
        E::custom(format_args!("field \"{}\" is {}, and {found} is not", self.name, self.wanted()))
    }
}

impl<'de> DeserializeSeed<'de> for Cell<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Cell<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in the field \"{}\"", self.wanted(), self.name)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        match self.column {
            Column::Int(all) | Column::Time(all) => all.push(value),
            Column::Float(all) => all.push(value as f64),
            _ => return Err(self.not(format_args!("{value}"))),
        }
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match (i64::try_from(value), &mut *self.column) {
            (_, Column::Float(all)) => all.push(value as f64),
            (Ok(value), Column::Int(all) | Column::Time(all)) => all.push(value),
            _ => return Err(self.not(format_args!("{value}"))),
        }
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        match self.column {
            Column::Float(all) => all.push(value),
            _ => return Err(self.not(format_args!("{value:?}"))),
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.column {
            Column::Bool(all) => all.push(value),
            _ => return Err(self.not(format_args!("{value}"))),
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        let shown: String = value.chars().take(40).collect();
        match &mut *self.column {
            Column::Text(_) if value.len() > TEXT_BYTES_MAX => {
                return Err(E::custom(format_args!(
                    "the text of \"{}\" has {} bytes, the most is {TEXT_BYTES_MAX}",
                    self.name,
                    value.len()
                )));
            }
            Column::Text(all) => all.push(value),
            Column::Float(all) => match value {
                "NaN" => all.push(f64::NAN),
                "inf" => all.push(f64::INFINITY),
                "-inf" => all.push(f64::NEG_INFINITY),
                _ => return Err(self.not(format_args!("\"{shown}\""))),
            },
            Column::Time(all) => match time::parse(value) {
                Some(at) => all.push(at),
                None => return Err(self.not(format_args!("\"{shown}\""))),
            },
            _ => return Err(self.not(format_args!("\"{shown}\""))),
        }
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Err(self.not(format_args!("null")))
    }
}
