use std::time::Duration;

use mutirao_core::{ShardId, Timestamp};
use mutirao_movers::Strategy;
use mutirao_streams::wire::{HostView, Measures, Part, Report, Standing, State, Usage};

use super::*;
use crate::placing::{Needs, Seat};
use crate::store::{Held, HostRow, PartRow, StreamRow, StreamState};

fn part(what: What) -> Part {
    Part { stream: StreamId("s1".into()), what, replica: 0 }
}

fn host(id: &str, beats: u64, busy: f64, reports: Vec<Report>) -> (HostRow, Life) {
    let (name, layer) = (format!("{id}-name"), "edge".to_owned());
    let memory_bytes = 8 << 30;
    let host = HostView {
        id: id.into(),
        name,
        standing: Standing::Apart,
        layer,
        labels: BTreeMap::new(),
        cores: 2,
        memory_bytes,
    };
    let node = Usage {
        cpus: vec![busy; 2],
        cores: 0.0,
        io_wait: vec![busy / 10.0; 2],
        memory_bytes: (busy * 4e9) as u64,
        memory_total_bytes: memory_bytes,
        disk_bytes: (busy * 1e6) as u64,
        network_bytes: (busy * 1e6) as u64,
    };
    (HostRow { host, boot: 1, beats, heard_at: Timestamp(0), node, reports }, Life::Alive)
}

fn report(what: What, measures: Measures) -> Report {
    Report { part: part(what), epoch: 3, state: State::Running, next: 9, snapshot: None, measures }
}

struct Scenery {
    rounds: Rounds,
    second: u64,
    /// Of the host with nothing to do.
    idle: Standing,
    /// Of each part, beside its latency.
    measures: fn(u64) -> Measures,
}

impl Scenery {
    fn of(strategy: Strategy) -> Self {
        let measures = |_: u64| Measures { events_in: 100, events_out: 100, cpu: 0.1, ..Measures::default() };
        Self { rounds: Rounds::of(Settings::of(strategy)), second: 0, idle: Standing::Apart, measures }
    }

    /// A second in which a stage and a sink on `busy` have this latency, beside a host with nothing to do.
    fn second(&mut self, latency_us: u64, moves: Vec<Move>) -> Vec<Said> {
        self.second += 1;
        let whats = [What::Stage(0), What::Sink(0)];
        let seat = Some(Seat { host: "k-busy".into(), boot: 1 });
        let row =
            |what| PartRow { part: part(what), seat: seat.clone(), epoch: 3, why: String::new(), since: Timestamp(0) };
        let stream = StreamRow {
            id: StreamId("s1".into()),
            namespace: "default".into(),
            name: "grid".into(),
            owner: "ana".into(),
            shard: ShardId(0),
            definition: String::new(),
            state: StreamState::Running,
            follows: None,
            deployed_at: Timestamp(0),
            changed_at: Timestamp(0),
            changed_by: "ana".into(),
        };
        let measures = Measures { latency_us_mean: latency_us, ..(self.measures)(self.second) };
        let reports = whats.map(|what| report(what, measures)).to_vec();
        let mut idle = host("k-idle", self.second, 0.1, vec![]);
        idle.0.host.standing = self.idle;
        let sight = Sight {
            now: Timestamp(5_000),
            fences: BTreeMap::new(),
            held: Held { streams: vec![stream], parts: whats.map(row).into(), snapshots: vec![], moves },
            graphs: HashMap::new(),
            hosts: vec![host("k-busy", self.second, 0.8, reports), idle],
        };
        let hosts: Vec<Host> = sight.hosts.iter().map(|(row, life)| super::super::host(row, *life)).collect();
        let wanted: Vec<Wanted> = sight
            .held
            .parts
            .iter()
            .map(|row| Wanted {
                part: row.part.clone(),
                needs: Needs::default(),
                seat: row.seat.clone(),
                epoch: row.epoch,
                bound_for: None,
            })
            .collect();
        let now = Mono(Duration::from_secs(1_000 + self.second));
        self.rounds.go_on(&sight, &hosts, &wanted, now)
    }

    /// What is said in this many seconds of latencies that grow.
    fn grows(&mut self, seconds: u64, moves: &[Move]) -> Vec<Said> {
        (0..seconds).flat_map(|n| self.second(1_000 * (1 + n % 10) * (1 + n % 10), moves.to_vec())).collect()
    }
}

