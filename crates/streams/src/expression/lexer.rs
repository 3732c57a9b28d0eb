//! The words of an expression, each with its place.

use super::Flaw;
use crate::time::{DAY, HOUR, MINUTE, SECOND};

/// The most words: what is longer is better said in several steps, and depth is bounded by it.
pub const WORDS_MAX: usize = 500;
/// Of the text.
pub const TEXT_BYTES_MAX: usize = 8 * 1024;

#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    Int(i64),
    Float(f64),
    Text(String),
    Name(String),
    Sign(&'static str),
    End,
}

impl Word {
    pub fn shown(&self) -> String {
        match self {
            Word::Int(value) => format!("\"{value}\""),
            Word::Float(value) => format!("\"{value:?}\""),
            Word::Text(_) => "a text".into(),
            Word::Name(name) => format!("\"{name}\""),
            Word::Sign(sign) => format!("\"{sign}\""),
            Word::End => "the end".into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub word: Word,
    pub at: usize,
}

/// Longer ones first.
const SIGNS: [&str; 18] =
    ["==", "!=", "<=", ">=", "&&", "||", "(", ")", "[", "]", ",", "+", "-", "*", "/", "%", "<", ">"];

/// Suffixes of numbers that are spans of time; such a number is an int of microseconds.
const UNITS: [(&str, i64); 6] =
    [("us", 1), ("ms", SECOND / 1000), ("s", SECOND), ("m", MINUTE), ("h", HOUR), ("d", DAY)];

pub fn words(text: &str) -> Result<Vec<Token>, Flaw> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Flaw::new(0, format!("it has {} bytes, the most is {TEXT_BYTES_MAX}", text.len())));
    }
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        if words.len() == WORDS_MAX {
            return Err(Flaw::new(at, format!("it has more than {WORDS_MAX} words")).hint("say it in several steps"));
        }
        let (word, length) = one(text, at, c)?;
        words.push(Token { word, at });
        at += length;
    }
    words.push(Token { word: Word::End, at: text.trim_end().len() });
    Ok(words)
}

fn one(text: &str, at: usize, first: char) -> Result<(Word, usize), Flaw> {
    let rest = &text[at..];
    if first.is_ascii_digit() {
        return number(rest, at);
    }
    if first == '"' || first == '\'' {
        return quoted(rest, at, first);
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        return Ok((Word::Name(rest[..length].to_owned()), length));
    }
    if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
        return Ok((Word::Sign(sign), sign.len()));
    }
    Err(match first {
        '!' => return Ok((Word::Sign("!"), 1)),
        '=' => Flaw::new(at, "\"=\" means nothing here").hint("to compare, write =="),
        '&' => Flaw::new(at, "\"&\" means nothing here").hint("write and"),
        '|' => Flaw::new(at, "\"|\" means nothing here").hint("write or"),
        '?' => Flaw::new(at, "\"?\" means nothing here").hint("write if(condition, this, that)"),
        '.' => Flaw::new(at, "\".\" means nothing here").hint("a number begins with a digit: 0.5"),
        other => Flaw::new(at, format!("\"{other}\" means nothing here")),
    })
}

fn number(rest: &str, at: usize) -> Result<(Word, usize), Flaw> {
    let bytes = rest.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit() || **b == b'_').count();
    let mut end = digits(0);
    let mut whole = true;
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        whole = false;
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let power = digits(end + 1 + sign);
        if power > 0 {
            whole = false;
            end += 1 + sign + power;
        }
    }
    let figures = rest[..end].replace('_', "");
    let suffix: String = rest[end..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let large = || Flaw::new(at, format!("{figures}{suffix} is too large for 64 bits"));
    if suffix.is_empty() {
        let word = match whole {
            true => Word::Int(figures.parse().map_err(|_| large())?),
            false => Word::Float(figures.parse().map_err(|_| Flaw::new(at, format!("{figures} is no number")))?),
        };
        return Ok((word, end));
    }
    let Some((_, unit)) = UNITS.iter().find(|(name, _)| *name == suffix) else {
        return Err(Flaw::new(at, format!("\"{figures}{suffix}\" is no number"))
            .hint("a span of time is written like 500ms, 10s, 5m, 1h, 7d; a name begins with a letter"));
    };
    let micros = match whole {
        true => figures.parse::<i64>().ok().and_then(|figure| figure.checked_mul(*unit)).ok_or_else(large)?,
        false => {
            let micros = figures.parse::<f64>().map_err(|_| large())? * *unit as f64;
            if micros >= i64::MAX as f64 {
                return Err(large());
            }
            micros.round() as i64
        }
    };
    Ok((Word::Int(micros), end + suffix.len()))
}

fn quoted(rest: &str, at: usize, quote: char) -> Result<(Word, usize), Flaw> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((n, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((Word::Text(text), n + 1)),
            '\\' => match chars.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                Some((_, c @ ('\\' | '"' | '\''))) => text.push(c),
                Some((_, c)) => {
                    return Err(Flaw::new(at + n, format!("\"\\{c}\" means nothing in a text"))
                        .hint("there is \\n, \\t, \\\\, \\\" and \\'"));
                }
                None => break,
            },
            c => text.push(c),
        }
    }
    Err(Flaw::new(at, format!("this text does not end: {quote} is missing")))
}
