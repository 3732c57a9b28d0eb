//! Pushes to sources of kind http. Whichever manager one reaches numbers its events by a figure of its own, which readers tell
//! from those of others, and appends them to the logs itself; the answer comes once they are there.
//!
//! One whose answer was lost may be pushed again with the same `Idempotency-Key`, to any manager: by the key and what is pushed it
//! has the same numbers each time, and readers know what they have. They remember so many writers of late
//! ([`WRITERS_MAX`](mutirao_streams::mark::WRITERS_MAX)), each such push being one. That a key comes with something else is noticed by
//! the manager alone that took the first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutirao_broker::{Heard, Shared as Broker};
use mutirao_core::auth::Principal;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Problem, dice};
use mutirao_streams::Graph;
use mutirao_streams::batch::json::is_cut_off;
use mutirao_streams::graph::From;
use mutirao_streams::mark::Origin;
use mutirao_streams::part::SourceCore;
use mutirao_streams::wire::{Part, Progress, StreamId, What, log_of, progress_of};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::Streams;
use crate::meters;
use crate::store::StreamState;
use crate::view::Pushed;

/// Sources that this process appends for; those that nobody pushes to at the moment are forgotten past it.
const PUSHERS_MAX: usize = 1_000;
/// Answers that are remembered of one source.
const ANSWERS_MAX: usize = 1_000;
const APPEND_WITHIN: Duration = Duration::from_secs(10);
/// Of what a log keeps, this share may lie behind its quickest reader, at most; as for other writers.
const SHARE: u64 = 4;

type Key = (StreamId, u32);
/// Of what is pushed.
type Print = [u8; 32];

pub struct Pushers {
    broker: Broker,
    clock: Arc<dyn Clock>,
    log_bytes: u64,
    all: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<Pusher>>>>,
}

/// One source, as this process appends to its logs.
struct Pusher {
    core: SourceCore,
    logs: BTreeMap<What, Log>,
    progress: Arc<Mutex<BTreeMap<Part, Progress>>>,
    /// By key: what was pushed, and what was answered.
    answers: VecDeque<(String, Print, Pushed)>,
    /// Ends with the pusher.
    _ear: tokio_util::task::AbortOnDropHandle<()>,
}

struct Log {
    name: String,
    /// Where it ended when something was appended last, and about what a record has.
    end: u64,
    record_bytes: u64,
}

impl Log {
    /// How many bytes lie before the quickest of its readers, about. A replica that is slow, or dead, holds nobody back.
    fn before(&self, readers: &[&Progress]) -> u64 {
        let bytes = readers.iter().map(|said| said.record_bytes).max().unwrap_or(0).max(self.record_bytes);
        let end = readers.iter().map(|said| said.next).max().unwrap_or(0).max(self.end);
        // Before anybody has said how far it is, it may need all.
        let needed = readers.iter().map(|said| said.needed).max().unwrap_or(0);
        end.saturating_sub(needed).saturating_mul(bytes)
    }
}

impl Pushers {
    pub fn new(broker: Broker, clock: Arc<dyn Clock>, log_bytes: u64) -> Self {
        Self { broker, clock, log_bytes, all: Mutex::default() }
    }

    /// What a log keeps at most.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Nothing is pushed to a stream that is gone; and one that is paused begins anew.
    pub fn forget(&self, stream: &StreamId) {
        self.all.lock().retain(|(id, _), _| id != stream);
    }

    fn of(&self, stream: &StreamId, source: u32, graph: &Graph) -> Arc<tokio::sync::Mutex<Pusher>> {
        let mut all = self.all.lock();
        if all.len() >= PUSHERS_MAX {
            all.retain(|_, pusher| Arc::strong_count(pusher) > 1);
        }
        let new = || Arc::new(tokio::sync::Mutex::new(self.begin(stream, source, graph)));
        all.entry((stream.clone(), source)).or_insert_with(new).clone()
    }

    fn begin(&self, stream: &StreamId, source: u32, graph: &Graph) -> Pusher {
        let feeds = mutirao_streams::graph::plan(graph).part(What::Source(source)).map(|part| part.feeds.clone());
        let log = |what: What| Some((what, Log { name: log_of(stream, what)?, end: 0, record_bytes: 0 }));
        let progress: Arc<Mutex<BTreeMap<Part, Progress>>> = Arc::default();
        let heard = listen(self.broker.clone(), self.clock.clone(), progress_of(stream), progress.clone());
        Pusher {
            core: core_of(graph, source),
            logs: feeds.unwrap_or_default().into_iter().filter_map(log).collect(),
            progress,
            answers: VecDeque::new(),
            _ear: tokio_util::task::AbortOnDropHandle::new(tokio::spawn(heard)),
        }
    }
}

fn core_of(graph: &Graph, source: u32) -> SourceCore {
    SourceCore::of(graph, source as usize, Origin::Free(dice::name() as u64))
}

