//! Finding out where one's own records landed: RabbitMQ confirms a record without saying its offset, so a reader that
//! was placed at the log's end before the record was sent watches it come by.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Mono;
use parking_lot::Mutex;

use super::cursor::{Cursor, PREFETCH, Start};
use crate::rabbit::line::Up;
use crate::rabbit::trouble::Trouble;

/// A reader that was not needed for this long is placed anew, instead of reading what others appended meanwhile.
const FRESH: Duration = Duration::from_secs(1);

pub(super) struct Tail {
    queue: String,
    writer: u64,
    claims: Mutex<Claims>,
    /// Whoever waits for its record reads for all.
    reader: tokio::sync::Mutex<Option<Cursor>>,
}

#[derive(Default)]
struct Claims {
    last: u64,
    used: Mono,
    /// Sent, or about to be; the offset once it was seen. As many as there are appends under way.
    open: HashMap<String, Option<u64>>,
}

impl Tail {
    pub fn new(queue: &str, writer: u64) -> Arc<Self> {
        Arc::new(Self { queue: queue.into(), writer, claims: Mutex::default(), reader: tokio::sync::Mutex::default() })
    }

    pub fn is_idle(&self, now: Mono) -> bool {
        let claims = self.claims.lock();
        claims.open.is_empty() && now.since(claims.used) > FRESH
    }

    /// To be called before the record is sent, marked with the claim's id.
    pub async fn claim(self: &Arc<Self>, up: &Up, now: Mono) -> Result<Claim, Trouble> {
        let mut reader = self.reader.lock().await;
        let stale = match &*reader {
            Some(cursor) => cursor.generation != up.generation || self.is_idle(now),
            None => true,
        };
        if stale {
            *reader = None;
            *reader = Some(Cursor::open(up, &self.queue, Start::Next, PREFETCH).await?);
        }
        let mut claims = self.claims.lock();
        claims.last += 1;
        claims.used = now;
        let id = format!("{:016x}-{}", self.writer, claims.last);
        claims.open.insert(id.clone(), None);
        Ok(Claim { tail: self.clone(), generation: up.generation, id })
    }
}

/// One append's right to hear where its first record landed.
pub(super) struct Claim {
    tail: Arc<Tail>,
    generation: u64,
    id: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.tail.claims.lock().open.remove(&self.id);
    }
}

impl Claim {
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Waits for the record to come by. It was confirmed, so it will.
    pub async fn offset(self) -> Result<u64, Trouble> {
        loop {
            let mut reader = self.tail.reader.lock().await;
            if let Some(Some(offset)) = self.tail.claims.lock().open.get(&self.id) {
                return Ok(*offset);
            }
            // A reader of another connection was placed after our record.
            let Some(cursor) = reader.as_mut().filter(|cursor| cursor.generation == self.generation) else {
                return Err(Trouble::Lost("the connection went while the record's offset was looked for".into()));
            };
            match cursor.take_seen().await {
                Ok(seen) => {
                    let mut claims = self.tail.claims.lock();
                    for (id, offset) in seen.into_iter().filter_map(|seen| Some((seen.id?, seen.record.offset))) {
                        // Every record of the batch bears its id; the first to come by is the first of it.
                        claims.open.entry(id).and_modify(|found| _ = found.get_or_insert(offset));
                    }
                }
                Err(trouble) => {
                    *reader = None;
                    return Err(trouble);
                }
            }
        }
    }
}
