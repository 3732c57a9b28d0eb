//! A stream that could work: sources, operators and sinks, who reads whom, and the schema of what flows between them. What
//! keeps nothing is fused into [`Stage`]s, each of which runs as one.
//!
//! Made by [`definition::check`](crate::definition::check); [`view`] shows it.

pub mod fusion;
pub mod plan;
pub mod view;

use std::sync::Arc;
use std::time::Duration;

use crate::definition::rate::Rate;
use crate::expression::Expression;
use crate::schema::{Kind, Schema};
use crate::window::Grouping;

pub use fusion::Stage;
pub use plan::{Plan, Planned, Spoken, plan};

/// What a generator's expressions may speak of: the number of the event, its time, and three random figures from 0 to 1.
pub fn generator_schema() -> Schema {
    let random = ["random1", "random2", "random3"].map(|name| (name, Kind::Float));
    Schema::of([("n", Kind::Int), ("at", Kind::Time)].into_iter().chain(random))
}

/// Of events that do not fit: as they came, and why.
pub fn unfit_schema() -> Schema {
    Schema::of([("event", Kind::Text), ("why", Kind::Text)])
}

#[derive(Clone, Debug)]
pub struct Graph {
    pub name: String,
    pub sources: Vec<Source>,
    /// Each stands after those that it reads.
    pub operators: Vec<Operator>,
    pub sinks: Vec<Sink>,
    pub stages: Vec<Stage>,
}

/// Where events come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Port {
    Source(usize),
    /// What came to a source and did not fit its schema.
    Unfit(usize),
    Operator(usize),
    /// What came to a window after it had spoken.
    Late(usize),
}

#[derive(Clone, Debug)]
pub struct Source {
    pub name: String,
    pub schema: Arc<Schema>,
    pub from: From,
    /// An event's time, over the schema. Without one, nothing behind it waits for time.
    pub time: Option<Expression>,
    /// An event whose time is further ahead of the clock does not fit.
    pub ahead: Duration,
    /// Once nothing has come for so long, its time goes on with the clock; never, where there is none.
    pub idle: Option<Duration>,
    /// How far its time moves at a time.
    pub pace: Duration,
    /// The host that is to run it.
    pub host: Option<String>,
}

/// Where to begin in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Beginning,
    /// Only what is added from now on.
    End,
}

#[derive(Clone, Debug, PartialEq)]
pub enum From {
    Mqtt {
        topics: Vec<String>,
        /// Of another broker than the installation's own.
        at: Option<Address>,
    },
    Amqp {
        queue: String,
        at: Option<Address>,
    },
    Http,
    File {
        path: String,
        start: Start,
    },
    Generator {
        rate: Rate,
        seed: u64,
        /// Over [`generator_schema`], one for each field of the source.
        fields: Vec<Expression>,
    },
}

#[derive(Clone, Debug)]
pub struct Operator {
    pub name: String,
    pub inputs: Vec<Port>,
    pub does: Does,
    pub input: Arc<Schema>,
    pub output: Arc<Schema>,
    /// The fields of its output that events are kept apart by.
    pub keys: Vec<usize>,
    pub replicas: u32,
    /// How often what it keeps is written down; nothing for those that keep nothing.
    pub snapshot: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Does {
    Filter(Expression),
    /// One for each field of the output.
    Map(Vec<Expression>),
    KeyBy(Vec<usize>),
    Union,
    Window(Grouping),
}

impl Does {
    /// Whether what it gives for an event depends on that event alone.
    pub fn is_stateless(&self) -> bool {
        !matches!(self, Does::Window(_))
    }
}

#[derive(Clone, Debug)]
pub struct Sink {
    pub name: String,
    pub input: Port,
    pub schema: Arc<Schema>,
    pub to: To,
    /// The host that is to run it.
    pub host: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum To {
    Mqtt {
        topic: Template,
        at: Option<Address>,
    },
    Amqp {
        exchange: String,
        key: Template,
        at: Option<Address>,
    },
    Webhook {
        url: String,
        /// A header with a secret in it.
        header: Option<(String, Secret)>,
    },
    Kv {
        key: Template,
        /// The field that is kept; with none, the whole event.
        value: Option<usize>,
    },
    Flow {
        flow: String,
    },
    File {
        path: String,
    },
    Stdout,
}

/// A broker that is not the installation's own. The address has no password in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub url: String,
    pub user: Option<String>,
    pub password: Option<Secret>,
}

/// Where a secret is, on the host that uses it. It is never part of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// A variable of the environment.
    Env(String),
    /// The path of a file that holds it, and perhaps a line end.
    File(String),
}

/// A text with fields in it: `grid/alarms/{meter}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub text: String,
    pub pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Field(usize),
}

impl Graph {
    /// `means`, `means.late`, `meters.unfit`
    pub fn port(&self, port: Port) -> String {
        match port {
            Port::Source(n) => self.sources[n].name.clone(),
            Port::Unfit(n) => format!("{}.unfit", self.sources[n].name),
            Port::Operator(n) => self.operators[n].name.clone(),
            Port::Late(n) => format!("{}.late", self.operators[n].name),
        }
    }
}
