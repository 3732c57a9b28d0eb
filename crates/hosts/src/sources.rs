//! Where events come from: what a source takes of the world, before anybody looks at what is in it. Each is a [`Feed`]; what
//! came is settled once it is durable in the logs behind, and only then let go of where it came from.
//!
//! Not here: what events are, how they are numbered, and time. That is the `streams` crate's.

mod amqp;
pub mod file;
mod mqtt;
mod secret;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_streams::graph::{self, Graph};
use mutirao_streams::wire::Part;

use crate::running::Means;

pub(crate) use amqp::Server;
pub(crate) use mqtt::options as mqtt_options;
pub(crate) use secret::{address, read as secret};

/// What came.
#[derive(Debug)]
pub enum Came {
    /// Each has one event or many.
    Messages(Vec<Bytes>),
    /// Of a file, without their ends.
    Lines(Vec<Bytes>),
}

#[derive(Debug)]
pub struct Taken {
    pub came: Came,
    /// By which it is settled. They grow.
    pub ticket: u64,
    /// When it came, in microseconds since 1970.
    pub at_us: i64,
}

#[async_trait]
pub trait Feed: Send {
    /// What comes next; waits for it. An error is why nothing can come now: the next call tries again. Cancel-safe.
    async fn next(&mut self) -> Result<Taken, String>;

    /// Everything up to this ticket is durable.
    fn settle(&mut self, ticket: u64);

    /// How far it is with what it has given out, if it can go back there. Written down with what came of it.
    fn position(&self) -> Option<Vec<u8>> {
        None
    }

    /// Whether [`settle`](Self::settle) does anything.
    fn is_settled(&self) -> bool {
        true
    }
}

/// Opens what a source reads. `position`: where it goes on; without one, from its beginning.
pub(crate) fn open(
    graph: &Graph,
    source: usize,
    part: &Part,
    position: Option<&[u8]>,
    means: &Means,
) -> Result<Box<dyn Feed>, String> {
    let own = graph.sources.get(source).ok_or("the definition has no such source")?;
    Ok(match &own.from {
        graph::From::File { path, start } => {
            let path = means.ends.files.find(path)?;
            Box::new(file::Tail::of(path, *start, position, means.clock.clone())?)
        }
        graph::From::Mqtt { topics, at } => {
            // The same each time: who takes over ends whoever came before, and finds what was not acknowledged.
            let client = format!("mutirao-{}-{}", part.stream, source);
            mqtt::open(topics, at.as_ref(), client, means)?
        }
        graph::From::Amqp { queue, at } => Box::new(amqp::Queue::of(queue, at.as_ref(), means)?),
        // Managers append what is pushed to them; what is made, is made where it is numbered.
        graph::From::Http | graph::From::Generator { .. } => Box::new(Nothing),
    })
}

/// Nothing comes from outside.
struct Nothing;

#[async_trait]
impl Feed for Nothing {
    async fn next(&mut self) -> Result<Taken, String> {
        std::future::pending().await
    }

    fn settle(&mut self, _: u64) {}
}
