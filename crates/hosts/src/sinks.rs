//! Where events go. A sink hands them over in their order, in batches, each row under the number that it has in the sink's log:
//! where the other side can know it by that, once; else at least once. What the other side refuses for good is counted and left
//! out; while it is away, the sink waits.

mod amqp;
mod deliver;
mod file;
mod mqtt;
mod stdout;
mod webhook;

use async_trait::async_trait;
use mutirao_streams::graph::{Graph, To};
use mutirao_streams::part::SinkRow;
use mutirao_streams::wire::Part;

use crate::running::Means;

/// Rows that the other side will never take, and why.
#[derive(Debug, Default, PartialEq)]
pub struct Given {
    pub refused: Vec<(usize, String)>,
}

/// Some rows were taken or refused, and the rest not yet: the other side is away.
#[derive(Debug, PartialEq)]
pub struct Away {
    pub done: usize,
    pub given: Given,
    pub why: String,
}

impl Away {
    pub fn before(why: impl Into<String>) -> Self {
        Self { done: 0, given: Given::default(), why: why.into() }
    }
}

/// Each on a line of its own.
fn lines(rows: &[SinkRow]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(rows.iter().map(|row| row.value.len() + 1).sum());
    for row in rows {
        lines.extend_from_slice(&row.value);
        lines.push(b'\n');
    }
    lines
}

#[async_trait]
pub trait Outlet: Send {
    /// Hands over all of them, in order.
    async fn give(&mut self, rows: &[SinkRow]) -> Result<Given, Away>;

    /// Makes everything that was given durable on the other side, as far as that is in our hands, and says what must be known
    /// to go on from here.
    async fn settle(&mut self) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    /// Whether what [`settle`](Self::settle) says must be known to the manager before the first row is handed over.
    fn begins_with_a_mark(&self) -> bool {
        false
    }
}

/// Opens what a sink writes to. `memory`: what it said when its snapshot was taken.
pub(crate) fn open(
    graph: &Graph,
    sink: usize,
    part: &Part,
    epoch: u64,
    memory: Option<&[u8]>,
    means: &Means,
) -> Result<Box<dyn Outlet>, String> {
    let own = graph.sinks.get(sink).ok_or("the definition has no such sink")?;
    Ok(match &own.to {
        To::Mqtt { at, .. } => {
            let client = format!("mutirao-{}-sink-{sink}", part.stream);
            mqtt::open(at.as_ref(), client, means)?
        }
        To::Amqp { exchange, at, .. } => {
            let named = format!("{}/{}", part.stream, own.name);
            Box::new(amqp::Exchange::of(exchange.clone(), at.as_ref(), named, means)?)
        }
        To::Webhook { url, header } => {
            let named = format!("{}/{}", part.stream, own.name);
            Box::new(webhook::Webhook::of(url.clone(), header.clone(), named, means)?)
        }
        To::Kv { .. } | To::Flow { .. } => Box::new(deliver::Deliver::of(part.clone(), epoch, means.clone())),
        To::File { path } => Box::new(file::Lines::open(means.ends.files.find(path)?, memory)?),
        To::Stdout => Box::new(stdout::Stdout),
    })
}
