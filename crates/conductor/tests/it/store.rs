//! What every store of streams keeps to.

use std::collections::BTreeMap;
use std::sync::Arc;

use mutirao_conductor::moving::{Begun, Move};
use mutirao_conductor::placing::Seat;
use mutirao_conductor::store::{
    self, Batch, By, Deployed, Event, Fate, HostRow, Kept, NewStream, Over, PartRow, Shared, StreamState,
};
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_streams::mark::Place;
use mutirao_streams::wire::{
    HostView, Measures, Part, Report, Snapshot, Standing, State, StreamId, Usage, What, snapshot_key,
};

use crate::engine::{Engine, on_both};

on_both!(
    a_stream_is_made_left_alone_refused_or_replaced,
    two_who_deploy_one_name_at_once_make_one_stream,
    what_is_done_to_a_stream_is_told_by_whom,
    hosts_are_as_they_said_last_and_their_beats_are_counted,
    a_host_is_told_of_its_parts_in_this_life_of_it_alone,
    what_moves_is_told_to_both_hosts_until_it_is_there,
    whoever_lost_the_shard_writes_nothing,
    snapshots_are_retired_before_they_are_removed,
    nothing_is_left_of_a_stream_that_is_gone,
    rows_are_handed_over_once_and_in_order,
    what_is_old_is_forgotten_but_hosts_with_parts,
);

fn by(who: &str) -> By {
    By { namespace: "default".into(), who: who.into(), at: Timestamp(5) }
}

fn id(text: &str) -> StreamId {
    StreamId(text.into())
}

fn new(stream: &str, name: &str, sameness: u8, over: Over) -> NewStream {
    let (definition, sameness) = (format!("kind: Stream # {sameness}"), [sameness; 32]);
    NewStream { id: id(stream), by: by("ana"), name: name.into(), shard: ShardId(0), definition, sameness, over }
}

fn part(stream: &str, what: What, replica: u32) -> Part {
    Part { stream: id(stream), what, replica }
}

fn row(part: Part, host: Option<(&str, u64)>, epoch: u64) -> PartRow {
    let seat = host.map(|(host, boot)| Seat { host: host.into(), boot });
    PartRow { part, seat, epoch, why: "a test".into(), since: Timestamp(9) }
}

fn kept(part: Part, offset: u64) -> Kept {
    let key = snapshot_key(&part, 1, offset, u64::MAX);
    Kept { part, epoch: 1, snapshot: Snapshot { offset, key, bytes: 7, taken_at: Timestamp(3) }, retired_at: None }
}

fn host(id: &str, boot: u64) -> HostRow {
    let labels = BTreeMap::from([("zone".to_owned(), "lab".to_owned())]);
    let standing = Standing::Inside;
    let (name, layer) = (format!("{id}-name"), "cloud".to_owned());
    let host = HostView { id: id.into(), name, standing, layer, labels, cores: 2, memory_bytes: 9 };
    let report = Report {
        part: part("s1", What::Stage(0), 0),
        epoch: 1,
        state: State::Waiting("a \"quote\" and \u{1F980}".into()),
        next: u64::from(u32::MAX) + 1,
        snapshot: None,
        measures: Measures { latency_us_p95: 7, cpu: 0.25, ..Measures::default() },
    };
    let node = Usage { cpus: vec![0.5], ..Usage::default() };
    HostRow { host, boot, beats: 0, heard_at: Timestamp(11), node, reports: vec![report] }
}

async fn written(store: &Shared, fence: &Fence, batch: Batch) {
    assert_eq!(store.write(fence.clone(), Arc::new(batch)).await.unwrap(), Fate::Durable);
}

