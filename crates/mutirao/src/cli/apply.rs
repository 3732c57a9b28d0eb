//! `mutirao apply -f FILE`: what the files say, is made so. Everything is read and checked before anything is done.

pub mod documents;

use std::path::PathBuf;

use clap::Args;
use mutirao_client::Client;
use mutirao_core::declared::Became;
use mutirao_flows::FlowSpec;
use mutirao_flows::view::FlowDeclared;
use mutirao_monitors::MonitorSpec;
use mutirao_monitors::alerts::channel::ChannelSpec;
use mutirao_monitors::service::MonitorView;
use mutirao_monitors::service::alerts::ChannelView;
use mutirao_monitors::service::declaring::{DECLARED_MAX, Declaration, Declared, Pause};
use mutirao_queues::{QueueSpec, QueueView};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::monitor::call_line;
use super::out::Out;
use super::{Globals, reach};
use crate::failure::Failure;
use documents::Document;

#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// What is to be there: .yaml, .toml or .json; - is YAML from stdin
    #[arg(short, long, value_name = "FILE", required = true)]
    file: Vec<PathBuf>,
}

/// Something that a file declares.
#[derive(Debug, PartialEq)]
enum Thing {
    Queue(Box<QueueSpec>, Pause),
    Monitor(Box<MonitorSpec>, Pause),
    Channel(Box<ChannelSpec>),
    Flow(Box<FlowSpec>),
}

#[derive(Debug, Serialize)]
struct Applied {
    became: Became,
    #[serde(flatten)]
    thing: Made,
}

/// What is there now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Made {
    Queue(Box<QueueView>),
    Monitor(Box<MonitorView>),
    Channel(Box<ChannelView>),
    Flow { name: String },
}

impl Made {
    fn name(&self) -> String {
        match self {
            Made::Queue(queue) => format!("queue {}", queue.definition.name),
            Made::Monitor(monitor) => format!("monitor {}", monitor.definition.name),
            Made::Channel(channel) => format!("channel {}", channel.definition.name),
            Made::Flow { name } => format!("flow {name}"),
        }
    }
}

