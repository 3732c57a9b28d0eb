//! Sources and sinks against the schemas of what they give and take.

use std::sync::Arc;
use std::time::Duration;

use super::{compiled, field, named, times};
use crate::definition::Fault;
use crate::definition::ends::{ClockSpec, FromSpec, Idle, SinkSpec, SourceSpec, ToSpec};
use crate::definition::fields::short;
use crate::definition::yaml::Word;
use crate::expression::Expression;
use crate::graph::{From, Piece, Port, Sink, Source, Template, To, generator_schema};
use crate::schema::{Field, Kind, Schema};

/// Where a source does not say it.
const AHEAD: Duration = Duration::from_secs(3_600);
const IDLE: Duration = Duration::from_secs(30);

pub fn source(spec: &SourceSpec, faults: &mut Vec<Fault>) -> Option<Source> {
    let (from, schema) = match &spec.from {
        FromSpec::Mqtt { topics, at } => (From::Mqtt { topics: topics.clone(), at: at.clone() }, spec.schema.clone()),
        FromSpec::Amqp { queue, at } => (From::Amqp { queue: queue.clone(), at: at.clone() }, spec.schema.clone()),
        FromSpec::Http => (From::Http, spec.schema.clone()),
        FromSpec::File { path, start } => (From::File { path: path.clone(), start: *start }, spec.schema.clone()),
        FromSpec::Generator { rate, seed, fields } => {
            let (made, schema) = generated(spec, fields, faults)?;
            (From::Generator { rate: rate.clone(), seed: *seed, fields: made }, Some(schema))
        }
    };
    let schema = Arc::new(schema?);
    let ClockSpec { time, ahead, idle, .. } = &spec.clock;
    let time = match time {
        Some(word) => Some(timed(word, &schema, faults)?),
        None => None,
    };
    let idle = match idle {
        Idle::Plain => Some(IDLE),
        Idle::After(idle) => Some(*idle),
        Idle::Never => None,
    };
    let (name, host) = (spec.name.text.clone(), spec.host.clone());
    Some(Source { name, schema, from, time, ahead: ahead.unwrap_or(AHEAD), idle, pace: times::PACE_MAX, host })
}

fn timed(word: &Word, schema: &Schema, faults: &mut Vec<Fault>) -> Option<Expression> {
    let time = compiled(word, schema, faults)?;
    if time.kind() != Kind::Time {
        let what = format!("an event's time is of kind time, and this is {}", time.kind());
        let hint = match time.kind() {
            Kind::Int => {
                format!("of microseconds write time({0}), of milliseconds time({0} * 1000)", short(&word.text))
            }
            Kind::Text => format!("write time({}, time(0))", short(&word.text)),
            _ => "write a field of kind time".to_owned(),
        };
        faults.push(Fault::new(word.place, what).hint(hint));
        return None;
    }
    Some(time)
}

/// What a generator makes, in the order of the fields of its schema.
fn generated(spec: &SourceSpec, fields: &[(Word, Word)], faults: &mut Vec<Fault>) -> Option<(Vec<Expression>, Schema)> {
    let (scope, before) = (generator_schema(), faults.len());
    let made: Vec<Option<Expression>> = fields.iter().map(|(_, word)| compiled(word, &scope, faults)).collect();
    let Some(schema) = &spec.schema else {
        let made = made.into_iter().collect::<Option<Vec<Expression>>>()?;
        let fields: Vec<Field> = fields
            .iter()
            .zip(&made)
            .map(|((name, _), made)| Field { name: name.text.clone(), kind: made.kind() })
            .collect();
        return match Schema::checked(fields) {
            Ok(schema) => Some((made, schema)),
            Err(error) => {
                faults.push(Fault::new(spec.place, error.to_string()));
                None
            }
        };
    };
    for (name, _) in fields {
        named(&name.text, name.place, schema, faults);
    }
    let mut ordered = Vec::with_capacity(schema.len());
    for wanted in &schema.fields {
        let found = fields.iter().zip(&made).find(|((name, _), _)| name.text == wanted.name);
        match found {
            None => {
                let what = format!("the generator makes no \"{}\", which the schema has", wanted.name);
                faults.push(Fault::new(spec.place, what));
            }
            Some(((_, word), Some(made))) if made.kind() != wanted.kind => {
                let what = format!("\"{}\" is {}, and this is {}", wanted.name, wanted.kind, made.kind());
                faults.push(Fault::new(word.place, what).hint(format!("write {}({})", wanted.kind, short(&word.text))));
            }
            Some((_, made)) => ordered.extend(made.clone()),
        }
    }
    (faults.len() == before).then(|| (ordered, schema.clone()))
}

