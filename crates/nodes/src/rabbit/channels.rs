//! Channels of one connection that come back by themselves. RabbitMQ ends a channel, and nothing else, when what was asked of it
//! cannot be: an exchange that somebody deleted, a right that was taken away. So each purpose has a channel of its own, and one
//! that was ended is opened anew, with everything declared again, before it is next used.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::ConfirmSelectOptions;
use lapin::{Channel, Connection};
use mutirao_core::Mono;
use mutirao_core::clock::{Clock, ClockExt};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::post::CONFIRM_MAX;
use super::{explain, topology};
use crate::wire::places::Places;

/// One that is ended again and again is opened no more often than this.
const AGAIN: Duration = Duration::from_secs(1);

/// What a channel is for. What is refused on one disturbs none of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Tasks and answers.
    Sending,
    /// Beats and acknowledgements, which come again.
    Telling,
    /// Looking at the queue of answers.
    Tidying,
    /// Making and removing queues of nodes.
    Making,
}

pub struct Channels {
    connection: Connection,
    places: Places,
    clock: Arc<dyn Clock>,
    lines: [Line; 4],
}

struct Line {
    channel: Mutex<Option<Channel>>,
    opened_at: Mutex<Option<Mono>>,
    /// One opens it, the others wait for that.
    opening: Semaphore,
}

impl Default for Line {
    fn default() -> Self {
        Self { channel: Mutex::default(), opened_at: Mutex::default(), opening: Semaphore::new(1) }
    }
}

impl Line {
    fn open(&self) -> Option<Channel> {
        self.channel.lock().clone().filter(|channel| channel.status().connected())
    }
}

impl Channels {
    pub fn new(connection: Connection, places: Places, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { connection, places, clock, lines: Default::default() })
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// One that is open.
    pub async fn get(&self, purpose: Purpose) -> Result<Channel, String> {
        let line = &self.lines[purpose as usize];
        if let Some(channel) = line.open() {
            return Ok(channel);
        }
        // Nobody closes it.
        let _turn = line.opening.acquire().await.map_err(|_| "RabbitMQ is away")?;
        if let Some(channel) = line.open() {
            return Ok(channel);
        }
        let now = self.clock.monotonic();
        let before = line.opened_at.lock().replace(now);
        if let Some(before) = before
            && now.since(before) < AGAIN
        {
            *line.opened_at.lock() = Some(before);
            return Err("RabbitMQ ends what it is told on before it is heard".into());
        }
        match self.clock.timeout(CONFIRM_MAX, self.make(purpose)).await {
            Ok(Ok(channel)) => {
                *line.channel.lock() = Some(channel.clone());
                Ok(channel)
            }
            Ok(Err(error)) => Err(explain(&error, &self.places)),
            Err(_) => Err("RabbitMQ does not answer".into()),
        }
    }

    async fn make(&self, purpose: Purpose) -> lapin::Result<Channel> {
        let channel = self.connection.create_channel().await?;
        if matches!(purpose, Purpose::Sending | Purpose::Telling) {
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
        }
        if purpose == Purpose::Sending {
            topology::declare(&channel, &self.places).await?;
        }
        Ok(channel)
    }
}
