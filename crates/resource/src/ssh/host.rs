//! One host of the pool. A listing asks its agent, which takes a moment; whatever takes longer (connecting, copying, starting) is
//! done beside it, one thing at a time, and seen by the next listing.
//!
//! ```text
//! looked at ──► free ──► held ──► answers ──► told to leave ──► free
//!          └─► refused, tried again      └─► lost, reached again or given up
//! ```

mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::clock::ClockExt;
use mutirao_core::quantity::Span;
use mutirao_core::{Mono, QueueName, WorkerId};
use mutirao_elastic::packing::{Kind, NodeName};
use mutirao_elastic::protocol::OfferedNode;
use parking_lot::Mutex;

use super::line::Line;
use super::means::{Means, Reach};
use super::script::Facts;
use super::spec::HostSpec;
use crate::local::wire::{self, Answer, Haste, Question, Request};
use crate::provider::{NodeSeen, Origin};
pub use work::inspect;
use work::{Done, Trouble};

/// How long an agent may take to answer over its line.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// A host that has been silent for this long is not waited for any more: its workers are replaced elsewhere.
pub const LOST_AFTER: Duration = Duration::from_secs(60);
/// How often a host that cannot be used is looked at again.
const AGAIN_EVERY: Duration = Duration::from_secs(60);
/// Between two tries to reach a host that is held; doubles.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// From being asked for until it answers, where that was not measured yet.
const BOOT_GUESS: Duration = Duration::from_secs(20);
const PIN: &str = "pin.pem";
const CA: &str = "ca.pem";

/// What is known of it, and what is to become of it.
#[derive(Debug, Default)]
struct State {
    facts: Option<Facts>,
    /// Why it cannot be used, as the last look found.
    trouble: Option<String>,
    /// It was reached, and does not fit.
    refused: bool,
    /// It is new, and tried until whoever made it gives it up: at first it does not answer.
    insists: bool,
    /// Whether it is known what is there.
    looked: bool,
    /// Asked for, or found with an agent of ours.
    held: bool,
    held_at: Option<Mono>,
    /// Its agent has answered since.
    answered: bool,
    leaving: bool,
    silent_since: Option<Mono>,
    port: Option<u16>,
    at_work: bool,
    failures: u32,
    not_before: Option<Mono>,
    boot: Option<Duration>,
}

pub struct Host {
    pub spec: HostSpec,
    means: Arc<Means>,
    line: Line,
    state: Mutex<State>,
}

impl Host {
    pub fn new(spec: HostSpec, means: Arc<Means>) -> Arc<Self> {
        let line = Line::new(means.dir.join(&spec.name), spec.clone(), means.clock.clone());
        Arc::new(Self { spec, means, line, state: Mutex::default() })
    }

    /// A machine that was made to be a node, and may still be booting.
    pub fn insisted(spec: HostSpec, means: Arc<Means>) -> Arc<Self> {
        let host = Self::new(spec, means);
        {
            let mut state = host.state.lock();
            (state.insists, state.held, state.held_at) = (true, true, Some(host.now()));
        }
        host
    }

    /// Why it cannot be used, if it was reached and does not fit.
    pub fn refused(&self) -> Option<String> {
        let state = self.state.lock();
        state.trouble.clone().filter(|_| state.refused)
    }

    pub fn trouble(&self) -> Option<String> {
        self.state.lock().trouble.clone()
    }

    pub async fn close(&self) {
        self.line.close().await;
    }

    pub fn name(&self) -> NodeName {
        NodeName(self.spec.name.clone())
    }

    fn folder(&self) -> PathBuf {
        self.means.dir.join(&self.spec.name)
    }

    fn now(&self) -> Mono {
        self.means.clock.monotonic()
    }

    pub fn is_held(&self) -> bool {
        self.state.lock().held
    }

    /// Asks the agent, over a line that is there.
    pub async fn ask(&self, request: Request, generation: Option<u64>) -> Result<Answer, String> {
        let question = Question { request, generation };
        match self.means.clock.timeout(ANSWER_MAX, wire::ask(&self.folder(), &question)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", ANSWER_MAX.as_secs())),
        }
    }

