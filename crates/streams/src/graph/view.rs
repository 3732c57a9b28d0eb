//! A graph for people, for programs, and as a picture.

use std::fmt::Write;

use mutirao_core::quantity::Span;
use serde::Serialize;

use super::{Address, Does, From, Graph, Operator, Port, Sink, Source, Start, To};
use crate::aggregate::{Aggregate, Function};
use crate::schema::{Field, Schema};
use crate::window::{Grouping, Window};

/// A graph for programs.
#[derive(Clone, Debug, Serialize)]
pub struct GraphView {
    pub name: String,
    pub sources: Vec<EndView>,
    pub operators: Vec<OperatorView>,
    pub sinks: Vec<EndView>,
    pub stages: Vec<StageView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct EndView {
    pub name: String,
    /// `mqtt`, `file`, …
    pub kind: &'static str,
    pub what: String,
    /// What a sink reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug, Serialize)]
pub struct OperatorView {
    pub name: String,
    /// `filter`, `window`, …
    pub kind: &'static str,
    pub what: String,
    pub from: Vec<String>,
    /// Of what comes out.
    pub fields: Vec<Field>,
    pub keys: Vec<String>,
    pub replicas: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Span>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StageView {
    pub operators: Vec<String>,
    pub from: Vec<String>,
    pub replicas: u32,
}

impl From {
    fn kind(&self) -> &'static str {
        match self {
            From::Mqtt { .. } => "mqtt",
            From::Amqp { .. } => "amqp",
            From::Http => "http",
            From::File { .. } => "file",
            From::Generator { .. } => "generator",
        }
    }

    fn what(&self) -> String {
        match self {
            From::Mqtt { topics, at } => told(topics.join(", "), at),
            From::Amqp { queue, at } => told(queue.clone(), at),
            From::Http => String::new(),
            From::File { path, start: Start::Beginning } => format!("{path} from the beginning"),
            From::File { path, start: Start::End } => path.clone(),
            From::Generator { rate, .. } => match rate.periods.as_slice() {
                [one] if rate.repeat => format!("{} events/s", one.rate),
                periods => {
                    let again = if rate.repeat { ", again and again" } else { "" };
                    format!("{} periods in {}{again}", periods.len(), Span(rate.length()))
                }
            },
        }
    }
}

/// What is read or written, and where that is not the installation itself.
fn told(what: String, at: &Option<Address>) -> String {
    match at {
        Some(at) => format!("{what} at {}", at.url),
        None => what,
    }
}

impl To {
    fn kind(&self) -> &'static str {
        match self {
            To::Mqtt { .. } => "mqtt",
            To::Amqp { .. } => "amqp",
            To::Webhook { .. } => "webhook",
            To::Kv { .. } => "kv",
            To::Flow { .. } => "flow",
            To::File { .. } => "file",
            To::Stdout => "stdout",
        }
    }

    fn what(&self, schema: &Schema) -> String {
        match self {
            To::Mqtt { topic, at } => told(topic.text.clone(), at),
            To::Amqp { exchange, key, at } if exchange.is_empty() => told(key.text.clone(), at),
            To::Amqp { exchange, key, at } => told(format!("{} to {exchange}", key.text), at),
            To::Webhook { url, .. } => url.clone(),
            To::Kv { key, value: None } => key.text.clone(),
            To::Kv { key, value: Some(field) } => format!("{} = {}", key.text, schema.fields[*field].name),
            To::Flow { flow } => flow.clone(),
            To::File { path } => path.clone(),
            To::Stdout => String::new(),
        }
    }
}

impl Operator {
    fn kind(&self) -> &'static str {
        match &self.does {
            Does::Filter(_) => "filter",
            Does::Map(_) => "map",
            Does::KeyBy(_) => "key_by",
            Does::Union => "union",
            Does::Window(_) => "window",
        }
    }

    /// What it does, in about the words of its definition.
    pub fn what(&self) -> String {
        let name = |field: &usize| self.input.fields[*field].name.as_str();
        match &self.does {
            Does::Filter(expression) => expression.text().to_owned(),
            Does::Map(expressions) => {
                let made = self.output.fields.iter().zip(expressions);
                let shown = |(field, made): (&Field, &crate::Expression)| match made.text() == field.name {
                    true => field.name.clone(),
                    false => format!("{} = {}", field.name, made.text()),
                };
                made.map(shown).collect::<Vec<_>>().join(", ")
            }
            Does::KeyBy(keys) => keys.iter().map(name).collect::<Vec<_>>().join(", "),
            Does::Union => String::new(),
            Does::Window(grouping) => grouped(grouping, &self.input),
        }
    }
}

fn grouped(grouping: &Grouping, input: &Schema) -> String {
    let span = |us: i64| Span(std::time::Duration::from_micros(us.unsigned_abs()));
    let mut said = match &grouping.window {
        Window::Count { size, every } if size == every => format!("each {size} events"),
        Window::Count { size, every } => format!("{size} events, every {every}"),
        Window::Time { field, size_us, every_us, lateness_us } => {
            let by = &input.fields[*field].name;
            let moves = match grouping.window.jumps() {
                true => format!("each {} by {by}", span(*size_us)),
                false => format!("{} by {by}, every {}", span(*size_us), span(*every_us)),
            };
            if *lateness_us == 0 { moves } else { format!("{moves}, {} late at most", span(*lateness_us)) }
        }
    };
    for Aggregate { name, function, field } in &grouping.aggregates {
        let of = field.map(|field| input.fields[field].name.as_str()).unwrap_or_default();
        let more = match function {
            Function::Percentile(share) => format!(", {share}"),
            Function::Histogram(bounds) => bounds.iter().map(|bound| format!(", {bound}")).collect(),
            Function::Frequent(top) => format!(", {top}"),
            _ => String::new(),
        };
        let _ = write!(said, "; {name} = {}({of}{more})", function.name());
    }
    said
}

