//! Windows as they are written: `{ slide: 5m, every: 10s, by: at }`.

use std::time::Duration;

use super::fields::{Fields, short, span};
use super::yaml::Word;
use super::{Fault, Place};
use crate::schema::{Kind, Schema};
use crate::window::{COUNT_MAX, Limits, SLIDES_MAX, SPAN_US_MAX, Window};

#[derive(Clone, Debug)]
pub struct WindowSpec {
    pub place: Place,
    pub extent: Extent,
    pub aggregates: Vec<(Word, Word)>,
    pub limits: Limits,
}

#[derive(Clone, Debug)]
pub enum Extent {
    Count { size: u64, every: u64 },
    Time { size: Duration, every: Duration, lateness: Duration, by: Word },
}

/// One that says how far it reaches, whatever else is wrong with it.
pub fn read(fields: &Fields<'_>, faults: &mut Vec<Fault>) -> Option<WindowSpec> {
    const KNOWN: [&str; 9] =
        ["jump", "slide", "every", "by", "lateness", "keys_max", "open_max", "events_max", "bytes_max"];
    let aggregates = aggregates(fields, faults);
    let node = fields.get("window")?;
    let window = Fields::of(node, "a window", &KNOWN, faults)?;
    let plain = Limits::default();
    let limits = Limits {
        keys_max: window.figure("keys_max", 1, 100_000_000, faults).unwrap_or(plain.keys_max),
        open_max: window.figure("open_max", 1, 1_000_000, faults).unwrap_or(plain.open_max),
        bytes_max: window.figure("bytes_max", 1, 1 << 40, faults).unwrap_or(plain.bytes_max),
        events_max: window.figure("events_max", 1, 1_000_000_000, faults).unwrap_or(plain.events_max),
    };
    let extent = extent(&window, faults);
    Some(WindowSpec { place: node.place, extent: extent?, aggregates: aggregates?, limits })
}

fn aggregates(fields: &Fields<'_>, faults: &mut Vec<Fault>) -> Option<Vec<(Word, Word)>> {
    let pairs = fields.pairs("aggregate", faults);
    if fields.get("aggregate").is_none() {
        let fault = Fault::new(fields.place, "a window makes nothing without aggregates");
        faults.push(fault.hint("write aggregate: { events: count() }"));
    }
    if pairs.as_ref().is_some_and(Vec::is_empty) {
        let place = fields.get("aggregate").map_or(fields.place, |node| node.place);
        faults.push(Fault::new(place, "a window makes nothing without aggregates"));
    }
    Some(pairs?.into_iter().map(|(name, text)| (name.clone(), text.clone())).collect())
}

/// One side of a window: so many events, or so long.
enum Reach {
    Events(u64),
    Span(Duration),
}

fn extent(window: &Fields<'_>, faults: &mut Vec<Fault>) -> Option<Extent> {
    let sizes = window.among(&["jump", "slide"]);
    let (how, size) = match sizes.as_slice() {
        [(how, node)] => (how.text.as_str(), node),
        [] => {
            let fault = Fault::new(window.place, "nothing says how large the window is");
            faults.push(fault.hint("write jump: 1m, jump: 100 events, or slide: 5m with every: 10s"));
            return None;
        }
        [_, (second, _), ..] => {
            faults.push(Fault::new(second.place, "a window jumps or slides, not both"));
            return None;
        }
    };
    let word = window.word(how, faults)?;
    let size_at = size.place;
    let size = reach(word, faults)?;
    let every_word = window.word("every", faults);
    let every = match (how, every_word) {
        ("jump", None) => None,
        ("jump", Some(every)) => {
            let fault = Fault::new(every.place, "a window that jumps moves by its own size");
            faults.push(fault.hint("leave every out, or write slide instead of jump"));
            return None;
        }
        (_, Some(every)) => Some((every.place, reach(every, faults)?)),
        (_, None) => {
            let fault = Fault::new(window.place, "nothing says how far the window slides");
            faults.push(fault.hint("write every: 10s, or every: 1 events; a window that does not overlap is jump"));
            return None;
        }
    };
    let moves = every.as_ref().map_or(size_at, |(place, _)| *place);
    match (size, every.map(|(_, every)| every)) {
        (Reach::Events(size), every) => {
            let every = match every {
                None => size,
                Some(Reach::Events(every)) => every,
                Some(Reach::Span(_)) => {
                    faults.push(Fault::new(moves, "size is in events, and every in time"));
                    return None;
                }
            };
            for name in ["by", "lateness"] {
                if let Some(node) = window.get(name) {
                    let fault = Fault::new(node.place, format!("a window by count has no {name}"));
                    faults.push(fault.hint("that is for windows by time: jump: 1m"));
                }
            }
            counted(size, every, size_at, moves, faults)
        }
        (Reach::Span(size), every) => {
            let every = match every {
                None => size,
                Some(Reach::Span(every)) => every,
                Some(Reach::Events(_)) => {
                    faults.push(Fault::new(moves, "size is in time, and every in events"));
                    return None;
                }
            };
            let lateness = window.span("lateness", faults).unwrap_or_default();
            let by = window.word("by", faults);
            if window.get("by").is_none() {
                let fault = Fault::new(window.place, "nothing says which field is an event's time");
                faults.push(fault.hint("write by: and a field of kind time"));
            }
            timed(size, every, lateness, by?, size_at, moves, faults)
        }
    }
}