    /// As the next listing shows it. Begins whatever is to be done about it.
    pub async fn see(self: &Arc<Self>, generation: u64) -> NodeSeen {
        if self.is_held() && !self.is_booting() {
            match self.ask(Request::List, Some(generation)).await {
                Ok(Answer::Have { workers, ended, .. }) => return self.answers(workers, ended).await,
                // It is well; only that it does not obey us.
                Ok(Answer::Done | Answer::Failed { .. }) => return self.shown(Origin::Standing, None),
                Err(_) => {}
            }
        }
        self.silent()
    }

    fn is_booting(&self) -> bool {
        let state = self.state.lock();
        !state.answered && state.at_work
    }

    async fn answers(self: &Arc<Self>, workers: BTreeMap<WorkerId, QueueName>, ended: BTreeSet<WorkerId>) -> NodeSeen {
        let leaving = {
            let now = self.now();
            let mut state = self.state.lock();
            (state.answered, state.silent_since, state.trouble, state.failures) = (true, None, None, 0);
            if let Some(at) = state.held_at.take() {
                state.boot = Some(now.since(at));
            }
            state.leaving
        };
        if leaving {
            let _ = self.ask(Request::Leave { haste: Haste::Drain }, None).await;
        }
        let origin = if leaving { Origin::Leaving } else { Origin::Made };
        NodeSeen { workers, ended, ..self.shown_as(origin, true, None) }
    }

    fn silent(self: &Arc<Self>) -> NodeSeen {
        let now = self.now();
        let (origin, note) = {
            let mut state = self.state.lock();
            let waits = state.held || !state.looked;
            let since = *state.silent_since.get_or_insert(now);
            let patient = now.since(since) < LOST_AFTER;
            let why = state.trouble.clone();
            match (waits, state.held && !state.answered) {
                (true, true) => (Origin::Made, Some("being started".into())),
                (true, false) if patient => (Origin::Standing, Some(why.map_or("not reached yet".into(), lost))),
                (true, false) => (Origin::Away, Some(why.map_or("not reached".into(), lost))),
                (false, _) => (Origin::Away, Some(why.map_or("not in use".into(), |why| format!("not usable: {why}")))),
            }
        };
        self.look_after();
        self.shown(origin, note)
    }

    fn shown(&self, origin: Origin, note: Option<String>) -> NodeSeen {
        self.shown_as(origin, false, note)
    }

    fn shown_as(&self, origin: Origin, answers: bool, note: Option<String>) -> NodeSeen {
        let capacity = self.state.lock().facts.as_ref().map(|facts| facts.capacity.amounts());
        let node = OfferedNode {
            name: self.name(),
            provider: self.means.provider.clone(),
            kind: Some(self.spec.name.clone()),
            capacity: capacity.unwrap_or_default(),
            labels: self.spec.labels.clone(),
            layer: self.spec.layer,
            answers,
            note,
            stands: None,
        };
        NodeSeen { node, origin, workers: BTreeMap::new(), ended: BTreeSet::new() }
    }

    /// What can be had of it. None while it cannot be used.
    pub fn kind(&self) -> Option<Kind> {
        let state = self.state.lock();
        let facts = state.facts.as_ref()?;
        let free = !state.held && state.trouble.is_none();
        Some(Kind {
            name: self.spec.name.clone(),
            capacity: facts.capacity.amounts(),
            labels: self.spec.labels.clone(),
            layer: self.spec.layer,
            price_micros_per_hour: self.spec.price_micros(),
            market: self.spec.kind.market(),
            boot: Span(state.boot.unwrap_or(BOOT_GUESS)),
            interrupted_every: None,
            available: u32::from(free),
        })
    }

    /// It is needed. Refused while the last look found that it cannot be used.
    pub fn take(self: &Arc<Self>) -> Result<(), String> {
        {
            let mut state = self.state.lock();
            if let Some(why) = &state.trouble {
                return Err(why.clone());
            }
            if !state.held {
                (state.held, state.held_at, state.answered) = (true, Some(self.now()), false);
                (state.leaving, state.not_before, state.failures) = (false, None, 0);
            }
        }
        self.look_after();
        Ok(())
    }

