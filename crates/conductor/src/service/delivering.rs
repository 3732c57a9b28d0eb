//! Rows of sinks that only a manager may hand over: values become keys, events start flows. Each row has a number, which grows
//! along its sink's log; how far a sink is, is kept, so that what comes again is known. A flow is started once for its number
//! in any case. A key may be written twice where this process dies between the write and its note of it: the same values, in
//! the same order.

use std::collections::HashMap;
use std::sync::Arc;

use mutirao_core::Problem;
use mutirao_core::auth::{Principal, Role};
use mutirao_store::refused;
use mutirao_streams::Graph;
use mutirao_streams::graph::To;
use mutirao_streams::mark::Place;
use mutirao_streams::wire::{Delivered, Delivery, ITEMS_MAX, Item, Refusal, StreamId, What};
use parking_lot::Mutex;

use super::Streams;
use crate::meters;
use crate::outside::may_work_later;
use crate::store::{StreamRow, StreamState};

/// Held by whoever hands over for a sink.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// One delivery of a sink at a time.
#[derive(Default)]
pub struct Turns(Mutex<HashMap<(StreamId, u32), Turn>>);

/// Sinks that are remembered to have deliveries; those that nobody waits at are forgotten past it.
const TURNS_MAX: usize = 10_000;

impl Turns {
    fn of(&self, stream: &StreamId, sink: u32) -> Turn {
        let mut turns = self.0.lock();
        if turns.len() >= TURNS_MAX {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry((stream.clone(), sink)).or_default().clone()
    }
}

impl Streams {
    /// Of a host apart, by its key.
    pub async fn deliver_of(&self, caller: &Principal, delivery: Delivery) -> Result<Delivered, Problem> {
        self.must_be_host(caller).await?;
        // Also one that was just told to stop: what it hands over is known by its number.
        let rows = self.0.store.parts(vec![delivery.part.stream.clone()]).await.map_err(refused)?;
        let row = rows.iter().find(|row| row.part == delivery.part);
        if row.and_then(|row| row.seat.as_ref()).is_none_or(|seat| seat.host != caller.id) {
            return Err(Problem::conflict("this host was not given this sink"));
        }
        self.deliver(delivery).await
    }

    /// What came of it is durable when answered. What may work later is an error, and what was done before it is kept.
    pub async fn deliver(&self, delivery: Delivery) -> Result<Delivered, Problem> {
        let Delivery { part, items, .. } = delivery;
        let What::Sink(n) = part.what else {
            return Err(Problem::invalid("part", "only sinks hand anything over"));
        };
        if items.len() > ITEMS_MAX {
            return Err(Problem::invalid("items", format!("at most {ITEMS_MAX} at a time")));
        }
        let found = self.0.store.by_id(vec![part.stream.clone()]).await.map_err(refused)?;
        let row = found.into_iter().find(|row| row.state != StreamState::Deleted);
        let row = row.ok_or_else(|| Problem::not_found("the stream is gone"))?;
        let read = self.0.graphs.keep(&row);
        let graph = read.graph.as_ref().map_err(|why| Problem::conflict(why.clone()))?;
        let to = to_of(graph, n)?;
        let turn = self.0.deliveries.of(&part.stream, n);
        let _alone = turn.lock().await;
        let done = self.0.store.handed_over(part.stream.clone(), n).await.map_err(refused)?;
        let mut fresh = Vec::new();
        for item in items {
            let place = place_of(&item.number)?;
            if done.is_none_or(|done| place > done) {
                fresh.push((place, item));
            }
        }
        if fresh.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(Problem::invalid("items", "their numbers do not grow"));
        }
        let (handed, last, later) = self.hand_over(&row, n, to, fresh).await;
        if let Some(last) = last {
            self.0.store.hand_over(part.stream, n, last).await.map_err(refused)?;
        }
        match later {
            Some(problem) => Err(problem),
            None => Ok(handed),
        }
    }

    /// What is refused for good, up to where all is settled, and why it does not go on from there.
    async fn hand_over(
        &self,
        row: &StreamRow,
        sink: u32,
        to: &To,
        fresh: Vec<(Place, Item)>,
    ) -> (Delivered, Option<Place>, Option<Problem>) {
        let owner = owner_of(row);
        let (mut delivered, mut last) = (Delivered::default(), None);
        let (kind, fates) = match to {
            To::Flow { flow } => ("flow", self.start_all(&owner, row, sink, flow, &fresh).await),
            _ => {
                let entries = fresh.iter().map(|(_, item)| (item.key.clone().unwrap_or_default(), item.value.clone()));
                ("kv", self.0.receivers.keep(&owner, entries.collect()).await)
            }
        };
        let mut taken = 0;
        for ((place, item), fate) in fresh.into_iter().zip(fates) {
            match fate {
                Ok(()) => taken += 1,
                Err(problem) if may_work_later(&problem) => {
                    meters::handed_over(kind, taken);
                    return (delivered, last, Some(problem));
                }
                Err(problem) => delivered.refused.push(Refusal { number: item.number, why: problem.line() }),
            }
            last = Some(place);
        }
        meters::handed_over(kind, taken);
        meters::handed_over("refused", delivered.refused.len());
        (delivered, last, None)
    }

    async fn start_all(
        &self,
        owner: &Principal,
        row: &StreamRow,
        sink: u32,
        flow: &str,
        fresh: &[(Place, Item)],
    ) -> Vec<Result<(), Problem>> {
        let mut fates = Vec::new();
        for (_, item) in fresh {
            let key = format!("stream/{}/{sink}/{}", row.id, item.number);
            let fate = self.0.receivers.start(owner, flow, key, item.value.clone()).await;
            let stops = fate.as_ref().is_err_and(may_work_later);
            fates.push(fate);
            if stops {
                break;
            }
        }
        fates
    }
}

fn to_of(graph: &Graph, sink: u32) -> Result<&To, Problem> {
    match graph.sinks.get(sink as usize).map(|sink| &sink.to) {
        Some(to @ (To::Kv { .. } | To::Flow { .. })) => Ok(to),
        Some(_) => Err(Problem::invalid("part", "this sink hands over what it has by itself")),
        None => Err(Problem::invalid("part", "there is no such sink")),
    }
}

/// Whoever deployed the stream is who does what its sinks do, in its namespace.
fn owner_of(row: &StreamRow) -> Principal {
    let id = format!("stream:{}", row.id);
    Principal { id, name: row.owner.clone(), role: Role::Operator, namespace: row.namespace.clone() }
}

/// `offset.row`
fn place_of(number: &str) -> Result<Place, Problem> {
    let place = number
        .split_once('.')
        .and_then(|(offset, row)| Some(Place { offset: offset.parse().ok()?, row: row.parse().ok()? }));
    place.ok_or_else(|| Problem::invalid("items.number", "write it like 4242.17: an offset and a row"))
}
