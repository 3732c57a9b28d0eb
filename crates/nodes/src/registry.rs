//! Who is registered, with what, and who is refused. Registrations go in; what to answer, and whether something has to be
//! written, comes out. It is filled again from the store after a restart, and nodes say everything again when asked.
//!
//! - A registration like the last one of its node within [`Rules::dedupe`], and not forced, changes nothing; it is
//!   answered all the same, since the answer to the first may have been lost.
//! - Whoever first registered an id has it: by its key or its user's name. Another who claims it is refused and counted.
//!   A node that could show nothing is marked, let in only where that is allowed, and yields its id to one that can; so does one
//!   that RabbitMQ let in and that does not say as whom, to one whose credentials are for that id.
//! - A node that is silent for longer than healthy ones are is away: it gets nothing, and is kept for [`Rules::forget`], so
//!   that one that comes back after days is the same node.
//! - After a restart nobody is registered yet, as the document's table has it: a manager that went down is one that nobody is
//!   registered with. Whoever was heard of lately is *unconfirmed* until it registers again, which the first beat asks for,
//!   and gets nothing until then: it may not have come back itself, and what is sent there in vain would be held against
//!   it. Those that hear no beats, for they only speak HTTP, are believed. The others are away, as they were.
//! - Whoever is bound to no id (it showed nothing, or RabbitMQ let it in as somebody) and never gave a result is forgotten much
//!   sooner, and such have at most half of the room: a flood of invented ids fills nothing for long.
//! - A node that somebody took out is void with all that was known of it until then, whatever another manager still says. It
//!   may come again as a new one.
//! - Each node may register so often and no more; all ids that nobody knows share one allowance. A flood of invented ids
//!   keeps out other new ones, never those that are there.
//!
//! Not here: which node gets a task ([`routing`](crate::routing)), and whether a key or password is right.

mod bucket;
mod offered;
mod record;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bucket::Bucket;
use mutirao_core::{Mono, Timestamp};
pub use offered::Offered;
pub use record::{Changes, Gone, Heard, Now, Papers, Presence, Proof, Record, Refused, Rules, Strangers, Trust};
use record::{ack, count, fingerprint, parameters, slots, standing};

use crate::allowance::Warrant;
use crate::names::{ActionName, Namespace, NodeId, Offer};
use crate::preference::Protocol;
use crate::wire::{Parameters, Register};

#[derive(Debug)]
struct Node {
    record: Record,
    fingerprint: Option<[u8; 32]>,
    fingerprint_at: Mono,
    heard_at: Mono,
    /// It was silent for so long already when we began.
    silent_before: Duration,
    presence: Presence,
    bucket: Bucket,
    /// What was said by it, or in its name, and refused.
    refused: u64,
}

/// By the clock on the wall, as far as what was written down tells.
fn silent_for(record: &Record, now: Now) -> Duration {
    Duration::from_millis(u64::try_from(now.wall.0 - record.last_at.0).unwrap_or(0))
}

fn acceptable(said: &Register, namespace: &Namespace, warrant: &Warrant) -> Result<Offered, Refused> {
    let offered = Offered::of(said, namespace, &warrant.allowance);
    offered.refusal().map_or(Ok(offered), Err)
}

#[derive(Debug)]
pub struct Registry {
    rules: Rules,
    nodes: BTreeMap<NodeId, Node>,
    newcomers: Bucket,
    refusals: BTreeMap<Refused, u64>,
    /// When nodes were taken out. What is known of one from until then is void.
    removed: BTreeMap<NodeId, Timestamp>,
}

impl Registry {
    pub fn new(rules: Rules, now: Mono) -> Self {
        let newcomers =
            Bucket::full(rules.newcomers_burst, Duration::from_secs(10) / rules.newcomers_burst.max(1), now);
        Self { rules, nodes: BTreeMap::new(), newcomers, refusals: BTreeMap::new(), removed: BTreeMap::new() }
    }

    /// With what the store has.
    pub fn restore(&mut self, records: Vec<Record>, now: Now) {
        for record in records.into_iter().take(self.rules.nodes_max) {
            if self.is_void(&record) {
                continue;
            }
            let ago = silent_for(&record, now);
            let presence = if ago > self.rules.silence { Presence::Away } else { Presence::Unconfirmed };
            // Whoever is unconfirmed is given the time to be heard, for we were not there to hear it.
            let silent_before = if presence == Presence::Away { ago } else { Duration::ZERO };
            let heard_at = now.mono;
            let bucket = Bucket::full(self.rules.burst, Duration::from_secs(1), now.mono);
            let node = Node {
                refused: 0,
                record,
                fingerprint: None,
                fingerprint_at: now.mono,
                heard_at,
                silent_before,
                presence,
                bucket,
            };
            self.nodes.insert(node.record.node.clone(), node);
        }
    }