/// The same for the same push, at whichever manager.
fn core_named(graph: &Graph, source: u32, key: &str, print: &Print) -> SourceCore {
    let digest = Sha256::new().chain_update(print).chain_update(key).finalize();
    let mut writer = [0; 8];
    writer.copy_from_slice(&digest[..8]);
    SourceCore::of(graph, source as usize, Origin::Free(u64::from_be_bytes(writer)))
}

/// For as long as it is not dropped.
async fn listen(broker: Broker, clock: Arc<dyn Clock>, topic: String, progress: Arc<Mutex<BTreeMap<Part, Progress>>>) {
    loop {
        if let Ok(mut ear) = broker.subscribe(&topic).await {
            while let Ok(heard) = ear.next().await {
                let Heard::Message(body) = heard else { continue };
                if let Ok(said) = postcard::from_bytes::<Progress>(&body) {
                    progress.lock().insert(said.reader.clone(), said);
                }
            }
        }
        clock.sleep(Duration::from_secs(1)).await;
    }
}

/// Whoever was cut off while it pushed hears of it, and nothing of what it pushed is taken.
fn is_whole(events: &[u8]) -> Result<(), Problem> {
    if events.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::malformed("there is nothing in what was pushed")
            .remedy("push JSON objects: one, a list of them, or one a line"));
    }
    if is_cut_off(events) {
        return Err(Problem::malformed("the list of events does not end; nothing of it was taken")
            .remedy("push it again, with its \"]\""));
    }
    Ok(())
}

impl Streams {
    /// Durable in the log when answered.
    pub async fn push(
        &self,
        caller: &Principal,
        name: &str,
        source: &str,
        key: Option<String>,
        events: Bytes,
    ) -> Result<Pushed, Problem> {
        let row = self.row(caller, name).await?;
        is_whole(&events)?;
        if row.state == StreamState::Paused {
            return Err(Problem::conflict(format!("the stream {name} is paused, and takes nothing"))
                .remedy(format!("mutirao stream resume {name}")));
        }
        let read = self.0.graphs.keep(&row);
        let graph = read.graph.as_ref().map_err(|why| Problem::conflict(why.clone()))?;
        let Some(n) = graph.sources.iter().position(|one| one.name == source && one.from == From::Http) else {
            let shown: String = source.chars().take(100).collect();
            let known: Vec<&str> =
                graph.sources.iter().filter(|one| one.from == From::Http).map(|one| one.name.as_str()).collect();
            let known = if known.is_empty() {
                "it has none of kind http".into()
            } else {
                format!("there is {}", known.join(", "))
            };
            return Err(Problem::not_found(format!("{name} has no source \"{shown}\" that is pushed to")).remedy(known));
        };
        let pusher = self.0.pushers.of(&row.id, n as u32, graph);
        let mut pusher = pusher.lock().await;
        let print: Print = Sha256::digest(&events).into();
        if let Some(key) = &key
            && let Some((_, before, answer)) = pusher.answers.iter().find(|(known, ..)| known == key)
        {
            return match *before == print {
                true => Ok(*answer),
                false => Err(Problem::conflict("this key was used for another push")
                    .remedy("give each push a key of its own; the same one only to push the same again")),
            };
        }
        if let Some(log) = pusher.full(self.0.pushers.log_bytes) {
            return Err(Problem::busy(format!("the stream is held back: {log} has as much before it as it may"), 1)
                .remedy("push again in a moment; `mutirao stream explain` says what is slow"));
        }
        let pushed = pusher.take(&self.0.pushers, graph, n as u32, key.as_deref(), &print, &events).await?;
        if let Some(key) = key {
            if pusher.answers.len() >= ANSWERS_MAX {
                pusher.answers.pop_front();
            }
            pusher.answers.push_back((key, print, pushed));
        }
        meters::pushed(pushed.taken, pushed.unfit);
        Ok(pushed)
    }
}

impl Pusher {
    /// The log before whose quickest reader as much lies as may.
    fn full(&self, log_bytes: u64) -> Option<String> {
        let progress = self.progress.lock();
        let is_full = |what: &What, log: &Log| {
            let readers: Vec<&Progress> = progress.values().filter(|said| said.reader.what == *what).collect();
            log.before(&readers) > log_bytes / SHARE
        };
        self.logs.iter().find(|(what, log)| is_full(what, log)).map(|(what, _)| format!("{what:?}").to_lowercase())
    }

