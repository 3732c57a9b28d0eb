//! Every decision, behind one lock. No I/O, no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mutirao_core::{Dice, Mono, Timestamp};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Layer;
use crate::errand::{Errand, Had, Nobody, NotSent};
use crate::meters::Standing;
use crate::names::{ActionName, NodeId, Offer};
use crate::preference::{Preferences, Protocol, Sent};
use crate::registry::{Gone, Now, Presence, Proof, Record, Registry, Rules};
use crate::routing::{self, Candidate, Choice, Ended, NoNode, Place, Router, Ticket, Why};
use crate::store::{Removal, Removed};
use crate::way::{NotGiven, Outstanding};
use crate::wire::places::Places;

/// A task that some node has.
#[derive(Debug)]
struct Out {
    ticket: Ticket,
    node: NodeId,
    /// What that node could show when it was given the task.
    proof: Proof,
    over: Option<Protocol>,
    since: Mono,
    bytes: usize,
    /// Whatever way keeps it for the node lets go of it when this is dropped: it has ended, or is nobody's any more.
    _given_up: DropGuard,
}

/// Who gets a task, and how it is reached.
#[derive(Debug)]
pub struct Chosen {
    pub record: Record,
    pub layer: Layer,
    pub order: Vec<Protocol>,
    pub why: String,
    /// It need not be done any more.
    pub given_up: CancellationToken,
}

/// Whether somebody may say how a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It was given the task.
    Its(NodeId),
    /// Another was.
    Anothers,
    /// Nobody here gave it to anybody: another manager did, or this one before a restart, or it has ended.
    Unknown,
}

pub struct State {
    pub registry: Registry,
    pub router: Router,
    preferences: Preferences,
    out: HashMap<String, Out>,
    /// Heard of since it was last written down.
    pub unwritten: BTreeSet<NodeId>,
    /// Said something new that is not in the store yet, and which of such it was.
    unkept: BTreeMap<NodeId, u64>,
    news: u64,
}

impl State {
    /// With what the store has, and who was taken out of it.
    pub fn new(rules: Rules, routing: routing::Rules, known: Vec<Record>, removed: &[Removal], now: Now) -> Self {
        let mut registry = Registry::new(rules, now.mono);
        for removal in removed {
            if let Removed::Node(node) = &removal.what {
                registry.remove(node, removal.at);
            }
        }
        registry.restore(known, now);
        Self {
            registry,
            router: Router::new(routing),
            preferences: Preferences::default(),
            out: HashMap::new(),
            unwritten: BTreeSet::new(),
            unkept: BTreeMap::new(),
            news: 0,
        }
    }

    /// Chooses a node that can be given this `text`, and counts the task as given to it.
    pub fn choose(
        &mut self,
        errand: &Errand,
        text: &str,
        places: &Places,
        now: Mono,
        dice: &Dice,
    ) -> Result<Chosen, NotSent> {
        let Errand { request, action, place, not, .. } = errand;
        let candidates = self.candidates(errand, text, places)?;
        let choice =
            self.router.choose(action, place, &candidates, not.as_ref(), now, dice).map_err(|none| match none {
                NoNode::Nobody => {
                    NotSent::Nobody(self.nobody(action, place).unwrap_or_else(|| Nobody::CanRead(action.clone())))
                }
                NoNode::Full => NotSent::Full,
            })?;
        let Some((record, _)) = self.registry.node(&choice.node) else {
            return Err(NotSent::Nobody(Nobody::HasIt(action.clone())));
        };
        let record = record.clone();
        let order = self.preferences.order(&record.node, record.layer, &record.speaks(), now);
        let (ticket, proof) = (choice.ticket, record.proof.clone());
        let (node, bytes) = (record.node.clone(), errand.data.len());
        let given_up = CancellationToken::new();
        let _given_up = given_up.clone().drop_guard();
        let out = Out { ticket, node, proof, over: None, since: now, bytes, _given_up };
        // A name that is given twice means that whoever gave it has lost track: the first is nobody's any more.
        if let Some(before) = self.out.insert(request.clone(), out) {
            self.router.ended(before.ticket, Ended::Recalled, now, dice);
        }
        Ok(Chosen { layer: choice.layer, why: why(&choice), record, order, given_up })
    }