async fn a_stream_is_made_left_alone_refused_or_replaced(engine: &Engine) {
    let store = store::open(&engine.database().await);
    let deploy = |new: NewStream| store.deploy(new);
    assert_eq!(deploy(new("s1", "a", 1, Over::Refuse)).await.unwrap(), Deployed::Made(id("s1")));
    assert_eq!(deploy(new("s2", "a", 1, Over::Refuse)).await.unwrap(), Deployed::Unchanged(id("s1")));
    assert_eq!(deploy(new("s2", "a", 1, Over::Replace)).await.unwrap(), Deployed::Unchanged(id("s1")));
    assert_eq!(deploy(new("s2", "a", 2, Over::Refuse)).await.unwrap(), Deployed::Differs(id("s1")));
    let replaced = Deployed::Replaced { was: id("s1"), is: id("s2") };
    assert_eq!(deploy(new("s2", "a", 2, Over::Replace)).await.unwrap(), replaced);
    assert_eq!(deploy(new("s3", "b", 1, Over::Replace)).await.unwrap(), Deployed::Made(id("s3")));
    let there = store.stream("default".into(), "a".into()).await.unwrap().unwrap();
    assert_eq!((there.id.clone(), there.state, there.follows), (id("s2"), StreamState::Running, Some(id("s1"))));
    assert_eq!((there.definition.as_str(), there.owner.as_str()), ("kind: Stream # 2", "ana"));
    assert_eq!(store.stream("other".into(), "a".into()).await.unwrap(), None);
    let names = |rows: Vec<store::StreamRow>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
    assert_eq!(names(store.streams("default".into(), String::new(), 9).await.unwrap()), ["a", "b"]);
    assert_eq!(names(store.streams("default".into(), "a".into(), 9).await.unwrap()), ["b"]);
    assert_eq!(names(store.streams("default".into(), String::new(), 1).await.unwrap()), ["a"]);
    let was = store.by_id(vec![id("s1"), id("none")]).await.unwrap();
    assert_eq!((was.len(), was[0].state), (1, StreamState::Deleted));
    let held = store.held(vec![ShardId(0)]).await.unwrap();
    assert_eq!(held.streams.iter().map(|row| row.id.0.as_str()).collect::<Vec<_>>(), ["s1", "s2", "s3"]);
    assert_eq!(store.held(vec![ShardId(1)]).await.unwrap().streams, []);
}

async fn two_who_deploy_one_name_at_once_make_one_stream(engine: &Engine) {
    let store = store::open(&engine.database().await);
    let all = (0..8).map(|n| {
        let (store, stream) = (store.clone(), format!("s{n}"));
        tokio::spawn(async move { store.deploy(new(&stream, "a", 1, Over::Refuse)).await.unwrap() })
    });
    let mut made = 0;
    for one in all.collect::<Vec<_>>() {
        made += u32::from(matches!(one.await.unwrap(), Deployed::Made(_)));
    }
    assert_eq!(made, 1);
}

async fn what_is_done_to_a_stream_is_told_by_whom(engine: &Engine) {
    let store = store::open(&engine.database().await);
    store.deploy(new("s1", "a", 1, Over::Refuse)).await.unwrap();
    let set = |who: &str, to: StreamState| store.set_state(by(who), "a".into(), to);
    assert_eq!(set("bo", StreamState::Paused).await.unwrap().unwrap().state, StreamState::Running);
    assert_eq!(set("bo", StreamState::Paused).await.unwrap().unwrap().state, StreamState::Paused);
    let row = store.stream("default".into(), "a".into()).await.unwrap().unwrap();
    assert_eq!((row.state, row.changed_by.as_str()), (StreamState::Paused, "bo"));
    set("ana", StreamState::Running).await.unwrap();
    set("bo", StreamState::Deleted).await.unwrap();
    assert_eq!(set("bo", StreamState::Running).await.unwrap(), None, "what is deleted comes back under no name");
    let told = store.history("default".into(), "a".into(), 9).await.unwrap();
    let told: Vec<String> = told.iter().map(|event| format!("{} {}", event.who, event.what)).collect();
    assert_eq!(told, ["bo delete", "ana resume", "bo pause", "ana deploy"]);
    assert_eq!(store.history("default".into(), "a".into(), 2).await.unwrap().len(), 2);
    assert_eq!(store.history("other".into(), "a".into(), 2).await.unwrap(), []);
}

async fn hosts_are_as_they_said_last_and_their_beats_are_counted(engine: &Engine) {
    let store = store::open(&engine.database().await);
    assert_eq!(store.beat(host("h", u64::MAX)).await.unwrap(), 1);
    assert_eq!(store.beat(host("h", u64::MAX)).await.unwrap(), 2);
    assert_eq!(store.beat(host("g", 1)).await.unwrap(), 1);
    let hosts = store.hosts().await.unwrap();
    let expected = [HostRow { beats: 1, ..host("g", 1) }, HostRow { beats: 2, ..host("h", u64::MAX) }];
    assert_eq!(hosts, expected);
}

async fn a_host_is_told_of_its_parts_in_this_life_of_it_alone(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = store::open(&database);
    store.deploy(new("s1", "a", 1, Over::Refuse)).await.unwrap();
    let (source, stage) = (part("s1", What::Source(0), 0), part("s1", What::Stage(1), 2));
    let rows = vec![row(source.clone(), Some(("h", 7)), 3), row(stage.clone(), Some(("h", 8)), 1)];
    written(&store, &fence, Batch { parts: rows.clone(), ..Batch::default() }).await;
    let seated = |boot| store.seated(Seat { host: "h".into(), boot });
    let told = seated(7).await.unwrap();
    assert_eq!((told.len(), told[0].part.clone(), told[0].epoch, told[0].state), (1, source, 3, StreamState::Running));
    assert_eq!(seated(8).await.unwrap()[0].part, stage);
    assert_eq!(seated(9).await.unwrap(), []);
    assert_eq!(store.parts(vec![id("s1")]).await.unwrap(), rows);
    let nowhere = row(stage.clone(), None, 1);
    written(&store, &fence, Batch { parts: vec![nowhere.clone()], ..Batch::default() }).await;
    assert_eq!(seated(8).await.unwrap(), []);
    assert_eq!(store.held(vec![ShardId(0)]).await.unwrap().parts, [rows[0].clone(), nowhere]);
    store.set_state(by("bo"), "a".into(), StreamState::Paused).await.unwrap();
    assert_eq!(seated(7).await.unwrap()[0].state, StreamState::Paused);
    store.set_state(by("bo"), "a".into(), StreamState::Deleted).await.unwrap();
    assert_eq!(seated(7).await.unwrap(), [], "what is deleted is run by nobody");
}

