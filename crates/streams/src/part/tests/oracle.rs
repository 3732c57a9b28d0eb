//! A log read row by row, and a stage run event by event: slow, plain, and shared with nothing that it is compared with but the
//! form of a record and the JSON of an event.

use std::collections::BTreeMap;

use crate::batch::{Batch, Value, json};
use crate::expression::{naive, syntax};
use crate::graph::{Does, Graph, Port};
use crate::mark::Origin;
use crate::operator;
use crate::record::{self, Record};
use crate::reference::{Step, Word, run};
use crate::schema::{Kind, Schema};
use crate::wire::What;

/// What a log says, each event once, each with who said it.
pub fn words(graph: &Graph, log: &[Vec<u8>]) -> Vec<(Port, Word)> {
    let mut words = Vec::new();
    let mut times: BTreeMap<u32, i64> = BTreeMap::new();
    // By upstream and writer, the number that comes next.
    let mut next: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    let mut epochs: BTreeMap<u32, u64> = BTreeMap::new();
    let tell = |upstream: u32, time: i64, times: &mut BTreeMap<u32, i64>, words: &mut Vec<(Port, Word)>| {
        let before = times.entry(upstream).or_insert(i64::MIN);
        if time > *before {
            *before = time;
            words.push((Port::of_number(upstream), Word::Time(time)));
        }
    };
    for bytes in log {
        let rows = match record::read(bytes).unwrap() {
            Record::Tick(tick) => {
                tell(tick.upstream, tick.time, &mut times, &mut words);
                continue;
            }
            Record::Rows(rows) => rows,
        };
        let (header, port) = (&rows.header, Port::of_number(rows.header.upstream));
        let writer = match header.origin {
            Origin::Fixed => 0,
            Origin::Free(writer) => writer,
            Origin::Epoch(epoch) => {
                let newest = epochs.entry(header.upstream).or_insert(epoch);
                if epoch < *newest {
                    continue;
                }
                *newest = epoch;
                epoch
            }
        };
        let next = next.entry((header.upstream, writer)).or_insert(0);
        assert!(header.first <= *next, "a gap: {} to {} of {port:?}", *next, header.first);
        let events = rows.events(&graph.flows(port)).unwrap();
        for row in 0..=header.rows as usize {
            let number = header.first + row as u64;
            for (_, time) in header.watermarks.iter().filter(|(before, _)| *before == number) {
                tell(header.upstream, *time, &mut times, &mut words);
            }
            if row < events.rows() && number == *next {
                *next += 1;
                words.push((port, Word::Event(events.row(row))));
            }
        }
    }
    words
}

/// What a stage says at each of its ports, given what it hears.
pub fn stage(graph: &Graph, stage: usize, heard: &[(Port, Word)]) -> BTreeMap<Port, Vec<Word>> {
    let stage = &graph.stages[stage];
    let tests: Vec<_> = stage.operators.iter().map(|n| closure(graph, *n)).collect();
    let makes: Vec<_> = stage.operators.iter().map(|n| maker(graph, *n)).collect();
    let mut steps: Vec<Step<'_>> = stage.inputs.iter().map(|_| Step::Source).collect();
    let mut last = 0;
    let mut late = None;
    for (place, n) in stage.operators.iter().enumerate() {
        let operator = &graph.operators[*n];
        let step = match &operator.does {
            Does::Filter(_) => Step::Filter { of: last, test: &tests[place] },
            Does::Map(_) => Step::Map { of: last, make: &makes[place] },
            Does::KeyBy(_) => continue,
            Does::Union => Step::Union { of: (0..stage.inputs.len()).collect() },
            Does::Window(grouping) => {
                late = Some((*n, steps.len()));
                Step::Window { of: last, grouping: grouping.clone(), input: (*operator.input).clone() }
            }
        };
        last = steps.len();
        steps.push(step);
    }
    let place = |port: &Port| stage.inputs.iter().position(|input| input == port);
    let given: Vec<(usize, Word)> =
        heard.iter().filter_map(|(port, word)| Some((place(port)?, word.clone()))).collect();
    let said = run(&steps, &given);
    let of = |step: usize, wanted: operator::Port| {
        said[step].iter().filter(|(port, _)| *port == wanted).map(|(_, word)| word.clone()).collect::<Vec<Word>>()
    };
    let output = Port::Operator(*stage.operators.last().unwrap());
    let main = if last < stage.inputs.len() {
        given.into_iter().map(|(_, word)| word).collect()
    } else {
        of(last, operator::Port::Main)
    };
    let mut all = BTreeMap::from([(output, main)]);
    if let Some((n, step)) = late {
        all.insert(Port::Late(n), of(step, operator::Port::Late));
    }
    all
}

