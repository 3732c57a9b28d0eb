//! The answer to a balance check, put together from what is kept, what is defined and what owners see. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_core::quantity::Span;
use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_elastic::fleet::{Fleet, Life, Member};
use mutirao_elastic::measure::{Host, Load, Sample, Stage, Use};
use mutirao_elastic::packing::amounts::{CPU_MILLI, MEMORY_BYTES};
use mutirao_elastic::packing::{Amounts, Need};
use mutirao_elastic::protocol::{Balance, QUEUES_MAX, QueueBalance};
use mutirao_queues::{QueueSight, QueueSpec};

use crate::store::{Kept, MemberRow};

/// The queues that a resource manager looks after: those with a policy, and those that still have workers of a former one.
pub fn elastic_queues(specs: &[QueueSpec], kept: &Kept) -> Vec<QueueName> {
    let with_policy = specs.iter().filter(|spec| spec.elastic.is_some()).map(|spec| &spec.name);
    let with_workers = kept.members.iter().map(|row| &row.queue);
    let all: BTreeSet<&QueueName> = with_policy.chain(with_workers).collect();
    all.into_iter().take(QUEUES_MAX).cloned().collect()
}

pub fn assemble(
    queues: Vec<QueueName>,
    specs: &[QueueSpec],
    mut kept: Kept,
    sights: Vec<QueueSight>,
    host: Host,
    now: Timestamp,
) -> Balance {
    let mut sights: BTreeMap<QueueName, QueueSight> =
        sights.into_iter().map(|sight| (sight.queue.clone(), sight)).collect();
    let specs: BTreeMap<&QueueName, &QueueSpec> = specs.iter().map(|spec| (&spec.name, spec)).collect();
    let mut fleets = fleets(&mut kept);
    let mut decided: BTreeMap<_, _> = kept.decided.into_iter().map(|kept| (kept.queue.clone(), kept)).collect();
    let queues = queues.into_iter().map(|queue| {
        let spec = specs.get(&queue);
        let (state, trouble) = decided.remove(&queue).map_or_else(Default::default, |kept| (kept.state, kept.trouble));
        let fleet = Fleet::of(fleets.remove(&queue).unwrap_or_default(), trouble);
        let sight = sights.remove(&queue);
        let need = spec.map_or_else(Need::default, |spec| spec.workers.need());
        let load = Load {
            at: now,
            workers: fleet.counts(),
            tasks: sight.as_ref().map(|sight| sight.tasks),
            boot: None,
            host: host_of(host, sight.as_ref()),
            samples: samples(&fleet, &need.amounts, sight.as_ref(), now),
        };
        QueueBalance {
            elastic: spec.and_then(|spec| spec.elastic.clone()),
            need,
            load,
            sessions: sight.and_then(|sight| sight.sessions),
            state,
            fleet,
            queue,
        }
    });
    let queues = queues.collect();
    let nodes = kept.nodes.iter().filter(|row| row.offered_at.is_some()).map(|row| row.record()).collect();
    Balance { at: now, queues, nodes }
}

/// The members of each queue. Whoever is drained, by people too, is at least draining, whatever the last record said.
pub fn fleets(kept: &mut Kept) -> BTreeMap<QueueName, BTreeMap<WorkerId, Member>> {
    let drained: BTreeMap<&WorkerId, Timestamp> =
        kept.draining.iter().map(|drained| (&drained.worker, drained.since)).collect();
    let mut fleets: BTreeMap<QueueName, BTreeMap<WorkerId, Member>> = BTreeMap::new();
    for MemberRow { worker, queue, mut member } in std::mem::take(&mut kept.members) {
        if let Some(since) = drained.get(&worker)
            && member.life < Life::Draining
        {
            member = Member::new(Life::Draining, *since, member.node);
        }
        fleets.entry(queue).or_default().insert(worker, member);
    }
    fleets
}

/// The machines of a queue's workers, the fullest of them; where none says anything, the manager's.
fn host_of(here: Host, sight: Option<&QueueSight>) -> Host {
    let footprints = sight.into_iter().flat_map(|sight| sight.footprints.values());
    let fullest = footprints.filter_map(|footprint| footprint.host_memory_percent).max();
    Host { memory_percent: fullest.map(f64::from).or(here.memory_percent), ..here }
}

