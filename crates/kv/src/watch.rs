//! Whoever watches: changes from a point on, shard by shard, each with the point that is reached with it, so that whoever was
//! cut off goes on after the last that it saw.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse;
use futures_util::{Stream, stream};
use mutirao_core::ShardId;

use crate::SHARDS;
use crate::fold::Event;
use crate::point::Point;
use crate::service::{Kv, PAGE_BYTES_MAX};
use crate::store::Past;
use crate::view::{ChangeView, word};

/// Changes may be applied by another manager, who tells nobody here: look again this often.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const ROWS: u32 = 500;
/// How long a store that does not answer is left alone.
const PAUSE: Duration = Duration::from_secs(1);

pub struct Watch {
    pub kv: Kv,
    pub namespace: String,
    pub prefix: String,
    pub point: Point,
}

struct Watching {
    watch: Watch,
    /// Not handed out yet, with the shard each is of.
    found: VecDeque<(ShardId, Event)>,
    /// Everything of these shards has been looked at up to here, once `found` is handed out.
    looked: Vec<(ShardId, u64)>,
    begun: bool,
    over: bool,
}

impl Watch {
    /// First `begin` with the cursor; then `put`, `delete` and `expire`; `compacted`, the last, if it has fallen too far behind.
    pub fn events(self) -> impl Stream<Item = Result<sse::Event, Infallible>> {
        let watching = Watching { watch: self, found: VecDeque::new(), looked: Vec::new(), begun: false, over: false };
        stream::unfold(watching, |mut watching| async move { Some((Ok(watching.next().await?), watching)) })
    }
}

impl Watching {
    async fn next(&mut self) -> Option<sse::Event> {
        if !self.begun {
            self.begun = true;
            return Some(sse::Event::default().event("begin").id(self.watch.point.encode()).data("{}"));
        }
        loop {
            if self.over {
                return None;
            }
            if let Some((shard, event)) = self.found.pop_front() {
                self.watch.point.reach(shard, event.revision);
                let shown = sse::Event::default().event(word(event.kind)).id(self.watch.point.encode());
                return shown.json_data(ChangeView::of(&event)).ok();
            }
            for (shard, until) in self.looked.drain(..) {
                self.watch.point.reach(shard, until);
            }
            match self.look().await {
                Looked::Compacted => {
                    self.over = true;
                    let why = r#"{"detail": "what happened since is not known any more; begin anew"}"#;
                    return Some(sse::Event::default().event("compacted").data(why));
                }
                Looked::Something => {}
                Looked::Nothing => self.watch.kv.changed(LOOK_AGAIN).await?,
            }
        }
    }

    async fn look(&mut self) -> Looked {
        let (mut something, mut bytes, watch) = (false, 0, &self.watch);
        let mine = |event: &Event| {
            *event.place.namespace == *watch.namespace && event.place.key.as_str().starts_with(&watch.prefix)
        };
        // Where each shard is costs one question; what happened is then asked only of those that went on.
        let now = match watch.kv.point().await {
            Ok(now) => now,
            Err(_) => return self.pause().await,
        };
        for shard in (0..SHARDS).map(ShardId).filter(|shard| now.at(*shard) > watch.point.at(*shard)) {
            match watch.kv.past(shard, watch.point.at(shard), ROWS).await {
                Ok(Past::Compacted) => return Looked::Compacted,
                Ok(Past::Events { events, until }) => {
                    something = true;
                    self.looked.push((shard, until));
                    bytes +=
                        events.iter().filter_map(|event| event.value.as_ref()).map(|v| v.bytes.len()).sum::<usize>();
                    self.found.extend(events.into_iter().filter(&mine).map(|event| (shard, event)));
                }
                Err(_) => return self.pause().await,
            }
            // The other shards are looked at when this was told.
            if bytes >= PAGE_BYTES_MAX {
                break;
            }
        }
        if something { Looked::Something } else { Looked::Nothing }
    }

    /// The store does not answer: whoever watches waits with us.
    async fn pause(&self) -> Looked {
        match self.watch.kv.changed(PAUSE).await {
            Some(()) | None => Looked::Nothing,
        }
    }
}

enum Looked {
    Something,
    Nothing,
    Compacted,
}