    pub fn register(&mut self, said: Register, papers: impl Into<Papers>, over: Protocol, now: Now) -> Heard {
        match self.admit(said, papers.into(), over, now) {
            Ok(heard) => heard,
            Err(refused) => {
                self.refuse(refused);
                Heard::Refused(refused)
            }
        }
    }

    fn admit(&mut self, mut said: Register, papers: Papers, over: Protocol, now: Now) -> Result<Heard, Refused> {
        let Papers { proof, warrant, near } = papers;
        said.slots = Some(warrant.allowance.slots(slots(&said)));
        if proof == Proof::Nothing && self.rules.strangers == Strangers::Refused {
            return Err(Refused::Stranger);
        }
        let fingerprint = fingerprint(&said);
        let Some(node) = self.nodes.get_mut(&said.node) else {
            return self.welcome(said, fingerprint, Papers { proof, warrant, near }, over, now);
        };
        // A thief must not use up what its victim may say, so this comes first.
        let may_speak = node.record.proof == proof || node.record.proof.yields_to(&proof);
        if !may_speak {
            node.refused += 1;
            return Err(Refused::Stolen);
        }
        if !node.bucket.take(now.mono) {
            node.refused += 1;
            return Err(Refused::Flood);
        }
        let offered = acceptable(&said, &self.rules.namespace, &warrant)?;
        (node.heard_at, node.silent_before) = (now.mono, Duration::ZERO);
        node.record.last_at = now.wall;
        let ack = ack(&offered.taken, &said, &fingerprint);
        let fresh = now.mono.since(node.fingerprint_at) < self.rules.dedupe;
        let here = node.presence == Presence::Registered && node.record.heard_over.contains(&over);
        let same = node.fingerprint == Some(fingerprint) && node.record.proof == proof;
        if !said.force_register && fresh && here && same {
            return Ok(Heard::Repeated(ack));
        }
        let parameters = parameters(&offered.taken, &said);
        let (not_understood, not_allowed) = (count(&offered.not_understood), count(&offered.not_allowed));
        let changes = Changes {
            endpoint: (&node.record.endpoint, node.record.near) != (&said.endpoint, near),
            standing: standing(&node.record) != (said.layer, said.kind.as_str(), &said.labels, slots(&said)),
            actions: (&node.record.offers, &node.record.parameters) != (&offered.taken, &parameters)
                || (node.record.not_understood, node.record.not_allowed) != (not_understood, not_allowed),
            proof: node.record.proof != proof || node.record.vouched != warrant.covers_actions(),
            came_back: node.presence == Presence::Away,
            over: !node.record.heard_over.contains(&over),
        };
        (node.fingerprint, node.fingerprint_at) = (Some(fingerprint), now.mono);
        node.presence = Presence::Registered;
        let record = &mut node.record;
        record.heard_over.insert(over);
        record.slots = slots(&said);
        (record.endpoint, record.layer, record.kind, record.labels) =
            (said.endpoint, said.layer, said.kind, said.labels);
        (record.offers, record.parameters) = (offered.taken, parameters);
        (record.not_understood, record.not_allowed) = (not_understood, not_allowed);
        (record.proof, record.vouched, record.near) = (proof, warrant.covers_actions(), near);
        Ok(if changes.any() { Heard::Changed(ack, changes) } else { Heard::Same(ack) })
    }

