//! Reading JSON that a newer program may have written: fields that are not known are passed over, at every depth, also
//! in types that refuse them when a person writes them to the API.
//!
//! Only what the strict reading refuses is read again like this, so nobody pays for it but during an upgrade.

use serde::de::value::StringDeserializer;
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).or_else(|strict| {
        let Ok(Unequivocal(value)) = serde_json::from_slice(bytes) else { return Err(strict) };
        T::deserialize(Tolerant(value)).map_err(|_| strict)
    })
}

/// A value in which no field comes twice: which of the two was meant is not to be guessed at, least of all who speaks.
struct Unequivocal(Value);

impl<'de> Deserialize<'de> for Unequivocal {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Whole).map(Self)
    }
}

struct Whole;

impl<'de> Visitor<'de> for Whole {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON without doubled fields")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Unequivocal(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = serde_json::Map::new();
        while let Some((name, Unequivocal(value))) = fields.next_entry::<String, _>()? {
            if all.insert(name, value).is_some() {
                return Err(A::Error::custom("a field comes twice"));
            }
        }
        Ok(Value::Object(all))
    }
}

struct Tolerant(Value);

impl<'de> Deserializer<'de> for Tolerant {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => visitor.visit_seq(Items(items.into_iter())),
            Value::Object(fields) => visitor.visit_map(Fields::all(fields)),
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(fields) => visitor.visit_map(Fields::known(fields, known)),
            other => Tolerant(other).deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// A variant is never guessed at: one that is not known is an error.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::String(name) => visitor.visit_enum(Variant { name, content: None }),
            Value::Object(fields) if fields.len() == 1 => match fields.into_iter().next() {
                Some((name, content)) => visitor.visit_enum(Variant { name, content: Some(content) }),
                None => Err(Error::custom("expected a variant")),
            },
            _ => Err(Error::custom("expected a variant")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Items(std::vec::IntoIter<Value>);

impl<'de> SeqAccess<'de> for Items {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|item| seed.deserialize(Tolerant(item))).transpose()
    }
}

struct Fields {
    left: std::vec::IntoIter<(String, Value)>,
    value: Option<Value>,
}

impl Fields {
    fn all(fields: serde_json::Map<String, Value>) -> Self {
        Self { left: fields.into_iter().collect::<Vec<_>>().into_iter(), value: None }
    }

    fn known(mut fields: serde_json::Map<String, Value>, known: &[&str]) -> Self {
        fields.retain(|name, _| known.contains(&name.as_str()));
        Self::all(fields)
    }
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.left.next() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(StringDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = self.value.take().ok_or_else(|| Error::custom("a value was asked for before its key"))?;
        seed.deserialize(Tolerant(value))
    }
}

struct Variant {
    name: String,
    content: Option<Value>,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = Error;
    type Variant = Content;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Content), Error> {
        Ok((seed.deserialize(StringDeserializer::<Error>::new(self.name))?, Content(self.content)))
    }
}

struct Content(Option<Value>);

impl<'de> VariantAccess<'de> for Content {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(Tolerant(self.0.unwrap_or_default()))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        Tolerant(self.0.unwrap_or_default()).deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, known: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        Tolerant(self.0.unwrap_or_default()).deserialize_struct("", known, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        shape: Shape,
        #[serde(default)]
        names: BTreeMap<String, u8>,
        inner: Option<Vec<Inner>>,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        n: i64,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "snake_case", deny_unknown_fields)]
    enum Shape {
        Round { radius: f64 },
        Plain(Inner),
        Nothing,
    }

    #[test]
    fn fields_of_the_future_are_passed_over_at_every_depth() {
        let read = |text: &str| read::<Outer>(text.as_bytes());
        let round = read(
            r#"{"shape": {"round": {"radius": 1.5, "x": 1}}, "names": {"a": 1}, "inner": [{"n": -1, "y": []}], "z": {}}"#,
        );
        let names = [("a".to_owned(), 1)].into();
        assert_eq!(
            round.unwrap(),
            Outer { shape: Shape::Round { radius: 1.5 }, names, inner: Some(vec![Inner { n: -1 }]) }
        );
        let plain = read(r#"{"shape": {"plain": {"n": 2, "x": 1}}, "inner": null}"#).unwrap();
        assert_eq!(plain.shape, Shape::Plain(Inner { n: 2 }));
        assert_eq!(read(r#"{"shape": "nothing", "x": 1}"#).unwrap().shape, Shape::Nothing);
    }

    #[test]
    fn what_is_missing_wrong_or_no_json_is_still_refused_and_told_as_the_strict_reading_does() {
        for bad in [
            r#"{"shape": "square", "shape": "nothing"}"#,
            r#"{"shape": "square"}"#,
            r#"{"inner": []}"#,
            r#"{"shape": "nothing", "inner": [{"m": 1}]}"#,
            "{",
            "",
        ] {
            let strict = serde_json::from_slice::<Outer>(bad.as_bytes()).unwrap_err().to_string();
            assert_eq!(read::<Outer>(bad.as_bytes()).unwrap_err().to_string(), strict, "{bad}");
        }
    }
}