#[test]
fn a_stage_whose_latency_grows_is_wished_to_where_there_is_room_and_it_is_said_why() {
    let mut scenery = Scenery::of(Strategy::adaptive(0.25));
    let said = scenery.grows(15, &[]);
    let [said] = &said[..] else { panic!("{} rounds", said.len()) };
    let [one] = &said.moves[..] else { panic!("the sink grew as much, and stays: {:?}", said.moves) };
    assert_eq!((one.part.what, one.to.as_str(), one.begun, one.who.as_str()), (What::Stage(0), "k-idle", None, WHO));
    assert!(one.why.starts_with("its latency grew by"), "{}", one.why);
    let told = said.told.as_deref().unwrap();
    assert!(told.starts_with("round 1 at 10 s, adaptive"), "{told}");
    assert!(told.contains("moves to k-idle-name") && told.contains("on k-busy-name"), "{told}");
    assert!(told.contains("Sink(0) on k-busy-name: its latency grew"), "{told}");
}

#[test]
fn nothing_is_moved_from_a_host_apart_into_a_manager() {
    let mut scenery = Scenery { idle: Standing::Inside, ..Scenery::of(Strategy::adaptive(0.25)) };
    let [said] = &scenery.grows(15, &[])[..] else { panic!() };
    assert!(said.moves.is_empty());
    assert!(said.told.as_deref().unwrap().contains("k-idle-name: takes none"), "{said:?}", said = said.told);
}

#[test]
fn what_was_found_before_is_told_again_once_all_was_well_in_between_and_not_sooner() {
    let mut scenery = Scenery { idle: Standing::Inside, ..Scenery::of(Strategy::adaptive(0.25)) };
    let told = |scenery: &mut Scenery, seconds| {
        scenery.grows(seconds, &[]).iter().filter_map(|said| said.told.as_ref()).count()
    };
    assert_eq!(told(&mut scenery, 15), 1);
    assert_eq!(told(&mut scenery, 30), 0, "nothing new");
    let well: Vec<Said> = (0..30).flat_map(|_| scenery.second(2_000, vec![])).collect();
    assert!(well.iter().all(|said| said.told.is_none()));
    assert_eq!(told(&mut scenery, 15), 1);
}

#[test]
fn when_no_host_has_room_it_is_said_once_what_is_missing() {
    let measures =
        |second: u64| Measures { events_in: 100, cpu: 0.9, queue: 1_000 + 5 * second, ..Measures::default() };
    let full = Scenery { idle: Standing::Inside, measures, ..Scenery::of(Strategy::mutirao()) };
    let mut scenery = full;
    let told: Vec<String> =
        (0..60).flat_map(|_| scenery.second(9_000_000, vec![])).filter_map(|said| said.told).collect();
    let asks: Vec<&String> = told.iter().filter(|told| told.contains("no host has room")).collect();
    let [asks] = asks[..] else { panic!("{told:?}") };
    assert!(asks.contains("cores is missing for Stage(0) (start it with `mutirao role host`)"), "{asks}");
}

#[test]
fn nothing_is_wished_while_something_is_on_its_way_nor_by_no_strategy_nor_when_all_is_well() {
    let moves = Scenery::of(Strategy::adaptive(0.25)).grows(15, &[]).remove(0).moves;
    assert!(Scenery::of(Strategy::adaptive(0.25)).grows(40, &moves).iter().all(|said| said.moves.is_empty()));
    assert!(Scenery::of(Strategy::None).grows(40, &[]).is_empty());
    let mut calm = Scenery::of(Strategy::mutirao());
    assert!((0..60).all(|_| calm.second(2_000, vec![]).is_empty()));
}

#[test]
fn a_host_that_says_nothing_new_is_not_heard_twice() {
    let mut scenery = Scenery::of(Strategy::adaptive(0.25));
    scenery.second(1_000, vec![]);
    // The same beat over and over, as when a host is silent: nothing grows.
    for _ in 0..30 {
        let before = scenery.second;
        scenery.second -= 1;
        let said = scenery.second(90_000, vec![]);
        assert_eq!(scenery.second, before);
        assert!(said.is_empty());
    }
}