async fn what_moves_is_told_to_both_hosts_until_it_is_there(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = store::open(&database);
    store.deploy(new("s1", "a", 1, Over::Refuse)).await.unwrap();
    let stage = part("s1", What::Stage(0), 0);
    let here = row(stage.clone(), Some(("h", 7)), 3);
    written(&store, &fence, Batch { parts: vec![here], ..Batch::default() }).await;
    let since = Timestamp(9);
    let asked =
        Move { part: stage.clone(), to: "g".into(), begun: None, who: "ana".into(), why: "a test".into(), since };
    assert!(store.ask_move(by("ana"), asked.clone()).await.unwrap());
    let again = Move { to: "other".into(), ..asked.clone() };
    assert!(!store.ask_move(by("bo"), again).await.unwrap(), "one at a time");
    let nowhere = Move { part: part("gone", What::Stage(0), 0), ..asked.clone() };
    assert!(!store.ask_move(by("bo"), nowhere).await.unwrap());
    let moves = || store.moves(vec![id("s1")]);
    assert_eq!(moves().await.unwrap(), std::slice::from_ref(&asked));
    let told = |host: &str, boot| store.seated(Seat { host: host.into(), boot });
    assert_eq!(told("g", 0).await.unwrap(), [], "it is not begun");
    let boot = u64::MAX;
    let begun = Move { begun: Some(Begun { boot, epoch: 4 }), since: Timestamp(10), ..asked.clone() };
    written(&store, &fence, Batch { moves: vec![begun.clone()], ..Batch::default() }).await;
    assert_eq!(store.held(vec![ShardId(0)]).await.unwrap().moves, [begun]);
    let epochs =
        |seated: Vec<store::Seated>| seated.iter().map(|one| (one.part.clone(), one.epoch)).collect::<Vec<_>>();
    assert_eq!(epochs(told("h", 7).await.unwrap()), [(stage.clone(), 3)]);
    assert_eq!(epochs(told("g", boot).await.unwrap()), [(stage.clone(), 4)]);
    let there = row(stage.clone(), Some(("g", boot)), 4);
    let over = Batch { parts: vec![there], moved: vec![stage.clone()], ..Batch::default() };
    written(&store, &fence, over).await;
    assert_eq!((moves().await.unwrap(), told("h", 7).await.unwrap()), (vec![], vec![]));
    assert_eq!(epochs(told("g", boot).await.unwrap()), [(stage.clone(), 4)]);
    assert!(store.ask_move(by("ana"), asked).await.unwrap());
    store.set_state(by("bo"), "a".into(), StreamState::Deleted).await.unwrap();
    written(&store, &fence, Batch { gone: vec![id("s1")], ..Batch::default() }).await;
    assert_eq!(moves().await.unwrap(), [], "it goes with its stream");
    let told: Vec<String> =
        store.history("default".into(), "a".into(), 9).await.unwrap().into_iter().map(|event| event.what).collect();
    assert_eq!(told.iter().filter(|what| *what == "migrate").count(), 2, "{told:?}");
}

async fn whoever_lost_the_shard_writes_nothing(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = store::open(&database);
    store.deploy(new("s1", "a", 1, Over::Refuse)).await.unwrap();
    let stale = Fence { generation: fence.generation + 1, ..fence };
    let parts = vec![row(part("s1", What::Source(0), 0), Some(("h", 7)), 3)];
    let batch = Batch { parts, gone: vec![id("s1")], ..Batch::default() };
    assert_eq!(store.write(stale, Arc::new(batch)).await.unwrap(), Fate::Fenced);
    let held = store.held(vec![ShardId(0)]).await.unwrap();
    assert_eq!((held.streams.len(), held.parts.len()), (1, 0));
}