    fn welcome(
        &mut self,
        said: Register,
        fingerprint: [u8; 32],
        papers: Papers,
        over: Protocol,
        now: Now,
    ) -> Result<Heard, Refused> {
        let Papers { proof, warrant, near } = papers;
        if self.nodes.len() >= self.rules.nodes_max || (!proof.is_bound() && self.has_many_unproven()) {
            return Err(Refused::Full);
        }
        if !self.newcomers.take(now.mono) {
            return Err(Refused::Flood);
        }
        let offered = acceptable(&said, &self.rules.namespace, &warrant)?;
        let ack = ack(&offered.taken, &said, &fingerprint);
        let mut bucket = Bucket::full(self.rules.burst, Duration::from_secs(1), now.mono);
        bucket.take(now.mono);
        // Whatever the clocks of managers say, it came after it was taken out.
        let first_at = match self.removed.get(&said.node) {
            Some(removed) => now.wall.max(Timestamp(removed.0 + 1)),
            None => now.wall,
        };
        let record = Record {
            parameters: parameters(&offered.taken, &said),
            not_understood: count(&offered.not_understood),
            not_allowed: count(&offered.not_allowed),
            offers: offered.taken,
            vouched: warrant.covers_actions(),
            near,
            slots: slots(&said),
            labels: said.labels,
            node: said.node,
            layer: said.layer,
            kind: said.kind,
            endpoint: said.endpoint,
            proof,
            first_at,
            last_at: now.wall,
            heard_over: [over].into(),
            worked: false,
        };
        let node = Node {
            fingerprint: Some(fingerprint),
            fingerprint_at: now.mono,
            heard_at: now.mono,
            silent_before: Duration::ZERO,
            presence: Presence::Registered,
            bucket,
            refused: 0,
            record,
        };
        self.nodes.insert(node.record.node.clone(), node);
        Ok(Heard::New(ack))
    }

    fn has_many_unproven(&self) -> bool {
        let most = self.rules.nodes_max / 2;
        let unproven = || self.nodes.values().filter(|node| node.record.is_unproven()).count();
        self.nodes.len() >= most && unproven() >= most
    }

    /// Counts what was refused here, or before it could come here.
    pub fn refuse(&mut self, refused: Refused) {
        *self.refusals.entry(refused).or_default() += 1;
    }

