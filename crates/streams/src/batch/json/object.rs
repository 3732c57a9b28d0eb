//! One object, read straight into columns: no tree is built of it, and no text is kept twice. Numbers are rounded as they
//! should be, to the last bit, which a quicker reader of JSON does not promise.

use std::borrow::Cow;

use serde::de::IgnoredAny;

use crate::batch::{Column, TEXT_BYTES_MAX, cut};
use crate::schema::{Kind, Schema};
use crate::time;

/// How much of what does not fit is repeated.
const SHOWN_BYTES: usize = 40;

/// Adds the fields of an event to columns that have `rows` each. When it fails, some may have got a value already: whoever
/// asked cuts them back.
pub fn read(event: &[u8], schema: &Schema, columns: &mut [Column], rows: usize) -> Result<(), String> {
    let mut text = Text { bytes: event, at: 0 };
    text.expect(b'{')?;
    // Events tend to have their fields in the same order, so the one after the last is looked at first.
    let mut likely = 0;
    let mut more = !text.skip(b'}');
    while more {
        let name = text.string()?;
        text.expect(b':')?;
        let place = match schema.fields.get(likely) {
            Some(field) if field.name == name => Some(likely),
            _ => schema.index(&name),
        };
        match place {
            None => text.pass_over()?,
            Some(place) => {
                likely = place + 1;
                if columns[place].len() > rows {
                    return Err(format!("it has the field \"{name}\" twice"));
                }
                text.cell(&mut columns[place], &name)?;
            }
        }
        more = text.skip(b',');
        if !more {
            text.expect(b'}')?;
        }
    }
    text.space();
    if text.at < event.len() {
        return Err("it is no JSON: something follows the object".into());
    }
    match columns.iter().position(|column| column.len() == rows) {
        None => Ok(()),
        Some(missing) => Err(format!("it lacks the field \"{}\"", schema.fields[missing].name)),
    }
}

struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    fn space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.space();
        self.bytes.get(self.at).copied()
    }

    fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.skip(byte) {
            return Ok(());
        }
        let found = match self.bytes.get(self.at) {
            None => "its end".to_owned(),
            Some(byte) => format!("\"{}\"", byte.escape_ascii()),
        };
        Err(format!("it is no JSON: {found} stands where \"{}\" is expected", byte as char))
    }

    /// A text between quotes; copied only where something in it is written in another way.
    fn string(&mut self) -> Result<Cow<'a, str>, String> {
        self.expect(b'"')?;
        let start = self.at;
        let mut plain = true;
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    plain = false;
                    self.at += 2;
                }
                Some(0x20..) => self.at += 1,
                Some(_) => return Err("it is no JSON: a line ends inside a text".into()),
                None => return Err("it is no JSON: a text does not end".into()),
            }
        }
        let inner = &self.bytes[start..self.at];
        self.at += 1;
        if plain {
            let text = std::str::from_utf8(inner).map_err(|_| "it is no JSON: a text is not UTF-8".to_owned())?;
            return Ok(Cow::Borrowed(text));
        }
        let whole = &self.bytes[start - 1..self.at];
        let text: String =
            serde_json::from_slice(whole).map_err(|_| "it is no JSON: a text is written wrongly".to_owned())?;
        Ok(Cow::Owned(text))
    }

    /// The letters, digits and signs that stand here.
    fn word(&mut self) -> &'a str {
        self.space();
        let rest = &self.bytes[self.at..];
        let length = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || b"+-._".contains(b)).count();
        self.at += length;
        std::str::from_utf8(&rest[..length]).unwrap_or_default()
    }

    fn pass_over(&mut self) -> Result<(), String> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{' | b'[') => {
                let mut values = serde_json::Deserializer::from_slice(&self.bytes[self.at..]).into_iter::<IgnoredAny>();
                let read = values.next();
                self.at += values.byte_offset();
                match read {
                    Some(Ok(_)) => Ok(()),
                    _ => Err("it is no JSON: a value is written wrongly".into()),
                }
            }
            _ => match self.word() {
                "true" | "false" | "null" => Ok(()),
                word if number(word).is_some() => Ok(()),
                word => Err(format!("it is no JSON: \"{}\" is no value", cut(word, SHOWN_BYTES))),
            },
        }
    }

    /// The value of one field, to the end of its column.
    fn cell(&mut self, column: &mut Column, name: &str) -> Result<(), String> {
        let not = |kind: Kind, found: &str| format!("field \"{name}\" is {}, and {found} is not", wanted(kind));
        let kind = column.kind();
        match self.peek() {
            Some(b'"') => {
                let text = self.string()?;
                let unfit = || not(kind, &format!("\"{}\"", cut(&text, SHOWN_BYTES)));
                match column {
                    Column::Text(_) if text.len() > TEXT_BYTES_MAX => {
                        let bytes = text.len();
                        return Err(format!("the text of \"{name}\" has {bytes} bytes, the most is {TEXT_BYTES_MAX}"));
                    }
                    Column::Text(all) => all.push(&text),
                    Column::Float(all) => all.push(special(&text).ok_or_else(unfit)?),
                    Column::Time(all) => all.push(time::parse(&text).ok_or_else(unfit)?),
                    Column::Int(_) | Column::Bool(_) => return Err(unfit()),
                }
            }
            Some(b'{') => return Err(not(kind, "an object")),
            Some(b'[') => return Err(not(kind, "a list")),
            _ => {
                let word = self.word();
                let unfit = || not(kind, cut(word, SHOWN_BYTES));
                match (word, number(word), column) {
                    ("true" | "false", _, Column::Bool(all)) => all.push(word == "true"),
                    ("true" | "false" | "null", ..) => return Err(unfit()),
                    (_, None, _) => {
                        return Err(format!("it is no JSON: \"{}\" is no value", cut(word, SHOWN_BYTES)));
                    }
                    (_, Some(_), Column::Float(all)) => {
                        let value: f64 = word.parse().map_err(|_| unfit())?;
                        // More than a float holds is not taken for what has no end.
                        all.push(Some(value).filter(|value| value.is_finite()).ok_or_else(unfit)?);
                    }
                    (_, Some(Number::Whole), Column::Int(all) | Column::Time(all)) => {
                        all.push(word.parse().map_err(|_| unfit())?);
                    }
                    (_, Some(_), _) => return Err(unfit()),
                }
            }
        }
        Ok(())
    }
}

fn wanted(kind: Kind) -> &'static str {
    match kind {
        Kind::Int => "a number without a fraction",
        Kind::Float => "a number",
        Kind::Bool => "true or false",
        Kind::Text => "a text",
        Kind::Time => "a time like \"2026-11-16T15:50:34Z\"",
    }
}

/// Floats that JSON has no number for.
fn special(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

enum Number {
    Whole,
    Fraction,
}

/// What JSON takes for a number: `-0.5e+3`, and neither `.5`, `5.`, `+5` nor `05`.
fn number(word: &str) -> Option<Number> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = word.strip_prefix('-').unwrap_or(word);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest.starts_with('0')) {
        return None;
    }
    let mut rest = &rest[whole..];
    if rest.is_empty() {
        return Some(Number::Whole);
    }
    if let Some(fraction) = rest.strip_prefix('.') {
        let length = digits(fraction);
        if length == 0 {
            return None;
        }
        rest = &fraction[length..];
    }
    if let Some(power) = rest.strip_prefix(['e', 'E']) {
        let power = power.strip_prefix(['+', '-']).unwrap_or(power);
        let length = digits(power);
        if length == 0 {
            return None;
        }
        rest = &power[length..];
    }
    rest.is_empty().then_some(Number::Fraction)
}