fn value(text: &str, kind: Kind, schema: &Schema, event: &[Value]) -> Value {
    let field = |name: &str| event[schema.index(name).unwrap()].clone();
    match (naive::value(&syntax::parse(text).unwrap(), &field), kind) {
        (Value::Int(value), Kind::Float) => Value::Float(value as f64),
        (value, _) => value,
    }
}

fn closure(graph: &Graph, n: usize) -> impl Fn(&[Value]) -> bool {
    let operator = graph.operators[n].clone();
    move |event: &[Value]| match &operator.does {
        Does::Filter(test) => value(test.text(), Kind::Bool, &operator.input, event) == Value::Bool(true),
        _ => true,
    }
}

fn maker(graph: &Graph, n: usize) -> impl Fn(&[Value]) -> Vec<Value> {
    let operator = graph.operators[n].clone();
    move |event: &[Value]| match &operator.does {
        Does::Map(fields) => {
            let kinds = operator.output.fields.iter().map(|field| field.kind);
            fields.iter().zip(kinds).map(|(made, kind)| value(made.text(), kind, &operator.input, event)).collect()
        }
        _ => event.to_vec(),
    }
}

/// Events as lines of JSON.
pub fn lines<'a>(graph: &Graph, port: Port, words: impl IntoIterator<Item = &'a Word>) -> Vec<String> {
    let mut lines = Vec::new();
    for word in words {
        if let Word::Event(event) = word {
            let mut batch = Batch::new(graph.flows(port));
            batch.push_row(event).unwrap();
            let mut line = Vec::new();
            json::write(&batch, &mut line);
            lines.push(String::from_utf8(line).unwrap().trim_end().to_owned());
        }
    }
    lines
}

/// What is wrong with what a log holds of a port, given what ought to have been said there.
pub fn differs(graph: &Graph, from: Port, to: What, found: &[(Port, Word)], wanted: &[Word]) -> Option<String> {
    let name = graph.port(from);
    let found: Vec<&Word> = found.iter().filter(|(port, _)| *port == from).map(|(_, word)| word).collect();
    let (has, ought) = (lines(graph, from, found.iter().copied()), lines(graph, from, wanted));
    if has != ought {
        let same = has.iter().zip(&ought).take_while(|(one, other)| one == other).count();
        return Some(format!(
            "{name} in the log of {to:?}, {} events and not {}; {same}: {:?} and not {:?}",
            has.len(),
            ought.len(),
            has.get(same),
            ought.get(same)
        ));
    }
    // No watermark may stand before an event that the reference said before it.
    let mut marks: Vec<(usize, i64)> = Vec::new();
    let mut rows = 0;
    for word in wanted {
        match word {
            Word::Event(_) => rows += 1,
            Word::Time(time) => marks.push((rows, *time)),
        }
    }
    // What is late has no time but the end of it.
    let ended = found.iter().any(|word| matches!(word, Word::Time(i64::MAX)));
    if matches!(from, Port::Late(_)) && ended {
        marks.push((rows, i64::MAX));
    }
    let by = |rows: usize| marks.iter().filter(|(at, _)| *at <= rows).map(|(_, time)| *time).max().unwrap_or(i64::MIN);
    let (mut rows, mut last) = (0, i64::MIN);
    for word in found {
        match word {
            Word::Event(_) => rows += 1,
            Word::Time(time) if *time > by(rows) => {
                return Some(format!(
                    "{name} in the log of {to:?}: time is {time} after {rows} events, and not {}",
                    by(rows)
                ));
            }
            Word::Time(time) => last = *time,
        }
    }
    let end = by(usize::MAX);
    (last != end).then(|| format!("{name} in the log of {to:?}: time ends at {last}, and not at {end}"))
}