async fn snapshots_are_retired_before_they_are_removed(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = store::open(&database);
    store.deploy(new("s1", "a", 1, Over::Refuse)).await.unwrap();
    let stage = part("s1", What::Stage(0), 1);
    let all = vec![kept(stage.clone(), 10), kept(stage.clone(), u64::from(u32::MAX) + 9)];
    let key = all[0].snapshot.key.clone();
    written(&store, &fence, Batch { snapshots: all.clone(), ..Batch::default() }).await;
    written(&store, &fence, Batch { snapshots: all.clone(), ..Batch::default() }).await;
    let sorted = |mut all: Vec<Kept>| {
        all.sort_by_key(|kept| kept.snapshot.offset);
        all
    };
    assert_eq!(sorted(store.snapshots(vec![id("s1")]).await.unwrap()), all);
    written(&store, &fence, Batch { retired: vec![(key.clone(), Timestamp(50))], ..Batch::default() }).await;
    written(&store, &fence, Batch { retired: vec![(key.clone(), Timestamp(90))], ..Batch::default() }).await;
    assert_eq!(store.snapshots(vec![id("s1")]).await.unwrap(), [all[1].clone()]);
    let held = sorted(store.held(vec![ShardId(0)]).await.unwrap().snapshots);
    assert_eq!((held.len(), held[0].retired_at), (2, Some(Timestamp(50))));
    written(&store, &fence, Batch { removed: vec![key], ..Batch::default() }).await;
    assert_eq!(store.held(vec![ShardId(0)]).await.unwrap().snapshots.len(), 1);
}

async fn nothing_is_left_of_a_stream_that_is_gone(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = store::open(&database);
    store.deploy(new("s1", "a", 1, Over::Refuse)).await.unwrap();
    let stage = part("s1", What::Stage(0), 0);
    let event = Event { at: Timestamp(6), who: "m".into(), what: "place".into(), detail: "stage a on h".into() };
    let batch = Batch {
        parts: vec![row(stage.clone(), Some(("h", 1)), 1)],
        snapshots: vec![kept(stage, 10)],
        events: vec![(id("s1"), event.clone()), (id("nobody"), event.clone())],
        ..Batch::default()
    };
    written(&store, &fence, batch).await;
    store.hand_over(id("s1"), 0, Place { offset: 1, row: 1 }).await.unwrap();
    assert_eq!(store.history("default".into(), "a".into(), 1).await.unwrap(), [event]);
    written(&store, &fence, Batch { gone: vec![id("s1")], ..Batch::default() }).await;
    assert_eq!(store.by_id(vec![id("s1")]).await.unwrap().len(), 1, "only what was deleted goes");
    store.set_state(by("bo"), "a".into(), StreamState::Deleted).await.unwrap();
    written(&store, &fence, Batch { gone: vec![id("s1")], ..Batch::default() }).await;
    assert_eq!(store.held(vec![ShardId(0)]).await.unwrap(), store::Held::default());
    assert_eq!(store.handed_over(id("s1"), 0).await.unwrap(), None);
    assert_eq!(store.history("default".into(), "a".into(), 9).await.unwrap().len(), 3, "what was done stays told");
}

async fn rows_are_handed_over_once_and_in_order(engine: &Engine) {
    let store = store::open(&engine.database().await);
    store.deploy(new("s1", "a", 1, Over::Refuse)).await.unwrap();
    let at = |offset, row| Place { offset, row };
    assert_eq!(store.handed_over(id("s1"), 0).await.unwrap(), None);
    for (place, last) in [(at(5, 2), at(5, 2)), (at(5, 1), at(5, 2)), (at(4, 9), at(5, 2)), (at(6, 0), at(6, 0))] {
        store.hand_over(id("s1"), 0, place).await.unwrap();
        assert_eq!(store.handed_over(id("s1"), 0).await.unwrap(), Some(last));
    }
    assert_eq!(store.handed_over(id("s1"), 1).await.unwrap(), None);
    store.hand_over(id("nobody"), 0, at(1, 1)).await.unwrap();
    assert_eq!(store.handed_over(id("nobody"), 0).await.unwrap(), None);
}

async fn what_is_old_is_forgotten_but_hosts_with_parts(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = store::open(&database);
    store.deploy(new("s1", "a", 1, Over::Refuse)).await.unwrap();
    store.set_state(by("bo"), "a".into(), StreamState::Paused).await.unwrap();
    store.beat(host("idle", 1)).await.unwrap();
    store.beat(host("busy", 1)).await.unwrap();
    let parts = vec![row(part("s1", What::Source(0), 0), Some(("busy", 1)), 1)];
    written(&store, &fence, Batch { parts, ..Batch::default() }).await;
    assert_eq!(store.sweep(Timestamp(5), 10).await.unwrap(), 0);
    assert_eq!(store.sweep(Timestamp(100), 1).await.unwrap(), 1);
    assert_eq!(store.sweep(Timestamp(100), 10).await.unwrap(), 1);
    let left: Vec<String> = store.hosts().await.unwrap().into_iter().map(|row| row.host.id).collect();
    assert_eq!(left, ["busy"]);
}