/// What a worker did not measure is missing, which policies know from zero.
fn samples(fleet: &Fleet, need: &Amounts, sight: Option<&QueueSight>, now: Timestamp) -> Vec<Sample> {
    let stage = |member: &Member| match member.life {
        Life::Asked | Life::Launching => Stage::Creating,
        Life::Reported => Stage::Running(Span(now.since(member.since))),
        Life::Draining | Life::Ending => Stage::Draining,
    };
    let sample = |(worker, member): (&WorkerId, &Member)| {
        let used = sight.and_then(|sight| sight.footprints.get(worker)).copied().unwrap_or_default();
        Sample {
            stage: stage(member),
            cpu: Use { asked: need.get(CPU_MILLI), used: used.cpu_milli.map(u64::from) },
            memory: Use { asked: need.get(MEMORY_BYTES), used: used.memory_bytes },
        }
    };
    fleet.members.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use mutirao_core::envelope::Footprint;
    use mutirao_elastic::measure::{Source, Tasks};

    use super::*;
    use crate::store::Draining;

    fn spec(json: &str) -> QueueSpec {
        serde_json::from_str(json).unwrap()
    }

    fn member(worker: &str, queue: &str, life: Life) -> MemberRow {
        let member = Member::new(life, Timestamp(5), None);
        MemberRow { worker: WorkerId(worker.into()), queue: queue.parse().unwrap(), member }
    }

    fn balance(specs: &[QueueSpec], kept: Kept, sights: Vec<QueueSight>) -> Balance {
        assemble(elastic_queues(specs, &kept), specs, kept, sights, Host::default(), Timestamp(1_000))
    }

    #[test]
    fn a_queue_without_a_policy_is_left_out_unless_it_still_has_workers() {
        let specs =
            [spec(r#"{"name":"a","elastic":{"preset":"arrebol"}}"#), spec(r#"{"name":"b"}"#), spec(r#"{"name":"c"}"#)];
        let kept = Kept {
            members: vec![member("w1", "c", Life::Reported), member("w2", "deleted", Life::Reported)],
            ..Kept::default()
        };
        let balance = balance(&specs, kept, vec![]);
        let named: Vec<_> = balance.queues.iter().map(|q| (q.queue.as_str(), q.elastic.is_some())).collect();
        assert_eq!(named, [("a", true), ("c", false), ("deleted", false)]);
    }

    #[test]
    fn a_balance_can_be_read_however_long_ago_a_worker_reported() {
        let specs = [spec(r#"{"name":"a","elastic":{"preset":"arrebol"}}"#)];
        let mut kept = Kept { members: vec![member("w1", "a", Life::Reported)], ..Kept::default() };
        kept.members[0].member.since = Timestamp(0);
        let now = Timestamp(60 * 365 * 86_400_000);
        let balance = assemble(elastic_queues(&specs, &kept), &specs, kept, vec![], Host::default(), now);
        let written = serde_json::to_string(&balance).unwrap();
        let read: Balance = serde_json::from_str(&written).unwrap();
        assert_eq!(read.queues[0].fleet, balance.queues[0].fleet);
    }

    #[test]
    fn what_an_owner_did_not_say_is_missing_and_not_zero() {
        let specs = [spec(r#"{"name":"a","elastic":{"preset":"arrebol"}}"#)];
        let silent = balance(&specs, Kept::default(), vec![]);
        assert_eq!((silent.queues[0].load.tasks, silent.queues[0].sessions.clone()), (None, None));
        let sight = QueueSight {
            queue: "a".parse().unwrap(),
            tasks: Tasks { ready: 3, ..Tasks::default() },
            sessions: None,
            footprints: BTreeMap::new(),
        };
        let early = balance(&specs, Kept::default(), vec![sight]);
        assert_eq!((early.queues[0].load.tasks.unwrap().ready, early.queues[0].sessions.clone()), (3, None));
    }

    #[test]
    fn what_workers_use_reaches_the_policy_with_the_memory_of_their_machines() {
        let specs =
            [spec(r#"{"name":"a","workers":{"cpus":2,"memory":"1GiB"},"elastic":{"preset":"sentryweb-schedulers"}}"#)];
        let kept = Kept {
            members: vec![member("w1", "a", Life::Reported), member("w2", "a", Life::Reported)],
            ..Kept::default()
        };
        let footprint = |cpu_milli, host_memory_percent| Footprint {
            cpu_milli: Some(cpu_milli),
            memory_bytes: Some(1 << 29),
            host_memory_percent: Some(host_memory_percent),
        };
        let sight = |footprints| QueueSight {
            queue: "a".parse().unwrap(),
            tasks: Tasks::default(),
            sessions: None,
            footprints,
        };
        let of = |worker: &str, footprint| (WorkerId(worker.into()), footprint);
        let both = [of("w1", footprint(1_500, 40)), of("w2", footprint(500, 80))];
        let load = balance(&specs, kept.clone(), vec![sight(both.into())]).queues[0].load.clone();
        let gauges = [Source::Cpu, Source::Memory, Source::HostMemory].map(|source| load.gauge(source));
        assert_eq!(gauges, [Some(50.0), Some(50.0), Some(80.0)]);
        let one = [of("w1", footprint(1_500, 40))];
        let load = balance(&specs, kept.clone(), vec![sight(one.into())]).queues[0].load.clone();
        assert_eq!(load.gauge(Source::Cpu), Some(75.0), "who does not say is left out");
        let load = balance(&specs, kept, vec![]).queues[0].load.clone();
        assert_eq!([Source::Cpu, Source::HostMemory].map(|source| load.gauge(source)), [None, None]);
    }

    #[test]
    fn whoever_people_drain_is_draining_for_the_resource_manager_too() {
        let specs = [spec(r#"{"name":"a","elastic":{"preset":"arrebol"}}"#)];
        let drained = Draining {
            worker: WorkerId("w1".into()),
            queue: "a".parse().unwrap(),
            since: Timestamp(7),
            who: "ana".into(),
        };
        let kept = Kept {
            members: vec![member("w1", "a", Life::Reported), member("w2", "a", Life::Ending)],
            draining: vec![drained],
            ..Kept::default()
        };
        let queue = balance(&specs, kept, vec![]).queues.remove(0);
        let lives: Vec<_> = queue.fleet.members.values().map(|member| (member.life, member.since.0)).collect();
        assert_eq!(lives, [(Life::Draining, 7), (Life::Ending, 5)]);
        assert_eq!(queue.load.workers.draining, 2);
        assert_eq!(queue.load.samples.len(), 2);
    }
}