    /// Why no node can be given such a task at the moment; none: one can, or could if there were room.
    pub fn nobody(&self, action: &ActionName, place: &Place) -> Option<Nobody> {
        let there: BTreeSet<&NodeId> =
            self.registry.offering(action, place.node.as_ref()).map(|(record, _)| &record.node).collect();
        let why = |presence| match presence {
            Presence::Away => "it is away",
            Presence::Unconfirmed => "it has not registered again since this manager began",
            Presence::Registered => "others that have it are believed more",
        };
        let all = self.registry.all().map(|(record, presence)| Had {
            node: &record.node,
            layer: record.layer,
            labels: &record.labels,
            has_it: record.offer(action).is_some(),
            not_now: Some(why(presence)).filter(|_| !there.contains(&record.node)),
        });
        let all: Vec<Had<'_>> = all.collect();
        Nobody::of(action, place, &all)
    }

    /// Who is there and has the action, each in the newest version that it has. One that could never be given the text is none;
    /// if nobody else has the action, not even somebody who is away, the task is impossible.
    fn candidates(&self, errand: &Errand, text: &str, places: &Places) -> Result<Vec<Candidate>, NotSent> {
        let fits = |record: &Record| {
            errand.place.node.as_ref().is_none_or(|node| *node == record.node)
                && errand.place.labels.iter().all(|(key, value)| record.labels.get(key) == Some(value))
        };
        let mut all: Vec<_> = self
            .registry
            .offering(&errand.action, errand.place.node.as_ref())
            .filter(|(record, _)| fits(record))
            .collect();
        // What the program brings itself is not given to whoever says that it has it too, unless that is asked for.
        let is_here = |record: &Record| record.heard_over.contains(&Protocol::Here);
        let brought = errand.action.short().starts_with("builtin.") && errand.place == Place::default();
        if brought && all.iter().any(|(record, _)| is_here(record)) {
            all.retain(|(record, _)| is_here(record));
        }
        let all_told = all.len();
        all.retain(|(record, _)| record.is_never_given(places, text).is_none());
        if all.is_empty() && all_told > 0 {
            let who_has_it = |record: &&Record| record.offer(&errand.action).is_some() && fits(record);
            let others = || self.registry.all().map(|(record, _)| record).filter(who_has_it);
            let mut whys = others().map(|record| record.is_never_given(places, text));
            if let Some(Some(why)) = whys.next()
                && whys.all(|why| why.is_some())
            {
                return Err(NotSent::Impossible(why));
            }
        }
        let candidate = |(record, offer): (&Record, &Offer)| Candidate {
            node: record.node.clone(),
            layer: record.layer,
            labels: record.labels.clone(),
            slots: record.slots,
            version: offer.version,
        };
        Ok(all.into_iter().map(candidate).collect())
    }

    pub fn goes_over(&mut self, request: &str, protocol: Protocol) {
        if let Some(out) = self.out.get_mut(request) {
            out.over = Some(protocol);
        }
    }

    /// That is told of the protocol now; how the task ends says nothing more of it.
    pub fn did_not_go(&mut self, request: &str, node: &NodeId, protocol: Protocol, now: Mono) {
        if let Some(out) = self.out.get_mut(request) {
            out.over = None;
        }
        self.preferences.heard(node, protocol, Sent::Failed, now);
    }

    pub fn ended(&mut self, request: &str, how: Ended, now: Mono, dice: &Dice) {
        let Some(Out { ticket, node, over, since, .. }) = self.out.remove(request) else { return };
        self.router.ended(ticket, how, now, dice);
        if let Some(over) = over.filter(|over| *over != Protocol::Here) {
            match how {
                Ended::Well => self.preferences.heard(&node, over, Sent::Answered(now.since(since)), now),
                Ended::Badly => self.preferences.heard(&node, over, Sent::Failed, now),
                Ended::Recalled => {}
            }
        }
    }

    /// May somebody who could show this say how a task ended? `node`: the only one that it may speak for.
    pub fn claim(&self, request: &str, proof: &Proof, node: Option<&NodeId>) -> Claim {
        match self.out.get(request) {
            None => Claim::Unknown,
            Some(out) if out.proof == *proof && node.is_none_or(|node| *node == out.node) => {
                Claim::Its(out.node.clone())
            }
            Some(_) => Claim::Anothers,
        }
    }

    /// What each node has and has not answered.
    pub fn outstanding(&self) -> HashMap<NodeId, Outstanding> {
        let mut all: HashMap<NodeId, Outstanding> = HashMap::new();
        for out in self.out.values() {
            let its = all.entry(out.node.clone()).or_default();
            (its.messages, its.bytes) = (its.messages + 1, its.bytes + out.bytes);
        }
        all
    }

