//! Sources and sinks, as they are written.

use std::time::Duration;

use super::addresses::{self, address, host};
use super::fields::{Fields, short};
use super::rate::{self, Rate};
use super::spec::{name, schema};
use super::yaml::{Node, Word};
use super::{Fault, Place};
use crate::graph::{Address, Secret, Start};
use crate::schema::Schema;
use crate::window::SPAN_US_MAX;

pub const SOURCES: [&str; 5] = ["mqtt", "amqp", "http", "file", "generator"];
pub const SINKS: [&str; 7] = ["mqtt", "amqp", "webhook", "kv", "flow", "file", "stdout"];
const TOPIC_BYTES_MAX: usize = 1_000;
const MQTT: [&str; 2] = ["mqtts://", "mqtt://"];
const AMQP: [&str; 2] = ["amqps://", "amqp://"];

#[derive(Clone, Debug)]
pub struct SourceSpec {
    pub name: Word,
    /// Its own, or that of the stream. Of a generator that has neither, what it makes says it.
    pub schema: Option<Schema>,
    pub from: FromSpec,
    pub clock: ClockSpec,
    pub host: Option<String>,
    pub place: Place,
}

/// How a source's time goes.
#[derive(Clone, Debug)]
pub struct ClockSpec {
    pub time: Option<Word>,
    pub ahead: Option<Duration>,
    pub idle: Idle,
    /// What is said about a time that is not there.
    pub about: Option<(&'static str, Place)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Nothing is said of it.
    Plain,
    After(Duration),
    Never,
}

#[derive(Clone, Debug)]
pub enum FromSpec {
    Mqtt { topics: Vec<String>, at: Option<Address> },
    Amqp { queue: String, at: Option<Address> },
    Http,
    File { path: String, start: Start },
    Generator { rate: Rate, seed: u64, fields: Vec<(Word, Word)> },
}

#[derive(Clone, Debug)]
pub struct SinkSpec {
    pub name: Word,
    pub input: Word,
    pub to: ToSpec,
    pub host: Option<String>,
}

#[derive(Clone, Debug)]
pub enum ToSpec {
    Mqtt { topic: Word, at: Option<Address> },
    Amqp { exchange: String, key: Word, at: Option<Address> },
    Webhook { url: String, header: Option<(String, Secret)> },
    Kv { key: Word, value: Option<Word> },
    Flow { flow: String },
    File { path: String },
    Stdout,
}

/// `shared` is the stream's schema, and `said` whether it has one, be it a wrong one.
pub fn source(node: &Node, shared: Option<&Schema>, said: bool, faults: &mut Vec<Fault>) -> Option<SourceSpec> {
    let known: Vec<&str> = ["name", "schema", "time", "ahead", "idle", "host"].into_iter().chain(SOURCES).collect();
    let fields = Fields::of(node, "a source", &known, faults)?;
    let name = name(&fields, "a source", faults);
    let own = fields.get("schema").map(|node| schema(node, faults));
    let (clock, host) = (clock(&fields, faults), host(&fields, faults));
    let (how, from) = one_of(&fields, "a source", &SOURCES, faults)?;
    let from = read_source(how, from, faults);
    let generates = matches!(from, Some(FromSpec::Generator { .. }));
    if own.is_none() && !said && !generates {
        let fault = Fault::new(node.place, "nothing says which fields its events have");
        faults.push(fault.hint("give it, or the whole stream, a schema: { meter: text, at: time }"));
    }
    // One whose schema was wrong is not held against another.
    let schema = own.unwrap_or_else(|| shared.cloned());
    let known = schema.is_some() || generates && !said && fields.get("schema").is_none();
    let (name, from) = (name?, from?);
    known.then(|| SourceSpec { name: name.clone(), schema, from, clock, host, place: node.place })
}

fn clock(fields: &Fields<'_>, faults: &mut Vec<Fault>) -> ClockSpec {
    let year = Duration::from_micros(SPAN_US_MAX.unsigned_abs());
    let bounded = |name: &str, least: Duration, faults: &mut Vec<Fault>| {
        let (span, node) = (fields.span(name, faults)?, fields.get(name)?);
        if span < least || span > year {
            let least = mutirao_core::quantity::Span(least);
            faults.push(Fault::new(node.place, format!("{name} is at least {least}, and at most a year")));
        }
        Some(span)
    };
    let ahead = bounded("ahead", Duration::ZERO, faults);
    let never = fields.get("idle").and_then(Node::word).is_some_and(|word| word.text == "never");
    let idle = match never {
        true => Idle::Never,
        false => bounded("idle", Duration::from_secs(1), faults).map_or(Idle::Plain, Idle::After),
    };
    let about = ["ahead", "idle"].into_iter().find_map(|name| Some((name, fields.get(name)?.place)));
    ClockSpec { time: fields.word("time", faults).cloned(), ahead, idle, about }
}

fn one_of<'a>(fields: &Fields<'a>, what: &str, known: &[&str], faults: &mut Vec<Fault>) -> Option<(&'a str, &'a Node)> {
    match fields.among(known).as_slice() {
        [(how, node)] => Some((how.text.as_str(), *node)),
        [] => {
            faults.push(Fault::new(fields.place, format!("{what} is one of {}", known.join(", "))));
            None
        }
        [_, (second, _), ..] => {
            faults.push(Fault::new(second.place, format!("{what} is one of {}, not several", known.join(", "))));
            None
        }
    }
}