impl Graph {
    pub fn view(&self) -> GraphView {
        let names = |ports: &[Port]| ports.iter().map(|port| self.port(*port)).collect::<Vec<_>>();
        let source = |source: &Source| EndView {
            name: source.name.clone(),
            kind: source.from.kind(),
            what: source.from.what(),
            from: None,
            fields: source.schema.fields.clone(),
        };
        let sink = |sink: &Sink| EndView {
            name: sink.name.clone(),
            kind: sink.to.kind(),
            what: sink.to.what(&sink.schema),
            from: Some(self.port(sink.input)),
            fields: sink.schema.fields.clone(),
        };
        let operator = |operator: &Operator| OperatorView {
            name: operator.name.clone(),
            kind: operator.kind(),
            what: operator.what(),
            from: names(&operator.inputs),
            fields: operator.output.fields.clone(),
            keys: operator.keys.iter().map(|key| operator.output.fields[*key].name.clone()).collect(),
            replicas: operator.replicas,
            snapshot: operator.snapshot.map(Span),
        };
        let stage = |stage: &super::Stage| StageView {
            operators: stage.operators.iter().map(|n| self.operators[*n].name.clone()).collect(),
            from: names(&stage.inputs),
            replicas: stage.replicas,
        };
        GraphView {
            name: self.name.clone(),
            sources: self.sources.iter().map(source).collect(),
            operators: self.operators.iter().map(operator).collect(),
            sinks: self.sinks.iter().map(sink).collect(),
            stages: self.stages.iter().map(stage).collect(),
        }
    }

    /// For people: what is there, stage by stage.
    pub fn text(&self) -> String {
        let mut out = format!("stream {}\n", self.name);
        let view = self.view();
        let joined = |name: &str, kind: &str, what: &str| format!("{name}: {kind} {what}").trim_end().to_owned();
        for (source, end) in self.sources.iter().zip(&view.sources) {
            let _ = writeln!(out, "\nsource {}\n    {}", joined(&end.name, end.kind, &end.what), source.schema);
        }
        for (n, (stage, shown)) in self.stages.iter().zip(&view.stages).enumerate() {
            let copies = if stage.replicas == 1 { String::new() } else { format!(", {} replicas", stage.replicas) };
            let _ = writeln!(out, "\nstage {}, reads {}{copies}", n + 1, shown.from.join(" and "));
            for place in &stage.operators {
                let (operator, shown) = (&self.operators[*place], &view.operators[*place]);
                let _ = writeln!(out, "  {}", joined(&shown.name, shown.kind, &shown.what));
                let snapshot = shown.snapshot.map(|every| format!(", a snapshot every {every}")).unwrap_or_default();
                let _ = writeln!(out, "    {}{snapshot}", operator.output);
            }
        }
        for end in &view.sinks {
            let from = end.from.as_deref().unwrap_or_default();
            let _ = writeln!(out, "\nsink {}\n    reads {from}", joined(&end.name, end.kind, &end.what));
        }
        out.trim_end().to_owned()
    }

    /// A picture, in the words of Graphviz.
    pub fn dot(&self) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let label = |name: &str, more: &str| quoted(&format!("{name}\n{more}")).replace('\n', "\\n");
        let mut out = format!("digraph {} {{\n  rankdir=LR;\n  node [shape=box];\n", quoted(&self.name));
        let view = self.view();
        for (ends, shape) in [(&view.sources, "cds"), (&view.sinks, "note")] {
            for end in ends {
                let more = format!("{} {}", end.kind, end.what);
                let _ = writeln!(out, "  {} [shape={shape}, label={}];", quoted(&end.name), label(&end.name, &more));
            }
        }
        for (n, stage) in self.stages.iter().enumerate() {
            let _ = writeln!(out, "  subgraph cluster_{n} {{\n    label=\"stage {}\";", n + 1);
            for place in &stage.operators {
                let shown = &view.operators[*place];
                let more = format!("{} {}", shown.kind, shown.what);
                let _ = writeln!(out, "    {} [label={}];", quoted(&shown.name), label(&shown.name, &more));
            }
            out.push_str("  }\n");
        }
        let mut edge = |from: Port, to: &str| {
            let (name, style) = match from {
                Port::Source(n) => (&self.sources[n].name, ""),
                Port::Unfit(n) => (&self.sources[n].name, " [style=dashed, label=unfit]"),
                Port::Operator(n) => (&self.operators[n].name, ""),
                Port::Late(n) => (&self.operators[n].name, " [style=dashed, label=late]"),
            };
            let _ = writeln!(out, "  {} -> {}{style};", quoted(name), quoted(to));
        };
        for operator in &self.operators {
            operator.inputs.iter().for_each(|port| edge(*port, &operator.name));
        }
        self.sinks.iter().for_each(|sink| edge(sink.input, &sink.name));
        out.push('}');
        out
    }
}