pub async fn run(globals: &Globals, args: ApplyArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let (mut things, mut wrong) = (Vec::new(), Vec::new());
    for file in &args.file {
        for document in documents::read(file)? {
            match understood(document) {
                Ok(thing) => things.push(thing),
                Err(why) => wrong.push(why),
            }
        }
    }
    // All that is wrong at once: nobody mends a long file line by line.
    if !wrong.is_empty() {
        return Err(Failure::usage(wrong.join("\n")));
    }
    let client = reach::client(&globals.config(vec![])?)?;
    // Monitors may name channels of the same file, wherever they stand in it.
    things.sort_by_key(|thing| !matches!(thing, Thing::Channel(_)));
    let mut all: Vec<Applied> = Vec::with_capacity(things.len());
    let (mut monitors, mut flows) = (Vec::new(), Vec::new());
    for thing in things {
        match thing {
            Thing::Queue(spec, pause) => all.push(queue_made_so(&client, *spec, pause).await?),
            Thing::Monitor(spec, pause) => monitors.push(Declared { definition: *spec, pause }),
            Thing::Channel(spec) => all.push(channel_made_so(&client, *spec).await?),
            Thing::Flow(spec) => flows.push(*spec),
        }
    }
    all.extend(flows_made_so(&client, &flows).await?);
    all.extend(monitors_made_so(&client, &monitors).await?);
    out.answer(&all, |all| {
        let line = |Applied { became, thing }: &Applied| {
            let said = match became {
                Became::Made => format!("{} was made", thing.name()),
                Became::Changed => format!("{} was changed", thing.name()),
                Became::Unchanged => format!("{} is as declared already", thing.name()),
            };
            match thing {
                Made::Monitor(view) => {
                    [Some(said), call_line(&client, view)].into_iter().flatten().collect::<Vec<_>>().join(": ")
                }
                _ => said,
            }
        };
        all.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

/// Only over what was looked at: whoever changes the queue in the same moment makes this fail, and neither is undone.
async fn queue_made_so(client: &Client, mut spec: QueueSpec, pause: Pause) -> Result<Applied, Failure> {
    let applied = |became, queue| Applied { became, thing: Made::Queue(Box::new(queue)) };
    let there = match client.queue(&spec.name).await {
        Ok(there) => there,
        Err(error) if error.status() == Some(404) => {
            return Ok(applied(Became::Made, client.create_queue(&spec).await?));
        }
        Err(error) => return Err(error.into()),
    };
    if there.unreadable.is_none() {
        if pause == Pause::NotSaid {
            spec.paused = there.definition.paused;
        }
        if there.definition == spec {
            return Ok(applied(Became::Unchanged, there));
        }
    }
    Ok(applied(Became::Changed, client.put_queue(&spec, Some(there.revision)).await?))
}

/// All of them or none, as many at once as are taken.
async fn monitors_made_so(client: &Client, all: &[Declared]) -> Result<Vec<Applied>, Failure> {
    let mut made = Vec::with_capacity(all.len());
    for some in all.chunks(DECLARED_MAX) {
        let told: Vec<Declaration> = client.declare_monitors(&some).await?;
        let applied = |Declaration { became, monitor }| Applied { became, thing: Made::Monitor(Box::new(monitor)) };
        made.extend(told.into_iter().map(applied));
    }
    Ok(made)
}

/// All of them or none.
async fn flows_made_so(client: &Client, all: &[FlowSpec]) -> Result<Vec<Applied>, Failure> {
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let told: Vec<FlowDeclared> = client.declare_flows(&all).await?;
    let applied = |FlowDeclared { name, became }| Applied { became, thing: Made::Flow { name } };
    Ok(told.into_iter().map(applied).collect())
}

/// Written in any case: what is secret in it is not shown, so nobody here can tell whether it is the same.
async fn channel_made_so(client: &Client, spec: ChannelSpec) -> Result<Applied, Failure> {
    let there: Option<ChannelView> = match client.channel(&spec.name).await {
        Ok(there) => Some(there),
        Err(error) if error.status() == Some(404) => None,
        Err(error) => return Err(error.into()),
    };
    let view: ChannelView = client.put_channel(&spec.name, &spec).await?;
    // What is secret is not shown, so only the manager can tell whether it is the same; then it writes nothing.
    let became = match there {
        None => Became::Made,
        Some(there) if there.changed_at == view.changed_at => Became::Unchanged,
        Some(_) => Became::Changed,
    };
    Ok(Applied { became, thing: Made::Channel(Box::new(view)) })
}

/// What a document declares, checked; or what is wrong with it, and where.
fn understood(document: Document) -> Result<Thing, String> {
    let Document { place, mut value } = document;
    let wrong = |what: String| format!("{place}: {what}");
    let kinds = "write kind: Queue, kind: Monitor, kind: Channel or kind: Flow";
    let fields =
        value.as_object_mut().ok_or_else(|| wrong("it is not a list of fields; begin with kind: Queue".into()))?;
    let kind = match fields.remove("kind") {
        Some(Value::String(kind)) => kind,
        Some(kind) => return Err(wrong(format!("there is no kind {kind}; {kinds}"))),
        None => return Err(wrong(format!("kind is missing; {kinds}"))),
    };
    let pause = if fields.contains_key("paused") { Pause::Said } else { Pause::NotSaid };
    match kind.as_str() {
        "Queue" => {
            let spec: QueueSpec = read(value).map_err(wrong)?;
            spec.check().map_err(|problem| wrong(problem.line()))?;
            Ok(Thing::Queue(Box::new(spec), pause))
        }
        "Monitor" => {
            let spec: MonitorSpec = read(value).map_err(wrong)?;
            spec.check().map_err(|problem| wrong(problem.line()))?;
            Ok(Thing::Monitor(Box::new(spec), pause))
        }
        "Channel" => {
            let spec: ChannelSpec = read(value).map_err(wrong)?;
            spec.check().map_err(|problem| wrong(problem.line()))?;
            Ok(Thing::Channel(Box::new(spec)))
        }
        // Whether it could work depends on the actions that there are: the manager says.
        "Flow" => Ok(Thing::Flow(Box::new(read(value).map_err(wrong)?))),
        "Stream" => Err(wrong("streams are not run yet; `mutirao stream check` says whether one is sound".into())),
        _ => Err(wrong(format!("there is no kind \"{kind}\"; {kinds}"))),
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

    fn said(json: &str) -> Result<Thing, String> {
        let document = Document { place: "q.yaml, document 2".into(), value: serde_json::from_str(json).unwrap() };
        understood(document)
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let plain = QueueSpec::new("q".parse().unwrap());
        assert_eq!(
            said(r#"{"kind": "Queue", "name": "q"}"#),
            Ok(Thing::Queue(Box::new(plain.clone()), Pause::NotSaid))
        );
        assert_eq!(
            said(r#"{"kind": "Queue", "name": "q", "paused": false}"#),
            Ok(Thing::Queue(Box::new(plain), Pause::Said))
        );
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
            let error = said(json).unwrap_err();
            assert!(error.contains("q.yaml, document 2: ") && error.contains(words), "{json} gave {error}");
        }
    }
}
