//! Which of a shard's runs are loaded: those that the store had, those that somebody spoke of, and those that a report is
//! for, whatever came before: a result is never thrown away because its run is not at hand.

use std::collections::HashSet;
use std::time::Duration;

use super::drive::{Looked, News, PAUSE, Post};
use super::looking::{self, Found, Room};
use crate::foreman::words::{Input, Report, RunKey};

/// At least this often the store is looked at for what nobody told.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Why a run was looked up.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Came {
    /// With all that are open, as far as there is room.
    Listed,
    /// Somebody said that it is there, or is to be cancelled.
    ByWord,
    /// There is something for it. That was sent when there was room for it, by us or by an owner before: there are no more
    /// of these than tasks were out.
    ForReports,
}

/// Runs that came since the look before last began.
#[derive(Default)]
pub(super) struct Since {
    lately: HashSet<RunKey>,
    before: HashSet<RunKey>,
}

impl Since {
    /// False: it came already.
    pub fn insert(&mut self, run: RunKey) -> bool {
        !self.has(run) && self.lately.insert(run)
    }

    pub fn has(&self, run: RunKey) -> bool {
        self.lately.contains(&run) || self.before.contains(&run)
    }

    fn turn(&mut self) {
        self.before = std::mem::take(&mut self.lately);
    }
}

impl Post {
    pub(super) fn look_if_due(&mut self) {
        let now = self.bench.clock.monotonic();
        let before = match self.looked {
            Looked::Looking { .. } => return,
            Looked::Never => false,
            Looked::At(at) if self.rung || now.since(at) >= LOOK_EVERY => true,
            Looked::At(_) => return,
        };
        self.looked = Looked::Looking { before };
        self.rung = false;
        self.since.turn();
        let rules = self.bench.rules;
        let room = Room {
            runs: rules.runs_max.saturating_sub(self.foreman.runs()),
            bytes: rules.bytes_max.saturating_sub(self.foreman.bytes()),
        };
        let known: HashSet<RunKey> = self.foreman.known().collect();
        let (bench, fence, tell) = (self.bench.clone(), self.fence.clone(), self.tell.clone());
        self.beside.spawn(async move {
            let found = looking::look(&bench, &fence, room, |run| known.contains(&run)).await;
            if found.is_err() {
                bench.clock.sleep(PAUSE).await;
            }
            let _ = tell.send(News::Looked(found)).await;
        });
    }

    pub(super) fn look_at(&mut self, run: RunKey) {
        let (bench, tell) = (self.bench.clone(), self.tell.clone());
        self.beside.spawn(async move {
            let found = looking::look_at(&bench, run).await;
            let _ = tell.send(News::LookedAt(found)).await;
        });
    }

    pub(super) fn find(&mut self, found: Found, came: Came) {
        let Found { runs, cancelled, unreadable } = found;
        for (stored, reply) in runs {
            let run = stored.admitted.key;
            let room = came != Came::ByWord || self.foreman.takes_runs() || cancelled.contains(&run);
            // One that came while it was read may have ended by now: what was read is of no meaning.
            if room && !self.foreman.knows(run) && self.since.insert(run) {
                self.replies.extend(reply.map(|reply| (run, reply)));
                self.tell_foreman(Input::Found(Box::new(stored)));
            }
        }
        cancelled.into_iter().for_each(|run| self.tell_foreman(Input::Cancel(run)));
        for (run, problem) in unreadable {
            if self.unreadable.insert(run) {
                tracing::warn!(
                    run = run.0,
                    problem = problem.line(),
                    "this program cannot read a run's flow; it is left for one that can"
                );
            }
        }
    }

    /// Keeps a report until it is known what became of its run.
    pub(super) fn seek(&mut self, report: Report) {
        let run = report.key.run;
        if self.since.has(run) {
            // It was here, and is over.
            return self.acknowledge(report.mark);
        }
        let reports = self.unheard.entry(run).or_default();
        reports.push(report);
        if reports.len() > 1 {
            return;
        }
        let (bench, tell) = (self.bench.clone(), self.tell.clone());
        self.beside.spawn(async move {
            let found = loop {
                match looking::look_at(&bench, run).await {
                    Ok(found) => break found,
                    Err(error) => tracing::debug!(%error, run = run.0, "the run of a result could not be looked up"),
                }
                bench.clock.sleep(PAUSE).await;
            };
            let _ = tell.send(News::Sought(run, found)).await;
        });
    }

    /// Its reports are heard; or, if it is over, mean nothing any more.
    pub(super) fn sought(&mut self, run: RunKey) {
        for report in self.unheard.remove(&run).unwrap_or_default() {
            if self.foreman.knows(run) {
                self.report(report);
                continue;
            }
            if self.unreadable.contains(&run) {
                // Not acknowledged: what this program cannot read, another may.
                self.reporters.remove(&report.mark);
            } else {
                self.acknowledge(report.mark);
            }
        }
    }
}