fn read_source(how: &str, node: &Node, faults: &mut Vec<Fault>) -> Option<FromSpec> {
    match how {
        "mqtt" => {
            let fields = Fields::of(node, "mqtt", &with_address(&["topic"]), faults)?;
            let at = address(&fields, MQTT, faults);
            let words = fields.words("topic", faults);
            if words.as_ref().is_none_or(Vec::is_empty) {
                faults.push(Fault::new(node.place, "mqtt needs topic").hint("write topic: grid/+/reading"));
            }
            let words = words?;
            words.iter().for_each(|word| topic_filter(word, faults));
            Some(FromSpec::Mqtt { topics: words.into_iter().map(|word| word.text.clone()).collect(), at })
        }
        "amqp" => {
            let fields = Fields::of(node, "amqp", &with_address(&["queue"]), faults)?;
            let at = address(&fields, AMQP, faults);
            Some(FromSpec::Amqp { queue: nonempty(&fields, "queue", "amqp", faults)?, at })
        }
        "http" => Fields::of(node, "http", &[], faults).map(|_| FromSpec::Http),
        "file" => {
            let fields = Fields::of(node, "file", &["path", "start"], faults)?;
            let start = match fields.word("start", faults).map(|word| (word, word.text.as_str())) {
                None | Some((_, "end")) => Start::End,
                Some((_, "beginning")) => Start::Beginning,
                Some((word, text)) => {
                    let what = format!("start is beginning or end, and not \"{}\"", short(text));
                    faults.push(Fault::new(word.place, what));
                    Start::End
                }
            };
            Some(FromSpec::File { path: nonempty(&fields, "path", "file", faults)?, start })
        }
        _ => {
            let fields = Fields::of(node, "generator", &["rate", "repeat", "seed", "fields"], faults)?;
            let seed = fields.figure("seed", 0, u64::MAX, faults).unwrap_or(0);
            let rate = rate::read(&fields, faults);
            let pairs = fields.pairs("fields", faults);
            if fields.get("fields").is_none() {
                let fault = Fault::new(node.place, "a generator needs fields");
                faults.push(fault.hint("write fields: { meter: text(n % 100), volts: 220 + 10 * random1, at: at }"));
            }
            let pairs = pairs?.into_iter().map(|(name, word)| (name.clone(), word.clone())).collect();
            Some(FromSpec::Generator { rate: rate?, seed, fields: pairs })
        }
    }
}

