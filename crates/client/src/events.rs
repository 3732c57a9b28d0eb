//! Streams of server-sent events, over HTTP: opened, read, and given up when the other side is silent for too long.

use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use mutirao_core::clock::ClockExt;
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::http::{ByteStream, Call, Client};
use crate::sse::{Event, Parser};
use crate::target::Target;

/// A stream of events that says nothing for this long is dead: servers send a keep-alive every 15 s.
const SILENCE_S_MAX: u64 = 60;

/// One thing that changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// `job`, `queue`, `worker`, `worker_gone` or `gap`; newer managers may tell of more.
    pub what: String,
    /// From where the stream can be taken up again.
    pub id: Option<String>,
    pub data: serde_json::Value,
}

/// Everything that changes, as it does.
pub type ChangeStream = Pin<Box<dyn Stream<Item = Result<Change, ClientError>> + Send>>;

pub(crate) type Events = Pin<Box<dyn Stream<Item = Result<Event, ClientError>> + Send>>;

impl Client {
    /// Everything that changes from now on, or after the event with this id.
    pub async fn changes(&self, after: Option<&str>) -> Result<ChangeStream, ClientError> {
        let call = Call::get(Target::new("/v1/events"));
        let call = match after {
            Some(after) => call.header("last-event-id", after),
            None => call,
        };
        let events = self.events(call).await?;
        let this = self.clone();
        Ok(Box::pin(events.map(move |event| {
            let event = event?;
            Ok(Change { data: this.read_event(&event)?, what: event.name, id: event.id })
        })))
    }

    /// What is to be made of a stream that should not have ended and did: the server let go of it.
    pub fn let_go(&self) -> ClientError {
        ClientError::Broken { url: self.url().into(), why: "the server let go of it".into() }
    }

    pub(crate) async fn events(&self, call: Call) -> Result<Events, ClientError> {
        let chunks = self.open_stream(call.header("accept", "text/event-stream")).await?;
        let this = self.clone();
        let events = stream::unfold((chunks, Parser::default(), this), |(mut chunks, mut parser, this)| async move {
            let events = this.next_events(&mut chunks, &mut parser).await?;
            Some((stream::iter(events), (chunks, parser, this)))
        });
        Ok(Box::pin(events.flatten()))
    }

    /// The events in the next chunk; an error ends its chunk, and the end of the stream is `None`.
    async fn next_events(
        &self,
        chunks: &mut ByteStream,
        parser: &mut Parser,
    ) -> Option<Vec<Result<Event, ClientError>>> {
        let chunk = match self.clock().timeout(Duration::from_secs(SILENCE_S_MAX), chunks.next()).await {
            Ok(chunk) => chunk?,
            Err(_) => Err(ClientError::TimedOut { url: self.url().into(), limit_s: SILENCE_S_MAX }),
        };
        Some(match chunk.map(|bytes| parser.push(&bytes)) {
            Ok(Ok(events)) => events.into_iter().map(Ok).collect(),
            Ok(Err(too_long)) => vec![Err(self.unexpected(too_long.to_string()))],
            Err(error) => vec![Err(error)],
        })
    }

    pub(crate) fn read_event<T: DeserializeOwned>(&self, event: &Event) -> Result<T, ClientError> {
        serde_json::from_str(&event.data).map_err(|error| self.unexpected(error.to_string()))
    }
}
