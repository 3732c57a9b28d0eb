//! What a run comes to where that takes a while: large outputs, and expressions that do much. Whoever drives a foreman has it
//! worked out beside, and others go on meanwhile; runs take turns, each of them one thing at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mutirao_expression::Stop;
use serde_json::Value;

use super::run::{Phase, RUN_BYTES_MAX, Run, State};
use super::weight::{held, weigh};
use super::words::{RunKey, StepKey};
use super::{Foreman, Now};
use crate::Plan;
use crate::given::Given;
use crate::plan::{Ended, Opening, Pace, Seen};

/// What is to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// What a step turns out to be.
    Opening(u32),
    /// What a task is given.
    Given(StepKey),
    /// Whether the run's output can be had.
    Output,
}

/// A question with all that it takes to answer it.
#[derive(Debug)]
pub struct Reckoning {
    run: RunKey,
    what: What,
    plan: Arc<Plan>,
    input: Given,
    steps: Vec<Option<Ended>>,
    list: Option<Arc<Vec<Value>>>,
}

/// What it came to.
#[derive(Clone, Debug)]
pub struct Reckoned {
    run: RunKey,
    came: Came,
}

#[derive(Clone, Debug)]
enum Came {
    Opened(u32, Opened),
    Given(StepKey, Result<Value, String>),
    Ends(Result<(), String>),
}

/// What a step turned out to be, with about how much memory its list takes; or why nobody can tell.
pub type Opened = Result<(Opening, usize), String>;

impl Reckoning {
    /// What is said where this program breaks in it.
    pub fn broken(&self) -> Reckoned {
        let why = || "it cannot be worked out".to_owned();
        let came = match self.what {
            What::Opening(step) => Came::Opened(step, Err(why())),
            What::Given(key) => Came::Given(key, Err(why())),
            What::Output => Came::Ends(Err(why())),
        };
        Reckoned { run: self.run, came }
    }

    pub fn reckon(self) -> Reckoned {
        let seen = Seen { input: &self.input, steps: &self.steps };
        let whole = |stop: Stop| match stop {
            Stop::Costly => "it does too much".to_owned(),
            Stop::Failed(why) => why,
        };
        let came = match self.what {
            What::Opening(step) => {
                Came::Opened(step, opened(&self.plan, step as usize, seen, Pace::WHOLE).map_err(whole))
            }
            What::Given(key) => {
                let item = self.list.as_ref().and_then(|list| list.get(key.item as usize));
                let item = item.map(|item| (key.item as usize, item));
                Came::Given(key, self.plan.input(key.step as usize, seen, item, Pace::WHOLE).map_err(whole))
            }
            What::Output => Came::Ends(ends(&self.plan, seen, Pace::WHOLE).map_err(whole)),
        };
        Reckoned { run: self.run, came }
    }
}

pub fn opened(plan: &Plan, step: usize, seen: Seen<'_>, pace: Pace) -> Result<(Opening, usize), Stop> {
    let opening = plan.open(step, seen, pace)?;
    let held = if let Opening::Each(list) = &opening { list.iter().map(held).sum() } else { 0 };
    Ok((opening, held))
}

/// Whether a run whose steps have all ended ends well.
pub fn ends(plan: &Plan, seen: Seen<'_>, pace: Pace) -> Result<(), Stop> {
    match weigh(&plan.output(seen, pace)?) > RUN_BYTES_MAX {
        true => Err(Stop::Failed(format!("output: it would have more than {RUN_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}

/// What waits to be worked out, run by run.
#[derive(Debug, Default)]
pub struct Reckonings {
    wanted: BTreeMap<RunKey, VecDeque<What>>,
    turns: VecDeque<RunKey>,
    /// One at a time: others of this process have some too.
    under_way: bool,
    /// What tasks are given, until they may be sent.
    given: VecDeque<(StepKey, Result<Value, String>)>,
}

impl Reckonings {
    pub fn want(&mut self, run: RunKey, what: What) {
        let wanted = self.wanted.entry(run).or_insert_with(|| {
            self.turns.push_back(run);
            VecDeque::new()
        });
        wanted.push_back(what);
    }

    fn next(&mut self) -> Option<(RunKey, What)> {
        let run = self.turns.pop_front()?;
        let wanted = self.wanted.get_mut(&run)?;
        let next = wanted.pop_front();
        if wanted.is_empty() {
            self.wanted.remove(&run);
        } else {
            self.turns.push_back(run);
        }
        next.map(|what| (run, what))
    }

    fn forget(&mut self, run: RunKey) {
        if self.wanted.remove(&run).is_some() {
            self.turns.retain(|other| *other != run);
        }
    }
}

impl Foreman {
    /// The next thing that is to be worked out beside.
    pub(super) fn next_reckoning(&mut self) -> Option<Reckoning> {
        let runs = &self.runs;
        let to_be_sent = |key: &StepKey| {
            let run = runs.get(&key.run).filter(|run| run.phase == Phase::Going);
            run.and_then(|run| run.item(*key)).is_some_and(|item| matches!(item.state, State::Ready))
        };
        // A task may have ended meanwhile, or its run: then nothing waits for it.
        self.reckonings.given.retain(|(key, _)| to_be_sent(key));
        if self.reckonings.under_way || !self.reckonings.given.is_empty() {
            return None;
        }
        while let Some((run, what)) = self.reckonings.next() {
            let run = self.runs.get(&run).filter(|run| run.phase == Phase::Going);
            let Some(reckoning) = run.and_then(|run| run.asks(what)) else { continue };
            self.reckonings.under_way = true;
            return Some(reckoning);
        }
        None
    }

    pub(super) fn reckoned(&mut self, Reckoned { run: key, came }: Reckoned, now: Now) {
        self.reckonings.under_way = false;
        let Some(run) = self.runs.get_mut(&key).filter(|run| run.phase == Phase::Going) else { return };
        match came {
            Came::Opened(step, opened) => run.learn(step, opened),
            Came::Ends(ends) => run.learn_end(ends),
            Came::Given(key, given) => return self.reckonings.given.push_back((key, given)),
        }
        self.advance(key, now);
        let early = self.runs.get_mut(&key).map(|run| std::mem::take(&mut run.early)).unwrap_or_default();
        early.into_iter().for_each(|report| self.hear(report, now));
    }

    /// A task whose input was worked out.
    pub(super) fn next_given(&mut self) -> Option<(StepKey, Result<Value, String>)> {
        self.reckonings.given.pop_front()
    }

    pub(super) fn forget_reckonings(&mut self, run: RunKey) {
        self.reckonings.forget(run);
    }
}

impl Run {
    /// None: it need not be known any more.
    fn asks(&self, what: What) -> Option<Reckoning> {
        let list = match what {
            What::Given(key) if !matches!(self.item(key)?.state, State::Ready) => return None,
            What::Given(key) => self.open[key.step as usize].as_ref()?.list.clone(),
            What::Opening(_) | What::Output => None,
        };
        Some(Reckoning {
            run: self.admitted.key,
            what,
            plan: self.admitted.plan.clone(),
            input: self.input.clone(),
            steps: self.ended.clone(),
            list,
        })
    }
}