pub fn sink(spec: &SinkSpec, input: Port, schema: Arc<Schema>, faults: &mut Vec<Fault>) -> Option<Sink> {
    let to = match &spec.to {
        ToSpec::Mqtt { topic, at } => To::Mqtt { topic: template(topic, &schema, faults)?, at: at.clone() },
        ToSpec::Amqp { exchange, key, at } => {
            To::Amqp { exchange: exchange.clone(), key: template(key, &schema, faults)?, at: at.clone() }
        }
        ToSpec::Webhook { url, header } => To::Webhook { url: url.clone(), header: header.clone() },
        ToSpec::Kv { key, value } => {
            let key = template(key, &schema, faults);
            let value = match value {
                Some(word) => Some(field(word, &schema, faults)?),
                None => None,
            };
            To::Kv { key: key?, value }
        }
        ToSpec::Flow { flow } => To::Flow { flow: flow.clone() },
        ToSpec::File { path } => To::File { path: path.clone() },
        ToSpec::Stdout => To::Stdout,
    };
    Some(Sink { name: spec.name.text.clone(), input, schema, to, host: spec.host.clone() })
}

/// A file has one writer: of two on a host, each would write over what the other wrote.
pub fn files(sinks: &[SinkSpec], faults: &mut Vec<Fault>) {
    for (n, sink) in sinks.iter().enumerate() {
        let ToSpec::File { path } = &sink.to else { continue };
        let may_meet = |other: &SinkSpec| other.host.is_none() || sink.host.is_none() || other.host == sink.host;
        let same =
            |other: &&SinkSpec| matches!(&other.to, ToSpec::File { path: its } if its == path) && may_meet(other);
        if let Some(other) = sinks[..n].iter().find(same) {
            let what = format!("sink \"{}\" writes to {} too", other.name.text, short(path));
            faults.push(Fault::new(sink.name.place, what).hint("give each a file of its own"));
        }
    }
}

/// `grid/alarms/{meter}`
fn template(word: &Word, schema: &Schema, faults: &mut Vec<Fault>) -> Option<Template> {
    let (mut pieces, mut fine) = (Vec::new(), true);
    let (text, mut done) = (word.text.as_str(), 0);
    while let Some(open) = text[done..].find('{').map(|at| done + at) {
        let Some(close) = text[open..].find('}').map(|at| open + at) else {
            faults.push(Fault::new(word.place_of(open), "a { is not closed").hint("a field is written {meter}"));
            return None;
        };
        if open > done {
            pieces.push(Piece::Text(text[done..open].to_owned()));
        }
        match named(&text[open + 1..close], word.place_of(open + 1), schema, faults) {
            Some(field) => pieces.push(Piece::Field(field)),
            None => fine = false,
        }
        done = close + 1;
    }
    if done < text.len() {
        pieces.push(Piece::Text(text[done..].to_owned()));
    }
    if text.is_empty() {
        faults.push(Fault::new(word.place, "there is nothing here").hint("write it like grid/alarms/{meter}"));
        return None;
    }
    fine.then(|| Template { text: text.to_owned(), pieces })
}