    /// It could not be told that it is registered, and is to say so again: that is no flood.
    pub fn in_vain(&mut self, id: &NodeId) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.bucket.give_back();
        }
    }

    /// Something was said by it, or in its name, that was refused before it came here.
    pub fn blame(&mut self, id: &NodeId) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.refused += 1;
        }
    }

    /// So often, since this manager began.
    pub fn blamed(&self, id: &NodeId) -> u64 {
        self.nodes.get(id).map_or(0, |node| node.refused)
    }

    pub fn refusals(&self, refused: Refused) -> u64 {
        self.refusals.get(&refused).copied().unwrap_or_default()
    }

    /// It gave another sign of life: a result. One that is away is only back once it says what it has.
    pub fn saw(&mut self, node: &NodeId, now: Now) {
        if let Some(node) = self.nodes.get_mut(node) {
            (node.heard_at, node.silent_before, node.record.last_at) = (now.mono, Duration::ZERO, now.wall);
        }
    }

    /// It did what it was asked to.
    pub fn worked(&mut self, node: &NodeId, now: Now) {
        self.saw(node, now);
        if let Some(node) = self.nodes.get_mut(node) {
            node.record.worked = true;
        }
    }

    /// We could not hear for a while. That counts against nobody.
    pub fn hear_again(&mut self, now: Mono) {
        self.nodes.values_mut().for_each(|node| node.heard_at = now);
    }

    /// Those that have been silent for too long.
    pub fn sweep(&mut self, now: Mono) -> Vec<Gone> {
        let mut gone = Vec::new();
        for (id, node) in &mut self.nodes {
            let silent = now.since(node.heard_at) + node.silent_before;
            let forget = match node.record.is_unproven() {
                true => self.rules.forget_unproven,
                false => self.rules.forget,
            };
            if silent > forget {
                gone.push(Gone::Forgotten(id.clone()));
            } else if silent > self.rules.silence && node.presence != Presence::Away {
                node.presence = Presence::Away;
                gone.push(Gone::Away(id.clone()));
            }
        }
        for one in &gone {
            if let Gone::Forgotten(id) = one {
                self.nodes.remove(id);
            }
        }
        gone
    }

    /// A node of this very process: it is there for as long as somebody says so.
    pub fn host(&mut self, record: Record, now: Mono) {
        let bucket = Bucket::full(self.rules.burst, Duration::from_secs(1), now);
        let (fingerprint, presence) = (None, Presence::Registered);
        let node = Node {
            record,
            fingerprint,
            fingerprint_at: now,
            heard_at: now,
            silent_before: Duration::ZERO,
            presence,
            bucket,
            refused: 0,
        };
        self.nodes.insert(node.record.node.clone(), node);
    }

    /// What other managers heard and wrote down. Whom we heard ourselves since then we know better.
    pub fn learn(&mut self, records: Vec<Record>, now: Now) {
        for record in records {
            let ago = silent_for(&record, now);
            let known = self.nodes.get(&record.node).is_some_and(|node| node.record.last_at >= record.last_at);
            if known || self.is_void(&record) || ago > self.rules.silence || self.nodes.len() >= self.rules.nodes_max {
                continue;
            }
            let heard_at = Mono(now.mono.0.saturating_sub(ago));
            let (id, refused) = (record.node.clone(), self.blamed(&record.node));
            self.host(record, now.mono);
            if let Some(node) = self.nodes.get_mut(&id) {
                (node.heard_at, node.refused) = (heard_at, refused);
            }
        }
    }

    /// Somebody took a node out then. What was known of it, unless it came since; it may come again, as a new one.
    pub fn remove(&mut self, id: &NodeId, at: Timestamp) -> Option<Record> {
        if self.removed.len() >= self.rules.nodes_max {
            // The oldest has long been learnt by everybody.
            let oldest = self.removed.iter().min_by_key(|(_, at)| **at).map(|(id, _)| id.clone());
            oldest.and_then(|oldest| self.removed.remove(&oldest));
        }
        let removed = self.removed.entry(id.clone()).or_insert(at);
        *removed = at.max(*removed);
        let is_void = self.nodes.get(id).is_some_and(|node| self.is_void(&node.record));
        if is_void { self.nodes.remove(id).map(|node| node.record) } else { None }
    }

    fn is_void(&self, record: &Record) -> bool {
        self.removed.get(&record.node).is_some_and(|removed| record.first_at <= *removed)
    }

    pub fn all(&self) -> impl Iterator<Item = (&Record, Presence)> {
        self.nodes.values().map(|node| (&node.record, node.presence))
    }

    pub fn node(&self, id: &NodeId) -> Option<(&Record, Presence)> {
        self.nodes.get(id).map(|node| (&node.record, node.presence))
    }

    /// Who is there and has an action, among those that are believed most; and whom somebody asked for by its id, which is nobody
    /// else's.
    pub fn offering<'a>(
        &'a self,
        action: &'a ActionName,
        named: Option<&'a NodeId>,
    ) -> impl Iterator<Item = (&'a Record, &'a Offer)> {
        let least = self.believed(action);
        let there = self.nodes.values().filter(|node| match node.presence {
            Presence::Registered => true,
            Presence::Unconfirmed => node.record.hears_nobody(),
            Presence::Away => false,
        });
        let may = move |record: &Record| {
            record.is_here() || record.trust() >= least || named.is_some_and(|id| *id == record.node)
        };
        let all = there.filter_map(|node| Some((&node.record, node.record.offer(action)?)));
        all.filter(move |(record, _)| may(record))
    }

    /// How far those are believed who are believed most of all that have it, also of those that are away: whoever can keep them
    /// from speaking must not have their work. What the program brings itself it does not keep from others: it is asked for there
    /// where nobody says where.
    fn believed(&self, action: &ActionName) -> Trust {
        let have_it = self.nodes.values().map(|node| &node.record);
        let have_it = have_it.filter(|record| !record.is_here() && record.offer(action).is_some());
        have_it.map(Record::trust).max().unwrap_or(Trust::Stranger)
    }

    /// Every action that somebody has, also somebody who is away: flows may name these.
    pub fn catalogue(&self) -> BTreeSet<ActionName> {
        self.nodes.values().flat_map(|node| node.record.offers.iter().map(|offer| offer.action.clone())).collect()
    }

    /// What is declared of an action in the newest version that is declared: where nodes differ, the longest and the most.
    pub fn parameters(&self, action: &ActionName) -> Option<Parameters> {
        let least = self.believed(action);
        let believed = self.nodes.values().filter(|node| node.record.is_here() || node.record.trust() >= least);
        let declared = believed.flat_map(|node| &node.record.parameters);
        let of_it = declared.filter(|(offer, _)| offer.action == *action);
        let more = |(version, had): (u32, Parameters), (offer, declared): (u32, Parameters)| match offer.cmp(&version) {
            Ordering::Less => (version, had),
            Ordering::Greater => (offer, declared),
            Ordering::Equal => {
                let (timeout, retry) = (had.timeout.max(declared.timeout), had.retry.max(declared.retry));
                (version, Parameters { timeout, retry })
            }
        };
        of_it.map(|(offer, declared)| (offer.version, *declared)).reduce(more).map(|(_, declared)| declared)
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}
