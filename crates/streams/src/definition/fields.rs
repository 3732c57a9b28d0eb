//! A mapping, taken apart field by field. What is wrong is noted, and reading goes on.

use std::str::FromStr;
use std::time::Duration;

use mutirao_core::quantity::Span;

use super::yaml::{Content, Node, Word};
use super::{Fault, Place};

pub struct Fields<'a> {
    pub place: Place,
    fields: &'a [(Word, Node)],
}

impl<'a> Fields<'a> {
    /// Of a node that should be one; names that are none of `known` are faults.
    pub fn of(node: &'a Node, what: &str, known: &[&str], faults: &mut Vec<Fault>) -> Option<Self> {
        let fields = match &node.what {
            Content::Fields(fields) => fields.as_slice(),
            // `stdout:` says the same as `stdout: {}`.
            Content::Nothing => &[],
            _ => {
                let fault = Fault::new(node.place, format!("{what} is a list of fields, and this is {}", node.shown()));
                faults.push(match known {
                    [] => fault.hint("write {}"),
                    known => fault.hint(format!("it has {}", known.join(", "))),
                });
                return None;
            }
        };
        for (name, _) in fields {
            if !known.contains(&name.text.as_str()) {
                let fault = Fault::new(name.place, format!("{what} has no field \"{}\"", short(&name.text)));
                faults.push(fault.instead(&name.text, known.iter().copied()));
            }
        }
        Some(Self { place: node.place, fields })
    }

    pub fn get(&self, name: &str) -> Option<&'a Node> {
        self.fields.iter().find(|(key, _)| key.text == name).map(|(_, node)| node)
    }

    /// The fields that are there, of these.
    pub fn among(&self, names: &[&str]) -> Vec<(&'a Word, &'a Node)> {
        let among = self.fields.iter().filter(|(key, _)| names.contains(&key.text.as_str()));
        among.map(|(key, node)| (key, node)).collect()
    }

    pub fn word(&self, name: &str, faults: &mut Vec<Fault>) -> Option<&'a Word> {
        let node = self.get(name)?;
        let word = node.word();
        if word.is_none() {
            faults.push(Fault::new(node.place, format!("{name} is a single value, and this is {}", node.shown())));
        }
        word
    }

    /// One that must be there.
    pub fn needed(&self, name: &str, what: &str, faults: &mut Vec<Fault>) -> Option<&'a Word> {
        if self.get(name).is_none() {
            faults.push(Fault::new(self.place, format!("{what} needs {name}")));
        }
        self.word(name, faults)
    }

    /// A word, or a list of words.
    pub fn words(&self, name: &str, faults: &mut Vec<Fault>) -> Option<Vec<&'a Word>> {
        let node = self.get(name)?;
        match &node.what {
            Content::Word(word) => Some(vec![word]),
            Content::List(items) => {
                let words: Vec<&Word> = items.iter().filter_map(Node::word).collect();
                if words.len() < items.len() {
                    faults.push(Fault::new(node.place, format!("{name} is a list of single values")));
                }
                Some(words)
            }
            _ => {
                faults.push(Fault::new(node.place, format!("{name} is a name or a list of names")));
                None
            }
        }
    }

    /// Names and what stands for each.
    pub fn pairs(&self, name: &str, faults: &mut Vec<Fault>) -> Option<Vec<(&'a Word, &'a Word)>> {
        let node = self.get(name)?;
        let Content::Fields(fields) = &node.what else {
            let what = format!("{name} is a list of fields, and this is {}", node.shown());
            faults.push(Fault::new(node.place, what).hint(format!("write {name}: {{ name: expression }}")));
            return None;
        };
        let mut pairs: Vec<(&Word, &Word)> = Vec::with_capacity(fields.len());
        let mut cut = false;
        for (key, value) in fields {
            match (value.word(), pairs.last()) {
                (Some(word), _) => pairs.push((key, word)),
                // `{ a: least(b, 1) }`: YAML takes `least(b` and a field `1)` out of that.
                (None, Some((_, begun))) if value.what == Content::Nothing && is_open(&begun.text) => {
                    let what = format!("a comma between {{ }} ends it, and leaves \"{}\"", short(&begun.text));
                    faults.push(Fault::new(begun.place, what).hint("put the whole expression in quotes"));
                    pairs.pop();
                    cut = true;
                }
                // More of what was cut off.
                (None, _) if value.what == Content::Nothing && cut => {}
                (None, _) => {
                    faults.push(Fault::new(value.place, format!("\"{}\" is {}", short(&key.text), value.shown())));
                }
            }
        }
        (!cut).then_some(pairs)
    }

    pub fn list(&self, name: &str, faults: &mut Vec<Fault>) -> &'a [Node] {
        match self.get(name).map(|node| (node, &node.what)) {
            None | Some((_, Content::Nothing)) => &[],
            Some((_, Content::List(items))) => items,
            Some((node, _)) => {
                let what = format!("{name} is a list, and this is {}", node.shown());
                faults.push(Fault::new(node.place, what).hint("begin each with a dash: - name: …"));
                &[]
            }
        }
    }

    /// A number, time or size between bounds.
    pub fn figure<T>(&self, name: &str, least: T, most: T, faults: &mut Vec<Fault>) -> Option<T>
    where
        T: FromStr + PartialOrd + std::fmt::Display,
    {
        let word = self.word(name, faults)?;
        match word.text.replace('_', "").parse::<T>() {
            Ok(figure) if figure >= least && figure <= most => Some(figure),
            _ => {
                let what = format!("{name} is between {least} and {most}, and not \"{}\"", short(&word.text));
                faults.push(Fault::new(word.place, what));
                None
            }
        }
    }

    pub fn span(&self, name: &str, faults: &mut Vec<Fault>) -> Option<Duration> {
        let word = self.word(name, faults)?;
        span(word, faults)
    }
}

/// A duration; a bare number is refused, for nobody can tell whether it is seconds.
pub fn span(word: &Word, faults: &mut Vec<Fault>) -> Option<Duration> {
    let fault = match word.text.parse::<f64>() {
        Ok(figure) if figure != 0.0 => Fault::new(word.place, format!("{} of what?", short(&word.text)))
            .hint(format!("write {0}s or {0}ms", figure)),
        _ => match word.text.parse::<Span>() {
            Ok(span) => return Some(span.0),
            Err(error) => Fault::new(word.place, error.to_string()),
        },
    };
    faults.push(fault);
    None
}

fn is_open(text: &str) -> bool {
    text.matches('(').count() > text.matches(')').count()
}

/// As much of what somebody wrote as is worth repeating.
pub fn short(text: &str) -> String {
    match text.chars().count() {
        0..=60 => text.to_owned(),
        _ => text.chars().take(60).chain(['…']).collect(),
    }
}
