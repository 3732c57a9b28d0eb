//! Whoever watches: changes from a point on, shard by shard, each with the point that is reached with it, so that whoever was
//! cut off goes on after the last that it saw. Who is told nothing for long is told the point: else what it missed nothing of would
//! be forgotten in the end, and it could not go on. [`tail`] reads what happens, for all of them.

pub(crate) mod tail;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse;
use futures_util::{Stream, stream};
use mutirao_core::{Mono, ShardId};

use crate::SHARDS;
use crate::fold::Event;
use crate::point::Point;
use crate::service::{Kv, PAGE_BYTES_MAX};
use crate::store::Past;
use crate::view::{ChangeView, word};
use tail::{Since, Watcher};

const ROWS: u32 = 500;
/// How long a store that does not answer is left alone.
const PAUSE: Duration = Duration::from_secs(1);
/// How often whoever is told nothing is told where it is, and how many times while the past is kept.
const AT_EVERY_MAX: Duration = Duration::from_secs(60);
const AT_TIMES_MIN: u32 = 4;
const AT_EVERY_MIN: Duration = Duration::from_secs(1);

pub struct Watch {
    pub kv: Kv,
    pub namespace: String,
    pub prefix: String,
    pub point: Point,
}

struct Watching {
    watch: Watch,
    watcher: Watcher,
    /// Not handed out yet, with the shard each is of.
    found: VecDeque<(ShardId, Arc<Event>)>,
    /// Everything of these shards has been looked at up to here, once `found` is handed out.
    looked: Vec<(ShardId, u64)>,
    /// The last point that was told, and when; none before the first.
    told: Option<(Point, Mono)>,
    over: bool,
}

impl Watch {
    /// First `begin` with the cursor; then `put`, `delete` and `expire`; `at` now and then, with nothing but the cursor; `compacted`,
    /// the last, if it has fallen too far behind.
    pub fn events(self) -> impl Stream<Item = Result<sse::Event, Infallible>> {
        let (watcher, found, looked) = (self.kv.watcher(), VecDeque::new(), Vec::new());
        let watching = Watching { watch: self, watcher, found, looked, told: None, over: false };
        stream::unfold(watching, |mut watching| async move { Some((Ok(watching.next().await?), watching)) })
    }
}

impl Watching {
    async fn next(&mut self) -> Option<sse::Event> {
        if self.told.is_none() {
            return Some(self.tell("begin").data("{}"));
        }
        loop {
            if self.over {
                return None;
            }
            if let Some((shard, event)) = self.found.pop_front() {
                self.watch.point.reach(shard, event.revision);
                return self.tell(word(event.kind)).json_data(ChangeView::of(&event)).ok();
            }
            for (shard, until) in self.looked.drain(..) {
                self.watch.point.reach(shard, until);
            }
            if self.at_is_due() {
                return Some(self.tell("at").data("{}"));
            }
            match self.look().await {
                Looked::Compacted => {
                    self.over = true;
                    let why = r#"{"detail": "what happened since is not known any more; begin anew"}"#;
                    return Some(sse::Event::default().event("compacted").data(why));
                }
                Looked::Something => {}
                Looked::Nothing => self.rest(None).await?,
                Looked::Away => self.rest(Some(PAUSE)).await?,
            }
        }
    }

    /// An event of this name, with the point as it is.
    fn tell(&mut self, name: &str) -> sse::Event {
        let point = self.watch.point.clone();
        let told = sse::Event::default().event(name).id(point.encode());
        self.told = Some((point, self.watch.kv.monotonic()));
        told
    }

    fn at_every(&self) -> Duration {
        (self.watch.kv.keep() / AT_TIMES_MIN).clamp(AT_EVERY_MIN, AT_EVERY_MAX)
    }

    fn at_is_due(&self) -> bool {
        let Some((point, at)) = &self.told else { return false };
        *point != self.watch.point && self.watch.kv.monotonic().since(*at) >= self.at_every()
    }

    /// Until something happens, or there is something to be told; none when the manager is stopping.
    async fn rest(&mut self, a_while: Option<Duration>) -> Option<()> {
        let kv = self.watch.kv.clone();
        let longest = a_while.unwrap_or_else(|| self.at_every());
        let moved = async {
            match a_while {
                None => self.watcher.moved().await,
                Some(_) => std::future::pending().await,
            }
        };
        kv.while_it_runs(async {
            tokio::select! {
                () = moved => {}
                () = kv.sleep(longest) => {}
            }
        })
        .await
    }

    async fn look(&mut self) -> Looked {
        let (mut something, mut bytes, watch) = (false, 0, &self.watch);
        let mine = |event: &Event| {
            *event.place.namespace == *watch.namespace && event.place.key.as_str().starts_with(&watch.prefix)
        };
        for shard in (0..SHARDS).map(ShardId) {
            let seen = watch.point.at(shard);
            let (events, until) = match self.watcher.since(shard, seen, mine) {
                Since::Nothing => continue,
                Since::Events { events, until } => (events, until),
                Since::Behind => match watch.kv.past(shard, seen, ROWS).await {
                    Ok(Past::Compacted) => return Looked::Compacted,
                    Ok(Past::Events { events, until }) => {
                        (events.into_iter().filter(mine).map(Arc::new).collect(), until)
                    }
                    Err(_) => return Looked::Away,
                },
            };
            something = true;
            self.looked.push((shard, until));
            bytes += events.iter().filter_map(|event| event.value.as_ref()).map(|v| v.bytes.len()).sum::<usize>();
            self.found.extend(events.into_iter().map(|event| (shard, event)));
            // The other shards are looked at when this was told.
            if bytes >= PAGE_BYTES_MAX {
                break;
            }
        }
        if something { Looked::Something } else { Looked::Nothing }
    }
}

enum Looked {
    Something,
    Nothing,
    /// The store does not answer: whoever watches waits with us.
    Away,
    Compacted,
}
