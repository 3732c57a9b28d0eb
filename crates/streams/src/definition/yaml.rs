//! YAML as a tree, each piece with its place.

use std::collections::HashMap;

use saphyr::{LoadableYamlNode, MarkedYaml, Marker, Scalar, YamlData};
use saphyr_parser::{Event, Parser};

use super::{Fault, Place};

/// How deep a definition may be.
const DEPTH_MAX: usize = 20;
/// The most pieces of a text, those that references (`*like-this`) stand for each time.
const PIECES_MAX: usize = 1 << 18;

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub place: Place,
    pub what: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Nothing,
    /// Anything that stands alone: a text, a number, a bool.
    Word(Word),
    List(Vec<Node>),
    Fields(Vec<(Word, Node)>),
}

/// A scalar as it is written, so that an expression can be `1` or `true` too.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    pub text: String,
    pub place: Place,
    /// Where its lines begin; a text that was folded or has escapes in it is only known to begin somewhere.
    lines: Vec<Place>,
}

impl Word {
    /// Where a byte of it stands, as well as that is known.
    pub fn place_of(&self, byte: usize) -> Place {
        let before = &self.text[..self.text.floor_char_boundary(byte)];
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        match self.lines.get(line) {
            Some(start) => Place { line: start.line, column: start.column + column },
            None => self.place,
        }
    }
}

impl Node {
    pub fn word(&self) -> Option<&Word> {
        match &self.what {
            Content::Word(word) => Some(word),
            _ => None,
        }
    }

    pub fn field(&self, name: &str) -> Option<&Node> {
        match &self.what {
            Content::Fields(fields) => fields.iter().find(|(key, _)| key.text == name).map(|(_, node)| node),
            _ => None,
        }
    }

    /// For whoever expected something else.
    pub fn shown(&self) -> &'static str {
        match &self.what {
            Content::Nothing => "nothing",
            Content::Word(_) => "a single value",
            Content::List(_) => "a list",
            Content::Fields(_) => "a list of fields",
        }
    }
}

/// The documents of a text that have something in them.
pub fn read(text: &str) -> Result<Vec<Node>, Fault> {
    bounded(text)?;
    let documents = MarkedYaml::load_from_str(text).map_err(|error| {
        let what = match error.info() {
            "duplicated key in mapping" => "the same field stands there twice".to_owned(),
            info => format!("it is not YAML: {info}"),
        };
        let line = text.lines().nth(error.marker().line().saturating_sub(1)).unwrap_or_default();
        let fault = Fault::new(place(error.marker()), what);
        match () {
            () if line.contains(" ? ") => fault.hint("in an expression, write if(condition, this, that)"),
            // `{ a: least(b, 1), c: least(d, 1) }` has two fields `1)`.
            () if line.contains('{') && line.contains('(') => {
                fault.hint("between { }, put an expression with a comma or a bracket in quotes")
            }
            () => fault,
        }
    })?;
    let source = Source { chars: text.chars().collect(), lines: text.lines().collect() };
    let nodes = documents.iter().map(|document| source.node(document, 0));
    Ok(nodes.collect::<Result<Vec<Node>, Fault>>()?.into_iter().filter(|node| node.what != Content::Nothing).collect())
}

/// Looks through a text before a tree is made of it: that is done by functions that call themselves for each level, and copies
/// what a reference stands for.
fn bounded(text: &str) -> Result<(), Fault> {
    // Of each thing that may be referred to, how many pieces it has; and of those that are not over, how many there were before.
    let (mut sizes, mut open) = (HashMap::new(), Vec::new());
    let mut pieces = 0usize;
    for event in Parser::new_from_str(text) {
        // What is wrong with the text is told by whoever reads it.
        let Ok((event, span)) = event else { return Ok(()) };
        match event {
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                open.push((anchor, pieces));
                pieces += 1;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((anchor, before)) = open.pop().filter(|(anchor, _)| *anchor > 0) {
                    sizes.insert(anchor, pieces - before);
                }
            }
            Event::Scalar(..) => pieces += 1,
            Event::Alias(anchor) => pieces = pieces.saturating_add(sizes.get(&anchor).copied().unwrap_or(1)),
            _ => {}
        }
        if open.len() > DEPTH_MAX + 1 {
            return Err(Fault::new(place(&span.start), format!("more than {DEPTH_MAX} levels stand in each other")));
        }
        if pieces > PIECES_MAX {
            return Err(Fault::new(place(&span.start), format!("more than {PIECES_MAX} pieces")));
        }
    }
    Ok(())
}

fn place(marker: &Marker) -> Place {
    Place { line: marker.line().max(1), column: marker.col() + 1 }
}

struct Source<'a> {
    chars: Vec<char>,
    lines: Vec<&'a str>,
}

impl Source<'_> {
    fn node(&self, yaml: &MarkedYaml<'_>, depth: usize) -> Result<Node, Fault> {
        let place = place(&yaml.span.start);
        if depth > DEPTH_MAX {
            return Err(Fault::new(place, format!("more than {DEPTH_MAX} levels stand in each other")));
        }
        let what = match &yaml.data {
            YamlData::Value(Scalar::Null) => Content::Nothing,
            YamlData::Value(scalar) => Content::Word(self.word(yaml, scalar)),
            YamlData::Sequence(items) => {
                Content::List(items.iter().map(|item| self.node(item, depth + 1)).collect::<Result<_, _>>()?)
            }
            YamlData::Mapping(fields) => {
                let field = |(key, value): (&MarkedYaml<'_>, &MarkedYaml<'_>)| {
                    let key = self.node(key, depth + 1)?;
                    match key.what {
                        Content::Word(word) => Ok((word, self.node(value, depth + 1)?)),
                        _ => Err(Fault::new(key.place, "the name of a field must be a text")),
                    }
                };
                Content::Fields(fields.iter().map(field).collect::<Result<_, _>>()?)
            }
            YamlData::Tagged(..) => {
                let fault = Fault::new(place, "tags (!like-this) mean nothing here");
                return Err(fault.hint("in an expression, write not instead of !, or put it in quotes"));
            }
            _ => return Err(Fault::new(place, "this cannot be read")),
        };
        Ok(Node { place, what })
    }

    fn word(&self, yaml: &MarkedYaml<'_>, scalar: &Scalar<'_>) -> Word {
        let (start, end) = (&yaml.span.start, &yaml.span.end);
        let at = place(start);
        let text = match scalar {
            Scalar::String(text) => text.as_ref().to_owned(),
            // As it was written: 1.50 and not 1.5.
            _ => {
                let written = self.chars.get(start.index()..end.index()).unwrap_or_default();
                written.iter().collect::<String>().trim().to_owned()
            }
        };
        let lines = match self.chars.get(start.index()) {
            Some('"' | '\'') if !text.contains('\n') => vec![Place { column: at.column + 1, ..at }],
            _ if start.line() == end.line() => vec![at],
            _ => self.block(&text, at),
        };
        Word { text, place: at, lines }
    }

    /// Where the lines of a block begin, if they stand there as they are in the text.
    fn block(&self, text: &str, at: Place) -> Vec<Place> {
        let source = |n: usize| self.lines.get(at.line - 1 + n).and_then(|line| line.get(at.column - 1..));
        let same = text.lines().enumerate().all(|(n, line)| line.is_empty() || source(n) == Some(line));
        match same {
            true => text.lines().enumerate().map(|(n, _)| Place { line: at.line + n, column: at.column }).collect(),
            false => Vec::new(),
        }
    }
}
