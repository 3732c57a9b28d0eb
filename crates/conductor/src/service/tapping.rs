//! Tapping a port: what comes out there, read from the log of somebody who reads it. A tap takes nothing away and holds nobody
//! back; one that is too slow for what a log keeps loses the oldest, and is told from where it goes on.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::BrokerError;
use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use mutirao_streams::batch::json;
use mutirao_streams::graph::Port;
use mutirao_streams::mark::Marks;
use mutirao_streams::record::{self, Record};
use mutirao_streams::wire::log_of;
use mutirao_streams::{Graph, Schema};

use super::Streams;
use crate::view::Tapped;

/// Records read at once.
const RECORDS: u32 = 64;
/// After a broker that does not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// From where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Now,
    Offset(u64),
}

pub struct Tap {
    streams: Streams,
    log: String,
    port: Port,
    schema: Arc<Schema>,
    next: u64,
    /// What was heard, so that the same of another replica is not heard again.
    heard: Marks,
}

impl Streams {
    pub async fn tap(&self, caller: &Principal, name: &str, port: &str, from: From) -> Result<Tap, Problem> {
        let row = self.row(caller, name).await?;
        let read = self.0.graphs.keep(&row);
        let graph = read.graph.as_ref().map_err(|why| Problem::conflict(why.clone()))?;
        let Some(found) = find(graph, port) else {
            let shown: String = port.chars().take(100).collect();
            return Err(Problem::not_found(format!("\"{shown}\" cannot be tapped"))
                .remedy(format!("what comes out here goes through a log: {}", ports(graph).join(", "))));
        };
        let reader = graph.readers(found).into_iter().find_map(|what| log_of(&row.id, what));
        let log = reader.ok_or_else(Problem::internal)?;
        let away = |error: BrokerError| Problem::unavailable(error.to_string());
        let next = match from {
            From::Now => self.0.broker.extent(&log).await.map_err(away)?.1,
            From::Offset(offset) => offset,
        };
        let (streams, schema) = (self.clone(), graph.flows(found));
        Ok(Tap { streams, log, port: found, schema, next, heard: Marks::default() })
    }
}

/// Ports that somebody reads by a log, as they are written.
pub(super) fn ports(graph: &Graph) -> Vec<String> {
    all(graph).map(|port| graph.port(port)).collect()
}

fn all(graph: &Graph) -> impl Iterator<Item = Port> {
    let sources = (0..graph.sources.len()).flat_map(|n| [Port::Source(n), Port::Unfit(n)]);
    let operators = (0..graph.operators.len()).flat_map(|n| [Port::Operator(n), Port::Late(n)]);
    sources.chain(operators).filter(|port| graph.speaker(*port).is_some() && !graph.readers(*port).is_empty())
}

/// A port by its name; by that of a sink, what it reads.
fn find(graph: &Graph, name: &str) -> Option<Port> {
    let of_sink = graph.sinks.iter().find(|sink| sink.name == name).map(|sink| sink.input);
    all(graph).find(|port| graph.port(*port) == name).or(of_sink)
}

impl Tap {
    /// What came out next; none when the manager is leaving, or the stream is gone.
    pub async fn next(&mut self) -> Option<Tapped> {
        let inner = self.streams.0.clone();
        loop {
            let read = tokio::select! {
                read = inner.broker.read(&self.log, self.next, RECORDS) => read,
                () = inner.shutdown.cancelled() => return None,
            };
            match read {
                Ok(records) => {
                    let mut events = Vec::new();
                    let mut offset = self.next;
                    for one in records {
                        self.next = one.offset + 1;
                        offset = one.offset;
                        self.hear(&one.body, &mut events);
                    }
                    if !events.is_empty() {
                        return Some(Tapped { offset, events });
                    }
                }
                Err(BrokerError::NoSuchOffset { first, next, .. }) => self.next = self.next.clamp(first, next),
                Err(BrokerError::Closed) => return None,
                Err(_) => inner.clock.sleep(PAUSE).await,
            }
        }
    }

    fn hear(&mut self, body: &[u8], events: &mut Vec<serde_json::Value>) {
        let Ok(Record::Rows(rows)) = record::read(body) else { return };
        let header = &rows.header;
        if header.upstream != self.port.number() || header.rows == 0 {
            return;
        }
        // Read before it is known: of a damaged one another copy may come.
        let Ok(batch) = rows.events(&self.schema) else { return };
        let fresh = self.heard.take_what_is_there(header);
        let fresh = batch.slice(fresh.rows);
        let mut lines = Vec::new();
        json::write(&fresh, &mut lines);
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        events.extend(lines.filter_map(|line| serde_json::from_slice(line).ok()));
    }
}
