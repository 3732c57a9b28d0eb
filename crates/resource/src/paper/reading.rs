//! What was noted on paper, for people: of each queue how many and why, where they go, which nodes are made, who leaves, and
//! what is held back.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_core::{QueueName, WorkerId};
use mutirao_elastic::fleet::{Life, Member};
use mutirao_elastic::packing::price::TAKES;
use mutirao_elastic::packing::{Kind, NodeName};
use mutirao_elastic::protocol::{QueueBalance, Record, Wish};
use mutirao_elastic::view::{EmptyPlan, LeavePlan, MakePlan, PlacePlan, Plan, QueuePlan};

use super::desk::{Desk, Notes};
use crate::provider::Origin;

pub fn plan(desk: &Desk, unplaced: &BTreeMap<QueueName, String>) -> Plan {
    let notes = desk.notes();
    let have = desk.have();
    let recorded = desk.balance.queues.iter().flat_map(|queue| queue.fleet.members.values());
    let inhabited: BTreeSet<&NodeName> = recorded.filter_map(|member| member.node.as_ref()).collect();
    let placed: BTreeSet<&NodeName> = notes.placed.values().flatten().collect();
    let made = || have.nodes.iter().filter(|seen| seen.origin == Origin::Made);
    let empty = made().filter(|seen| seen.node.answers).map(|seen| &seen.node.name);
    let idle = empty.filter(|node| !inhabited.contains(node) && !placed.contains(node)).map(|node| node.0.clone());
    let mut held = Vec::new();
    if desk.is_bare() && !desk.balance.queues.is_empty() {
        held.push("no resource manager has said which nodes there are, or could be had: nobody can be placed".into());
    }
    let coming = made().filter(|seen| !seen.node.answers).count();
    if made().count() > coming {
        if !unplaced.is_empty() {
            held.push("no node is emptied while workers have no place".into());
        } else if coming > 0 {
            let are = if coming == 1 { "is" } else { "are" };
            held.push(format!("no node is emptied while {coming} {are} being made"));
        }
    }
    Plan {
        at: desk.balance.at,
        holder: None,
        queues: desk.balance.queues.iter().map(|queue| of_queue(desk, queue, &notes, unplaced)).collect(),
        empty: notes.emptied.values().map(emptying).collect(),
        idle: idle.collect(),
        held,
    }
}

fn of_queue(desk: &Desk, queue: &QueueBalance, notes: &Notes, unplaced: &BTreeMap<QueueName, String>) -> QueuePlan {
    let name = &queue.queue;
    let record = notes.records.get(name);
    let started = notes.started.get(name).into_iter().flatten().map(|(_, node)| node);
    let place = counted(notes.placed.get(name).into_iter().flatten().chain(started));
    let made = counted(notes.made.get(name).into_iter().flatten());
    let mut held = Vec::new();
    if record.is_none() {
        held.push("the owner of the queue does not know yet who is there: nothing is concluded".into());
    }
    held.extend(unplaced.get(name).cloned());
    if let Some(trouble) = record.and_then(|record| record.trouble.as_ref()) {
        held.push(format!("the provider is in trouble: {trouble}"));
    }
    let standing = queue.fleet.counts().standing();
    let wanted = record.map(|record| record.decision.wanted);
    let taken_up: u32 = place.iter().map(|(_, count)| count).sum();
    // Who has come needs no place any more, though that may not be written yet.
    let here = |worker: &WorkerId| queue.sessions.as_ref().is_some_and(|sessions| sessions.contains_key(worker));
    let asked = queue.fleet.members.iter().filter(|(worker, member)| member.life == Life::Asked && !here(worker));
    let asked = asked.count() as u32;
    let more = wanted.unwrap_or(0).saturating_sub(standing.saturating_sub(asked) + taken_up);
    if more > 0 && !made.is_empty() {
        held.push(format!("{more} more follow when the nodes are there"));
    } else if more > 0
        && !desk.is_bare()
        && !unplaced.contains_key(name)
        && record.is_some_and(|record| record.trouble.is_none())
    {
        held.push(format!("{more} more follow in the passes after this one, or when a node that is coming is there"));
    }
    let takes = queue.state.task_takes().unwrap_or(TAKES);
    let kind = |name: &str| desk.kinds.iter().find(|kind| kind.name == name);
    let make = |(kind_name, nodes): (&String, u32)| {
        let of = |figure: &dyn Fn(&Kind) -> u64| kind(kind_name).map_or(0, figure);
        MakePlan {
            kind: kind_name.clone(),
            nodes,
            market: kind(kind_name).map(|kind| kind.market).unwrap_or_default(),
            price_micros_per_hour: of(&|kind| kind.price_micros_per_hour),
            expected_micros_per_hour: of(&|kind| kind.expected_micros_per_hour(takes)),
        }
    };
    QueuePlan {
        queue: name.clone(),
        standing,
        wanted,
        because: record.map(|record| record.decision.because.to_string()),
        place: place.into_iter().map(|(node, workers)| PlacePlan { node: node.0.clone(), workers }).collect(),
        make: made.into_iter().map(make).collect(),
        drain: record.map(|record| drained(desk, queue, notes, record)).unwrap_or_default(),
        end: record.map(|record| ended(queue, notes, record)).unwrap_or_default(),
        held,
    }
}