    /// Those that were silent for too long. What they had is nobody's.
    pub fn sweep(&mut self, now: Mono) -> Vec<Gone> {
        let gone = self.registry.sweep(now);
        for one in &gone {
            let (Gone::Away(node) | Gone::Forgotten(node)) = one;
            self.forget(node);
            if let Gone::Forgotten(node) = one {
                self.unkept.remove(node);
            }
        }
        gone
    }

    pub fn forget(&mut self, node: &NodeId) {
        self.out.retain(|_, out| out.node != *node);
        self.router.forget(node);
        self.preferences.forget(node);
    }

    /// Somebody took a node out then. Whether there was something to take out.
    pub fn remove(&mut self, node: &NodeId, at: Timestamp) -> bool {
        let was_there = self.registry.remove(node, at).is_some();
        if was_there {
            self.forget(node);
            self.unwritten.remove(node);
            self.unkept.remove(node);
        }
        was_there
    }

    /// Nodes that came in by this device, and when they first did.
    pub fn let_in_by(&self, device: &str) -> Vec<(NodeId, Timestamp)> {
        let its_own = Proof::User(device.to_owned());
        let all = self.registry.all().map(|(record, _)| record);
        all.filter(|one| one.proof == its_own).map(|one| (one.node.clone(), one.first_at)).collect()
    }

    /// It is somewhere else now: what was measured on the way there says nothing any more.
    pub fn moved(&mut self, node: &NodeId) {
        self.preferences.forget(node);
    }

    /// It said something new, to be kept before it is told that it was heard.
    pub fn has_news(&mut self, node: &NodeId) {
        self.news += 1;
        self.unkept.insert(node.clone(), self.news);
    }

    /// What it said and is not kept yet.
    pub fn unkept(&self, node: &NodeId) -> Option<u64> {
        self.unkept.get(node).copied()
    }

    /// That is in the store now; what it said since is not.
    pub fn kept(&mut self, node: &NodeId, news: u64) {
        if self.unkept.get(node) == Some(&news) {
            self.unkept.remove(node);
        }
    }

    pub fn worked(&mut self, node: &NodeId, now: Now) {
        self.registry.worked(node, now);
        self.unwritten.insert(node.clone());
    }

    pub fn saw(&mut self, node: &NodeId, now: Now) {
        self.registry.saw(node, now);
        self.unwritten.insert(node.clone());
    }

    pub fn take_unwritten(&mut self) -> Vec<Record> {
        let nodes = std::mem::take(&mut self.unwritten);
        nodes.iter().filter_map(|node| self.registry.node(node)).map(|(record, _)| record.clone()).collect()
    }

    pub fn standing(&self) -> Standing {
        let mut standing = Standing { out: self.out.len(), ..Standing::default() };
        for (_, presence) in self.registry.all() {
            *match presence {
                Presence::Registered => &mut standing.registered,
                Presence::Unconfirmed => &mut standing.unconfirmed,
                Presence::Away => &mut standing.away,
            } += 1;
        }
        standing
    }
}

fn why(choice: &Choice) -> String {
    let mut text = match &choice.why {
        Why::Only => "the only one that could".to_owned(),
        Why::Probe => "it had failed, was spared, and is tried again".to_owned(),
        Why::Sooner { cost_ms, than, its_cost_ms } => {
            format!("it promises an answer within {cost_ms:.0} ms, {than} within {its_cost_ms:.0} ms")
        }
        Why::ItsTurn => "it was its turn".to_owned(),
        Why::LeastBad => "it fails, but so do the others".to_owned(),
    };
    if !choice.passed_over.is_empty() {
        let layers: Vec<String> = choice.passed_over.iter().map(|one| format!("{one:?}").to_lowercase()).collect();
        text.push_str(&format!("; {} is full or down", layers.join(", ")));
    }
    text
}

/// In a line.
pub fn said(whys: &[NotGiven]) -> String {
    let each = whys.iter().map(|why| match why {
        NotGiven::Unreachable(why) | NotGiven::TooLong(why) | NotGiven::NoRoom(why) => why.as_str(),
    });
    match whys.is_empty() {
        true => "it speaks nothing that is open here".into(),
        false => each.collect::<Vec<_>>().join("; "),
    }
}
