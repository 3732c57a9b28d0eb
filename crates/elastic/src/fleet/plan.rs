//! What is there against what is wanted: a pure function to the steps that close the gap, in the order in which they are to
//! be taken. What frees room comes first, what needs it last.

use std::collections::BTreeSet;
use std::time::Duration;

use mutirao_core::{Timestamp, WorkerId};

use super::{Action, Activity, Aim, Fleet, Life, Listing, Member, Seen, Terms, Why};
use crate::decide::Removal;
use crate::packing::{Candidate, Doing, leavers};

impl Fleet {
    /// To be asked after [`look`](Fleet::look) with the same `seen`.
    pub fn plan(&self, aim: &Aim, seen: &Seen, terms: &Terms, now: Timestamp) -> Vec<Action> {
        let mut actions = self.clear_away(seen, terms, now);
        let leaving: BTreeSet<&WorkerId> = actions.iter().filter_map(Action::removes).collect();
        let standing: Vec<(&WorkerId, &Member)> =
            self.members.iter().filter(|(worker, member)| member.stands() && !leaving.contains(worker)).collect();
        let wanted = aim.wanted.min(aim.max) as usize;
        let goers = self.goers(&standing, wanted, aim.removal, seen, now);
        let launches = standing.iter().filter(|(worker, member)| {
            member.life == Life::Asked && seen.listing.lacks(worker) && !goers.contains(*worker) && self.may_launch(now)
        });
        let launches: Vec<Action> = launches.map(|(worker, _)| Action::Launch { worker: (*worker).clone() }).collect();
        let ask = self.room(aim.max, seen).min(wanted.saturating_sub(standing.len()));
        actions.extend(goers.into_iter().map(|worker| Action::Drain { worker }));
        actions.extend(launches);
        if ask > 0 && seen.listing != Listing::Unknown && self.may_launch(now) {
            actions.push(Action::Ask { count: u32::try_from(ask.min(terms.actions_max)).unwrap_or(u32::MAX) });
        }
        actions.truncate(terms.actions_max);
        actions
    }

    /// What has come to its end, and what should not be there at all.
    fn clear_away(&self, seen: &Seen, terms: &Terms, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        for (worker, member) in &self.members {
            let long = |since: Option<Timestamp>, span: Duration| since.is_some_and(|at| now.since(at) >= span);
            let session = seen.sessions.get(worker);
            let ended = seen.ended.contains(worker);
            let missing = seen.listing.lacks(worker) && long(member.absent_since, terms.missing_for);
            let end = match member.life {
                // Launched again and again until it is there or no longer wanted.
                Life::Asked if !ended => continue,
                Life::Asked => None,
                Life::Launching => (now.since(member.since) >= terms.report_in).then_some(Why::NeverReported),
                Life::Reported => long(member.silent_since, terms.silent_for).then_some(Why::Silent),
                Life::Draining if matches!(session, Some(Activity::Drained)) => Some(Why::Drained),
                // Not heard for a moment is not yet drained: it may be near the end of a long task.
                Life::Draining if session.is_none() => {
                    long(member.silent_since, terms.silent_for).then_some(Why::Silent)
                }
                Life::Draining => {
                    terms.drain_max.filter(|max| now.since(member.since) >= *max).map(|_| Why::DrainedTooLong)
                }
                Life::Ending => Some(Why::StillThere),
            };
            let gone = match (ended, member.life) {
                (true, Life::Asked | Life::Launching) => Some(Why::EndedUnheard),
                (true, _) => Some(Why::Ended),
                (false, _) if session.is_some() || !missing => None,
                (false, Life::Launching) => Some(Why::NeverCame),
                (false, _) => Some(Why::Gone),
            };
            match (gone, end) {
                (Some(why), _) => actions.push(Action::Forget { worker: worker.clone(), why }),
                (None, Some(why)) if seen.listing.has(worker) && self.may_tell(worker, terms, now) => {
                    actions.push(Action::End { worker: worker.clone(), why });
                }
                (None, Some(why)) if missing && self.may_dismiss(worker, terms, now) => {
                    actions.push(Action::Dismiss { worker: worker.clone(), why });
                }
                (None, _) => {}
            }
        }
        for worker in self.strangers(seen) {
            let at_work = matches!(seen.sessions.get(worker), Some(Activity::Idle { .. } | Activity::Busy { .. }));
            if at_work {
                actions.push(Action::Adopt { worker: worker.clone() });
            } else if self.may_tell(worker, terms, now) {
                actions.push(Action::End { worker: worker.clone(), why: Why::Unknown });
            }
        }
        actions
    }

    fn may_tell(&self, worker: &WorkerId, terms: &Terms, now: Timestamp) -> bool {
        self.may_end(now) && self.may_dismiss(worker, terms, now)
    }

    /// Needs no provider, so that one in trouble holds nothing up.
    fn may_dismiss(&self, worker: &WorkerId, terms: &Terms, now: Timestamp) -> bool {
        self.told.get(worker).is_none_or(|at| now.since(*at) >= terms.end_again)
    }

    fn goers(
        &self,
        standing: &[(&WorkerId, &Member)],
        wanted: usize,
        removal: Removal,
        seen: &Seen,
        now: Timestamp,
    ) -> Vec<WorkerId> {
        let too_many = standing.len().saturating_sub(wanted);
        if too_many == 0 {
            return Vec::new();
        }
        let doing = |worker: &WorkerId| match seen.sessions.get(worker) {
            None => Doing::NotYetThere,
            Some(Activity::Idle { since }) => Doing::Idle { for_: now.since(*since) },
            Some(Activity::Drained) => Doing::Idle { for_: Duration::MAX },
            Some(Activity::Busy { tasks, .. }) => Doing::Busy { tasks: *tasks },
        };
        let may_go = |candidate: &Candidate, member: &Member| match (removal, candidate.doing) {
            // One that reported and has no session now may come back busy.
            (Removal::Idle(_), Doing::NotYetThere) => member.life < Life::Reported,
            (Removal::Idle(wait), Doing::Idle { for_ }) => for_ >= wait.0,
            (Removal::Idle(_), Doing::Busy { .. }) => false,
            (Removal::Any, _) => true,
        };
        let candidates: Vec<Candidate> = standing
            .iter()
            .map(|(worker, member)| {
                (Candidate { worker: (*worker).clone(), node: member.node.clone(), doing: doing(worker) }, member)
            })
            .filter(|(candidate, member)| may_go(candidate, member))
            .map(|(candidate, _)| candidate)
            .collect();
        let nodes = self.members.values().filter_map(|member| member.node.as_ref());
        leavers(candidates, nodes, too_many)
    }

    /// How many more there may be. What is leaving, and what nobody knows, still takes its place.
    fn room(&self, max: u32, seen: &Seen) -> usize {
        let occupied = self.members.len() + self.strangers(seen).count();
        (max as usize).saturating_sub(occupied)
    }

    fn strangers<'a>(&'a self, seen: &'a Seen) -> impl Iterator<Item = &'a WorkerId> {
        let listed = match &seen.listing {
            Listing::Has(all) => Some(all),
            Listing::Unknown => None,
        };
        listed.into_iter().flatten().filter(|worker| !self.members.contains_key(*worker))
    }
}

impl Action {
    fn removes(&self) -> Option<&WorkerId> {
        match self {
            Action::End { worker, .. } | Action::Dismiss { worker, .. } | Action::Forget { worker, .. } => Some(worker),
            Action::Ask { .. } | Action::Adopt { .. } | Action::Launch { .. } | Action::Drain { .. } => None,
        }
    }
}