fn drained(desk: &Desk, queue: &QueueBalance, notes: &Notes, record: &Record) -> Vec<LeavePlan> {
    let before = |worker: &WorkerId| queue.fleet.members.get(worker).map(|member| member.life);
    let news = record.members.iter().filter(|(worker, member)| {
        member.life == Life::Draining && before(worker).is_some_and(|life| life < Life::Draining)
    });
    let wish = |node: &NodeName| desk.balance.nodes.iter().find(|record| record.node.name == *node).map(|r| r.wish);
    let why = |member: &Member| match &member.node {
        Some(node) if notes.emptied.contains_key(node) => "its node is emptied",
        Some(node) if wish(node) == Some(Wish::Drained) => "its node is to be empty, as people want it",
        _ => "it is not needed, or others need its room more",
    };
    news.map(|(worker, member)| leaving(worker, member, why(member))).collect()
}

fn ended(queue: &QueueBalance, notes: &Notes, record: &Record) -> Vec<LeavePlan> {
    let members = &queue.fleet.members;
    let known = |worker: &WorkerId| members.get(worker).cloned();
    let ends = notes.ended.iter().filter_map(|worker| Some((worker, known(worker)?)));
    let why = |member: &Member| match member.life {
        Life::Asked | Life::Launching => "it did not report in time",
        Life::Reported => "it is silent",
        Life::Draining => "it has drained",
        Life::Ending => "it is still there",
    };
    let ends = ends.map(|(worker, member)| leaving(worker, &member, why(&member)));
    let let_go = record.dismissed.iter().chain(&record.gone).filter_map(|worker| Some((worker, known(worker)?)));
    ends.chain(let_go.map(|(worker, member)| leaving(worker, &member, "its node does not have it"))).collect()
}

fn leaving(worker: &WorkerId, member: &Member, because: &str) -> LeavePlan {
    let node = member.node.as_ref().map(|node| node.0.clone());
    LeavePlan { worker: worker.clone(), node, because: because.into() }
}

fn emptying(of: &mutirao_elastic::packing::consolidating::Emptying) -> EmptyPlan {
    EmptyPlan {
        node: of.node.0.clone(),
        workers: u32::try_from(of.workers).unwrap_or(u32::MAX),
        done_in: mutirao_core::quantity::Span::secs(of.done_in.as_secs()),
        saves_micros: of.saves_micros,
        draining_micros: of.draining_micros,
        killing_micros: of.killing_micros,
        because: of.to_string(),
    }
}

/// Each with how often it is there, in their order.
fn counted<'a, T: Ord + ?Sized>(all: impl Iterator<Item = &'a T>) -> Vec<(&'a T, u32)> {
    let mut counts: BTreeMap<&T, u32> = BTreeMap::new();
    all.for_each(|one| *counts.entry(one).or_default() += 1);
    counts.into_iter().collect()
}
