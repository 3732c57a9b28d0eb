//! How a step's input is written: one expression, or one for each field. In a file most of what people write as a figure or a truth
//! is its own expression, so both are read as they stand; a list or a map in its place is told how to be written.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Mapping {
    Whole(String),
    Fields(BTreeMap<String, String>),
}

impl<'de> Deserialize<'de> for Mapping {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Written { within: Within::Step })
    }
}

/// One field's expression.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match from.deserialize_any(Written { within: Within::Field })? {
            Mapping::Whole(text) => Ok(Self(text)),
            Mapping::Fields(_) => Err(D::Error::custom(IN_ONE_TEXT)),
        }
    }
}

const IN_ONE_TEXT: &str = "it is an expression, in one text: \"[1, 2]\" for a list, \"{'a': 1}\" for an object";

#[derive(Clone, Copy)]
enum Within {
    Step,
    Field,
}

struct Written {
    within: Within,
}

impl<'de> Visitor<'de> for Written {
    type Value = Mapping;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.within {
            Within::Step => "an expression, or one for each field",
            Within::Field => "an expression",
        })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Mapping, E> {
        Ok(Mapping::Whole(text.to_owned()))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Mapping, E> {
        Ok(Mapping::Whole(truth.to_string()))
    }

    fn visit_i64<E: Error>(self, whole: i64) -> Result<Mapping, E> {
        Ok(Mapping::Whole(whole.to_string()))
    }

    fn visit_u64<E: Error>(self, whole: u64) -> Result<Mapping, E> {
        let sign = if i64::try_from(whole).is_ok() { "" } else { "u" };
        Ok(Mapping::Whole(format!("{whole}{sign}")))
    }

    fn visit_f64<E: Error>(self, figure: f64) -> Result<Mapping, E> {
        if figure.is_finite() { Ok(Mapping::Whole(format!("{figure:?}"))) } else { Err(E::custom("it is no number")) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Mapping, A::Error> {
        Err(A::Error::custom(IN_ONE_TEXT))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Mapping, A::Error> {
        if let Within::Field = self.within {
            return Err(A::Error::custom(IN_ONE_TEXT));
        }
        let mut fields = BTreeMap::new();
        while let Some((name, Text(text))) = map.next_entry::<String, Text>()? {
            if fields.insert(name.clone(), text).is_some() {
                return Err(A::Error::custom(format!("\"{name}\" is there twice")));
            }
        }
        Ok(Mapping::Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(json: Value) -> Result<Mapping, String> {
        serde_json::from_value(json).map_err(|error| error.to_string())
    }

    #[test]
    fn figures_and_truths_are_their_own_expressions() {
        let written = json!({"n": 5, "m": -5, "f": 2.0, "big": u64::MAX, "go": true, "text": "'x'"});
        let Ok(Mapping::Fields(fields)) = read(written.clone()) else { panic!("{:?}", read(written)) };
        let text = |(name, text): (&String, &String)| format!("{name}={text}");
        let all: Vec<String> = fields.iter().map(text).collect();
        assert_eq!(all, ["big=18446744073709551615u", "f=2.0", "go=true", "m=-5", "n=5", "text='x'"]);
        for text in fields.values() {
            assert!(mutirao_expression::Expression::compile(text).is_ok(), "{text}");
        }
        assert_eq!(read(json!("input.a")), Ok(Mapping::Whole("input.a".into())));
        assert_eq!(read(json!(7)), Ok(Mapping::Whole("7".into())));
    }

    #[test]
    fn lists_and_objects_are_told_how_they_are_written() {
        for written in [json!([1, 2]), json!({"list": [1, 2]}), json!({"nest": {"a": 1}})] {
            assert!(read(written.clone()).is_err_and(|why| why.contains("in one text")), "{written}");
        }
        assert!(read(json!({"nothing": null})).is_err());
        assert!(serde_json::from_str::<Mapping>(r#"{"a": "1", "a": "2"}"#).is_err());
    }
}