/// `100 events`, `1m`.
fn reach(word: &Word, faults: &mut Vec<Fault>) -> Option<Reach> {
    let text = word.text.trim();
    let count = text.strip_suffix("events").or_else(|| text.strip_suffix("event")).map(str::trim);
    if let Some(count) = count {
        return match count.replace('_', "").parse() {
            Ok(count) => Some(Reach::Events(count)),
            Err(_) => {
                faults.push(Fault::new(word.place, format!("\"{}\" is no number of events", short(text))));
                None
            }
        };
    }
    if let Ok(figure) = text.parse::<u64>() {
        let fault = Fault::new(word.place, format!("{figure} of what?"));
        faults.push(fault.hint(format!("write {figure} events, or {figure}s")));
        return None;
    }
    span(word, faults).map(Reach::Span)
}

fn counted(size: u64, every: u64, at: Place, moves: Place, faults: &mut Vec<Fault>) -> Option<Extent> {
    let fault = if size == 0 {
        Fault::new(at, "a window of no events").hint("write 1 events or more")
    } else if size > COUNT_MAX {
        Fault::new(at, format!("a window of {size} events is too large, the most is {COUNT_MAX}"))
    } else if every == 0 {
        Fault::new(moves, "a window that does not move").hint("write every: 1 events or more")
    } else if every > size {
        Fault::new(moves, "a window that moves further than it is long would miss events")
            .hint(format!("write at most {size} events"))
    } else {
        return Some(Extent::Count { size, every });
    };
    faults.push(fault);
    None
}

fn timed(
    size: Duration,
    every: Duration,
    lateness: Duration,
    by: &Word,
    at: Place,
    moves: Place,
    faults: &mut Vec<Fault>,
) -> Option<Extent> {
    let most = Duration::from_micros(SPAN_US_MAX.unsigned_abs());
    let fault = if size < Duration::from_micros(1) {
        Fault::new(at, "a window of no time").hint("write a time like 1m")
    } else if size > most || lateness > most {
        Fault::new(at, "a window, or its lateness, is longer than a year")
    } else if every < Duration::from_micros(1) {
        Fault::new(moves, "a window that does not move").hint("write a time like every: 10s")
    } else if every > size {
        Fault::new(moves, "a window that moves further than it is long would miss events")
            .hint(format!("write at most {}", mutirao_core::quantity::Span(size)))
    } else if size.as_micros().div_ceil(every.as_micros()) > u128::from(SLIDES_MAX.unsigned_abs()) {
        let windows = size.as_micros().div_ceil(every.as_micros());
        let least = Duration::from_micros(size.as_micros().div_ceil(u128::from(SLIDES_MAX.unsigned_abs())) as u64);
        Fault::new(moves, format!("an event would be in {windows} windows, the most is {SLIDES_MAX}"))
            .hint(format!("write every: {} or more", mutirao_core::quantity::Span(least)))
    } else {
        return Some(Extent::Time { size, every, lateness, by: by.clone() });
    };
    faults.push(fault);
    None
}

impl Extent {
    /// For events of this schema. Nothing where it names a field that is none, or not of kind time.
    pub fn window(&self, schema: &Schema, faults: &mut Vec<Fault>) -> Option<Window> {
        let micros = |span: &Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        match self {
            Extent::Count { size, every } => Some(Window::Count { size: *size, every: *every }),
            Extent::Time { size, every, lateness, by } => Some(Window::Time {
                field: time_field(by, schema, faults)?,
                size_us: micros(size),
                every_us: micros(every),
                lateness_us: micros(lateness),
            }),
        }
    }
}

fn time_field(by: &Word, schema: &Schema, faults: &mut Vec<Fault>) -> Option<usize> {
    let times = || schema.fields.iter().filter(|field| field.kind == Kind::Time).map(|field| field.name.as_str());
    match schema.index(&by.text) {
        Some(field) if schema.fields[field].kind == Kind::Time => Some(field),
        Some(field) => {
            let kind = schema.fields[field].kind;
            let fault = Fault::new(by.place, format!("\"{}\" is {kind}, and a window by time needs a time", by.text));
            faults.push(match times().next() {
                Some(time) => fault.hint(format!("there is {time}")),
                None => fault.hint("make one with add: { at: time(micros) }"),
            });
            None
        }
        None => {
            let fault = Fault::new(by.place, format!("there is no field \"{}\"", short(&by.text)));
            faults.push(fault.instead(&by.text, schema.names()));
            None
        }
    }
}
