//! What files declare, as far as it can be told without the manager: what can be read, what makes sense, what is there twice.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use mutirao_core::limits::BODY_BYTES_MAX;
use mutirao_flows::FlowSpec;
use mutirao_monitors::MonitorSpec;
use mutirao_monitors::alerts::channel::ChannelSpec;
use mutirao_monitors::service::declaring::{Declared, Pause};
use mutirao_queues::QueueSpec;
use mutirao_streams::definition;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::documents::{self, Document, Written};
use crate::failure::{Exit, Failure};

/// Where something is declared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which of all documents, in the order of the files.
    n: usize,
    shown: String,
}

#[derive(Debug)]
pub struct Placed<T> {
    pub place: Place,
    pub what: T,
}

/// Everything that the files declare, and what is wrong with it.
#[derive(Debug, Default)]
pub struct Files {
    pub queues: Vec<Placed<(QueueSpec, Pause)>>,
    pub channels: Vec<Placed<ChannelSpec>>,
    pub flows: Vec<Placed<FlowSpec>>,
    pub monitors: Vec<Placed<Declared>>,
    pub streams: Vec<Placed<String>>,
    /// Names of all channels, also of those that are wrong: nobody is told twice about one mistake.
    pub channel_names: BTreeSet<String>,
    pub wrong: Vec<(Place, String)>,
    /// Whether there is a file that nothing can be told of.
    pub unreadable: bool,
    /// By kind and name.
    seen: HashMap<(String, String), String>,
    count: usize,
}

/// Something that a file declares.
#[derive(Debug, PartialEq)]
enum Thing {
    Queue(Box<QueueSpec>, Pause),
    Monitor(Box<MonitorSpec>, Pause),
    Channel(Box<ChannelSpec>),
    Flow(Box<FlowSpec>),
    /// As it is written.
    Stream(String),
}

impl Files {
    pub fn read(files: &[PathBuf]) -> Self {
        let mut all = Self::default();
        for file in files {
            match documents::read(file, BODY_BYTES_MAX) {
                Ok(documents) => documents.into_iter().for_each(|document| all.take(document)),
                Err(what) => {
                    let place = all.place(file.display().to_string());
                    all.wrong.push((place, what));
                    all.unreadable = true;
                }
            }
        }
        all
    }

    fn place(&mut self, shown: String) -> Place {
        self.count += 1;
        Place { n: self.count, shown }
    }

    fn take(&mut self, document: Document) {
        let place = self.place(document.place);
        let text = |field: &str| Some(document.value.get(field)?.as_str()?.to_owned());
        let named = text("kind").zip(text("name"));
        if let Some((kind, name)) = &named
            && kind == "Channel"
        {
            self.channel_names.insert(name.clone());
        }
        let first = named.and_then(|named| match self.seen.get(&named) {
            Some(first) => Some(first.clone()),
            None => {
                self.seen.insert(named, place.shown.clone());
                None
            }
        });
        match understood(document.value, document.text) {
            Err(what) => self.wrong.push((place, what)),
            Ok(_) if first.is_some() => {
                let first = first.unwrap_or_default();
                self.wrong.push((place, format!("it is declared twice, first in {first}; leave one of them out")));
            }
            Ok(Thing::Queue(spec, pause)) => self.queues.push(Placed { place, what: (*spec, pause) }),
            Ok(Thing::Channel(spec)) => self.channels.push(Placed { place, what: *spec }),
            Ok(Thing::Stream(text)) => self.streams.push(Placed { place, what: text }),
            Ok(Thing::Flow(spec)) => self.flows.push(Placed { place, what: *spec }),
            Ok(Thing::Monitor(spec, pause)) => {
                self.monitors.push(Placed { place, what: Declared { definition: *spec, pause } });
            }
        }
    }

    /// All that is wrong, in the order of the files, and why the rest could not be looked at, if it could not.
    pub fn refusal(mut self, otherwise: Option<Failure>) -> Failure {
        self.wrong.sort();
        let is_rest = !(self.queues.is_empty()
            && self.channels.is_empty()
            && self.flows.is_empty()
            && self.streams.is_empty()
            && self.monitors.is_empty());
        let mut lines: Vec<String> =
            self.wrong.into_iter().map(|(place, what)| format!("{}: {what}", place.shown)).collect();
        if let Some(Failure::Said { line, .. }) = otherwise.filter(|_| is_rest) {
            lines.push(format!("the manager was not asked about the rest: {line}"));
        }
        Failure::new(Exit::Usage, lines.join("\n"))
    }
}