pub fn sink(node: &Node, faults: &mut Vec<Fault>) -> Option<SinkSpec> {
    let known: Vec<&str> = ["name", "from", "host"].into_iter().chain(SINKS).collect();
    let fields = Fields::of(node, "a sink", &known, faults)?;
    let name = name(&fields, "a sink", faults);
    let input = fields.needed("from", "a sink", faults);
    let host = host(&fields, faults);
    let (how, to) = one_of(&fields, "a sink", &SINKS, faults)?;
    let to = read_sink(how, to, faults);
    Some(SinkSpec { name: name?.clone(), input: input?.clone(), to: to?, host })
}

fn read_sink(how: &str, node: &Node, faults: &mut Vec<Fault>) -> Option<ToSpec> {
    Some(match how {
        "mqtt" => {
            let fields = Fields::of(node, "mqtt", &with_address(&["topic"]), faults)?;
            let at = address(&fields, MQTT, faults);
            let topic = fields.needed("topic", "mqtt", faults)?;
            if topic.text.is_empty() || topic.text.len() > TOPIC_BYTES_MAX || topic.text.contains(['+', '#', '\0']) {
                let fault = Fault::new(topic.place, format!("nobody can publish to \"{}\"", short(&topic.text)));
                faults.push(fault.hint("write a topic without + and #, like grid/alarms/{meter}"));
            }
            ToSpec::Mqtt { topic: topic.clone(), at }
        }
        "amqp" => {
            let fields = Fields::of(node, "amqp", &with_address(&["exchange", "key"]), faults)?;
            let at = address(&fields, AMQP, faults);
            let exchange = fields.word("exchange", faults).map(|word| word.text.clone()).unwrap_or_default();
            ToSpec::Amqp { exchange, key: fields.needed("key", "amqp", faults)?.clone(), at }
        }
        "webhook" => {
            let fields = Fields::of(node, "webhook", &["url", "header", "secret"], faults)?;
            let header = addresses::header(&fields, faults);
            let url = fields.needed("url", "webhook", faults)?;
            addresses::web(url, faults);
            ToSpec::Webhook { url: url.text.clone(), header }
        }
        "kv" => {
            let fields = Fields::of(node, "kv", &["key", "value"], faults)?;
            let key = fields.needed("key", "kv", faults)?;
            ToSpec::Kv { key: key.clone(), value: fields.word("value", faults).cloned() }
        }
        "flow" => {
            let fields = Fields::of(node, "flow", &["name"], faults)?;
            ToSpec::Flow { flow: nonempty(&fields, "name", "flow", faults)? }
        }
        "file" => {
            let fields = Fields::of(node, "file", &["path"], faults)?;
            ToSpec::File { path: nonempty(&fields, "path", "file", faults)? }
        }
        _ => {
            Fields::of(node, "stdout", &[], faults)?;
            ToSpec::Stdout
        }
    })
}

fn with_address<'a>(keys: &[&'a str]) -> Vec<&'a str> {
    keys.iter().copied().chain(addresses::KEYS).collect()
}

fn nonempty(fields: &Fields<'_>, name: &str, what: &str, faults: &mut Vec<Fault>) -> Option<String> {
    let word = fields.needed(name, what, faults)?;
    if word.text.trim().is_empty() {
        faults.push(Fault::new(word.place, format!("{name} is empty")));
        return None;
    }
    Some(word.text.clone())
}

/// What MQTT lets one subscribe to: `+` stands for one whole level, `#` for all that follow.
fn topic_filter(word: &Word, faults: &mut Vec<Fault>) {
    let text = word.text.as_str();
    let levels: Vec<&str> = text.split('/').collect();
    let wrong = levels.iter().enumerate().any(|(n, level)| {
        (level.contains('+') && *level != "+") || (level.contains('#') && (*level != "#" || n + 1 != levels.len()))
    });
    if wrong || text.is_empty() || text.len() > TOPIC_BYTES_MAX || text.contains('\0') {
        let fault = Fault::new(word.place, format!("nobody can subscribe to \"{}\"", short(text)));
        faults.push(fault.hint("+ stands for one whole level, # for all that follow: grid/+/reading, grid/#"));
    }
}