    /// It is not needed any more: its workers finish, and it goes. Told again by each listing until it has gone.
    pub async fn leave(&self) {
        if !std::mem::replace(&mut self.state.lock().leaving, true) {
            let _ = self.ask(Request::Leave { haste: Haste::Drain }, None).await;
        }
    }

    /// From outside, and for good. Whether it has gone.
    pub async fn dismiss(&self, haste: Haste) -> bool {
        if !self.is_held() {
            return true;
        }
        if self.ask(Request::Leave { haste }, None).await.is_ok() {
            return false;
        }
        self.line.close().await;
        self.state.lock().held = false;
        true
    }

    /// Where workers there find the manager, and what they know it by.
    pub fn for_workers(&self) -> Option<ForWorkers> {
        let state = self.state.lock();
        let folder = PathBuf::from(&state.facts.as_ref()?.folder);
        let url = match &self.means.reach {
            Reach::Line { scheme, .. } => format!("{scheme}://127.0.0.1:{}", state.port?),
            Reach::Url(url) => url.clone(),
        };
        let ca = self.means.ca.as_ref().map(|_| folder.join(CA));
        Some(ForWorkers { url, pin: folder.join(PIN), ca })
    }

    /// Has it done beside, unless it is being done, or was tried a moment ago.
    fn look_after(self: &Arc<Self>) {
        let now = self.now();
        {
            let mut state = self.state.lock();
            let free_and_fine = !state.held && state.looked && state.trouble.is_none();
            if state.at_work || free_and_fine || state.not_before.is_some_and(|at| now < at) {
                return;
            }
            state.at_work = true;
        }
        let host = self.clone();
        tokio::spawn(async move {
            let done = host.work().await;
            host.note(done);
        });
    }

    fn note(&self, done: Result<Done, Trouble>) {
        let (now, name) = (self.now(), &self.spec.name);
        let mut state = self.state.lock();
        let first = !state.looked;
        // Of a host that was never reached it is not known whether a node of ours is there.
        state.looked |= !matches!(done, Err(Trouble::Failed(_)));
        state.at_work = false;
        match done {
            Ok(Done::Free(facts)) => {
                if state.trouble.take().is_some() || first {
                    tracing::info!(host = %name, "the host can be used");
                }
                (state.facts, state.held, state.leaving) = (Some(facts), false, false);
                (state.answered, state.failures, state.silent_since) = (false, 0, None);
            }
            Ok(Done::Up(facts, port)) => {
                if !state.held || !state.answered || state.silent_since.is_some() {
                    tracing::info!(host = %name, "the host has a node");
                }
                (state.facts, state.held, state.port) = (Some(facts), true, port.or(state.port));
                (state.trouble, state.failures, state.not_before) = (None, 0, None);
            }
            Err(trouble) => {
                let (refused, why) = match trouble {
                    Trouble::Refused(why) => (true, why),
                    Trouble::Failed(why) => (false, why),
                };
                state.refused = refused;
                // While it boots, nobody expects anything else.
                let expected = state.insists && !state.answered && !refused;
                if state.trouble.as_ref() != Some(&why) && !expected {
                    tracing::warn!(host = %name, why, "the host cannot be used");
                }
                state.trouble = Some(why);
                state.failures = state.failures.saturating_add(1);
                // Others are there to take what it was wanted for.
                state.held &= state.answered || state.insists;
                let wait = match state.held || !state.looked {
                    true => FIRST_WAIT.saturating_mul(1 << (state.failures - 1).min(10)).min(LONGEST_WAIT),
                    false => AGAIN_EVERY,
                };
                state.not_before = Some(now.plus(wait));
            }
        }
    }
}

fn lost(why: String) -> String {
    format!("lost: {why}")
}

pub struct ForWorkers {
    pub url: String,
    pub pin: PathBuf,
    pub ca: Option<PathBuf>,
}