/// What a document declares, checked; or what is wrong with it.
fn understood(mut value: Value, written: Written) -> Result<Thing, String> {
    let kinds = "write kind: Queue, kind: Monitor, kind: Channel, kind: Flow or kind: Stream";
    let fields = value.as_object_mut().ok_or("it is not a list of fields; begin with kind: Queue")?;
    let kind = match fields.remove("kind") {
        Some(Value::String(kind)) => kind,
        Some(kind) => return Err(format!("there is no kind {kind}; {kinds}")),
        None => return Err(format!("kind is missing; {kinds}")),
    };
    let pause = if fields.contains_key("paused") { Pause::Said } else { Pause::NotSaid };
    match kind.as_str() {
        "Queue" => {
            let spec: QueueSpec = read(value)?;
            spec.check().map_err(|problem| problem.line())?;
            Ok(Thing::Queue(Box::new(spec), pause))
        }
        "Monitor" => {
            let spec: MonitorSpec = read(value)?;
            spec.check().map_err(|problem| problem.line())?;
            Ok(Thing::Monitor(Box::new(spec), pause))
        }
        "Channel" => {
            let spec: ChannelSpec = read(value)?;
            spec.check().map_err(|problem| problem.line())?;
            Ok(Thing::Channel(Box::new(spec)))
        }
        // Whether it could work depends on the actions that there are: the manager says.
        "Flow" => Ok(Thing::Flow(Box::new(read(value)?))),
        "Stream" => sound(written).map(Thing::Stream),
        _ => Err(format!("there is no kind \"{kind}\"; {kinds}")),
    }
}

/// Or all that is wrong with it, with the lines of the file.
pub fn sound(Written { text, line }: Written) -> Result<String, String> {
    match definition::check(&text) {
        Ok(_) => Ok(text),
        Err(faults) => {
            let shifted = faults.into_iter().map(|mut fault| {
                fault.place.line += line - 1;
                fault.to_string()
            });
            Err(shifted.collect::<Vec<_>>().join("\n"))
        }
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string() {
        path if path == "." => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(documents: &[&str]) -> Files {
        let mut files = Files::default();
        for (n, json) in documents.iter().enumerate() {
            let place = format!("q.yaml, document {}", n + 1);
            let text = Written { text: (*json).to_owned(), line: 1 };
            files.take(Document { place, value: serde_json::from_str(json).unwrap(), text });
        }
        files
    }

    fn refused(files: Files) -> String {
        match files.refusal(None) {
            Failure::Said { line, .. } => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let plain = QueueSpec::new("q".parse().unwrap());
        for (json, pause) in [
            (r#"{"kind": "Queue", "name": "q"}"#, Pause::NotSaid),
            (r#"{"kind": "Queue", "name": "q", "paused": false}"#, Pause::Said),
        ] {
            let files = taken(&[json]);
            assert_eq!(files.queues[0].what, (plain.clone(), pause));
        }
        for (json, words) in [
            (r#"{"name": "q"}"#, "kind is missing"),
            (r#"{"kind": "Kettle"}"#, "there is no kind \"Kettle\""),
            (r#"[1]"#, "not a list of fields"),
            (r#"{"kind": "Queue", "name": "q", "limits": {"runing": 1}}"#, "limits.runing: unknown field"),
            (r#"{"kind": "Queue", "name": "q", "limits": {"running": 0}}"#, "limits.running: nothing could ever run"),
            (r#"{"kind": "Monitor", "name": "m", "every": "1m"}"#, "it checks nothing"),
            (
                r#"{"kind": "Monitor", "name": "m", "every": "1s", "tcp": {"address": "x:1"}}"#,
                "every: 1s is shorter than",
            ),
        ] {
            let error = refused(taken(&[r#"{"kind": "Queue", "name": "good"}"#, json]));
            assert!(error.starts_with("q.yaml, document 2: ") && error.contains(words), "{json} gave {error}");
        }
    }

    #[test]
    fn what_is_declared_twice_is_refused_of_every_kind_and_one_name_may_be_of_two_kinds() {
        let queue = r#"{"kind": "Queue", "name": "a"}"#;
        let monitor = r#"{"kind": "Monitor", "name": "a", "every": "1m", "tcp": {"address": "x:1"}}"#;
        let channel = r#"{"kind": "Channel", "name": "a", "slack": {"url": "https://x.example/"}}"#;
        let flow = r#"{"kind": "Flow", "name": "a", "steps": []}"#;
        let all = [queue, monitor, channel, flow];
        assert!(taken(&all).wrong.is_empty(), "{:?}", taken(&all).wrong);
        for one in all {
            let error = refused(taken(&[one, one]));
            assert!(
                error.starts_with("q.yaml, document 2: it is declared twice, first in q.yaml, document 1"),
                "{error}"
            );
        }
    }
}