    async fn take(
        &mut self,
        pushers: &Pushers,
        graph: &Graph,
        source: u32,
        key: Option<&str>,
        print: &Print,
        events: &[u8],
    ) -> Result<Pushed, Problem> {
        let now_us = pushers.clock.now().0.saturating_mul(1_000);
        let mut named = key.map(|key| core_named(graph, source, key, print));
        let core = named.as_mut().unwrap_or(&mut self.core);
        let taken = core.message(events, now_us);
        let said = core.cut(now_us);
        let mut batches: BTreeMap<What, Vec<Bytes>> = BTreeMap::new();
        for one in said {
            let record = Bytes::from(one.bytes);
            for what in one.to.iter() {
                batches.entry(*what).or_default().push(record.clone());
            }
        }
        for (what, batch) in batches {
            let Some(log) = self.logs.get_mut(&what) else { continue };
            let (records, bytes) = (batch.len() as u64, batch.iter().map(|record| record.len() as u64).sum::<u64>());
            match pushers.clock.timeout(APPEND_WITHIN, pushers.broker.append(&log.name, batch)).await {
                Ok(Ok(first)) => {
                    log.end = first + records;
                    log.record_bytes = (log.record_bytes * 7 + bytes / records.max(1)) / 8;
                }
                failed => {
                    let why = failed.map_or_else(
                        |_| "it takes too long".into(),
                        |failed| failed.map_or_else(|error| error.to_string(), |_| String::new()),
                    );
                    // What was numbered and is not there would be missed by readers: whoever comes next is somebody else.
                    self.core = core_of(graph, source);
                    return Err(Problem::unavailable(format!("the events may not be in the log: {why}"))
                        .remedy("push them again"));
                }
            }
        }
        // A log that takes what is pushed has all of it: events, and what did not fit.
        Ok(Pushed { taken: taken.events, unfit: taken.unfit })
    }
}

#[cfg(test)]
mod tests {
    use mutirao_broker::{Limits, Memory};
    use mutirao_core::SystemClock;
    use mutirao_streams::definition;
    use mutirao_streams::part::SinkCore;

    use super::*;

    #[tokio::test]
    async fn a_push_that_is_repeated_with_its_key_is_heard_once_whichever_manager_it_reaches() {
        let text = "\
kind: Stream
name: s
schema: { n: int }
sources:
  - { name: in, http: {} }
sinks:
  - { name: out, from: in, stdout: {} }
";
        let (graph, stream) = (definition::check(text).unwrap().remove(0), StreamId("s".into()));
        let dir = tempfile::tempdir().unwrap();
        let broker: Broker = Memory::new(Some(dir.path().to_owned()), Limits::default());
        let pushers = || Pushers::new(broker.clone(), SystemClock::shared(), 1 << 30);
        // The third is the first, started anew.
        let managers = [pushers(), pushers(), pushers()];
        let (all, other) = ("[{\"n\":1},{\"n\":2}]", "{\"n\":9}");
        for (manager, key, events) in [
            (0, Some("a"), all),
            (1, Some("a"), all),
            (1, Some("b"), all),
            (0, Some("a"), other),
            (1, None, other),
            (2, Some("a"), all),
            (2, None, other),
        ] {
            let pushers: &Pushers = &managers[manager];
            let print = Sha256::digest(events).into();
            let pusher = pushers.of(&stream, 0, &graph);
            pusher.lock().await.take(pushers, &graph, 0, key, &print, events.as_bytes()).await.unwrap();
        }
        let (mut sink, mut rows) = (SinkCore::of(&graph, 0), Vec::new());
        for record in broker.read(&log_of(&stream, What::Sink(0)).unwrap(), 0, 100).await.unwrap() {
            sink.hear(record.offset, &record.body, &mut rows).unwrap();
        }
        let lines: Vec<String> = rows.iter().map(|row| String::from_utf8_lossy(&row.value).into_owned()).collect();
        let numbers: Vec<&str> = lines.iter().map(|line| &line[5..6]).collect();
        assert_eq!(numbers, ["1", "2", "1", "2", "9", "9", "9"], "{lines:?}");
    }

    #[test]
    fn a_replica_that_is_gone_does_not_keep_pushes_out_while_another_reads() {
        let log = Log { name: "log".into(), end: 100, record_bytes: 10 };
        let said = |replica, needed| Progress {
            reader: Part { stream: StreamId("s".into()), what: What::Stage(0), replica },
            needed,
            next: needed,
            record_bytes: 10,
            latencies: vec![],
        };
        let (gone, quick) = (said(0, 3), said(1, 98));
        assert_eq!(log.before(&[&gone, &quick]), 20);
        assert_eq!(log.before(&[&gone]), 970);
        assert_eq!(log.before(&[]), 1_000, "it may need all");
    }

    #[test]
    fn what_was_cut_off_or_is_nothing_is_refused_and_pieces_of_a_list_of_lines_are_not() {
        for cut in ["", " \n", "[", "[{\"n\":1},{\"n\":2}"] {
            assert_eq!(is_whole(cut.as_bytes()).map_err(|problem| problem.status), Err(400), "{cut}");
        }
        for whole in ["{\"n\":1}", "[{\"n\":1}]", "[]", "[\n{\"n\":1},\n", "{\"n\":2}\n]\n", "hello"] {
            assert_eq!(is_whole(whole.as_bytes()).map_err(|problem| problem.status), Ok(()), "{whole}");
        }
    }
}
