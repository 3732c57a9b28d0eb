//! What must be so in the end, whatever befell.

use super::{Told, World, place};
use crate::fold::Kind;

pub fn check(world: &World) -> Result<(), String> {
    let rows = &world.rows;
    for (n, event) in rows.history.iter().enumerate() {
        if event.revision != n as u64 + 1 {
            return Err(format!("a watcher is told of revision {} after {n}", event.revision));
        }
    }
    for (n, ask) in world.asks.iter().enumerate() {
        if let Told::Confirmed(id) = ask.told {
            let Some(event) = rows.event(id) else { return Err(format!("write {n}, {id}, was confirmed and is lost")) };
            let value = event.value.as_ref().map(|value| String::from_utf8_lossy(&value.bytes).into_owned());
            if event.place != place(ask.writer) || value != ask.value.map(|value| value.to_string()) {
                return Err(format!("write {n}, {id}, is {event:?}"));
            }
        }
    }
    for id in &world.denied {
        if let Some(event) = rows.event(*id) {
            return Err(format!("{id} was told never to be made, and is {event:?}"));
        }
    }
    for writer in 0..super::WRITERS {
        let place = place(writer);
        let puts = rows.history.iter().filter(|event| event.place == place && event.kind == Kind::Put);
        let values: Vec<u64> =
            puts.filter_map(|event| String::from_utf8_lossy(&event.value.as_ref()?.bytes).parse().ok()).collect();
        if values.windows(2).any(|two| two[0] >= two[1]) {
            return Err(format!("{place:?}: a value comes twice, or comes back: {values:?}"));
        }
        let confirmed = world.asks.iter().filter(|ask| ask.writer == writer);
        let ids = confirmed.filter_map(|ask| if let Told::Confirmed(id) = ask.told { Some(id) } else { None });
        let revisions: Vec<u64> = ids.filter_map(|id| rows.event(id)).map(|event| event.revision).collect();
        if revisions.windows(2).any(|two| two[0] >= two[1]) {
            return Err(format!("{place:?}: not in the order of the answers: {revisions:?}"));
        }
    }
    let waits = world.managers.iter().any(|one| !one.sender.book.is_empty() || one.sender.flying.is_some());
    if waits { Err("an outbox waits for what was applied".into()) } else { Ok(()) }
}
