//! Which task goes next, and with what.

use mutirao_core::id::Attempt;
use mutirao_expression::Stop;
use serde_json::Value;

use super::clockwork::Due;
use super::reckoning::What;
use super::run::{Phase, State};
use super::words::{Dispatch, End, Noted, StepKey};
use super::{Foreman, Now, Out};

impl Foreman {
    /// The first that came; where memory is short, of the oldest run, for what ends frees some.
    pub(super) fn next_ready(&mut self) -> Option<StepKey> {
        if !self.is_heavy() {
            return self.ready.pop_front();
        }
        let (place, _) = self.ready.iter().enumerate().min_by_key(|(_, key)| key.run)?;
        self.ready.remove(place)
    }

    /// None if it need not go, or not yet, or cannot: then its run fails. `given`: what it is given, where that was worked out.
    pub(super) fn dispatch(
        &mut self,
        key: StepKey,
        given: Option<Result<Value, String>>,
        now: Now,
    ) -> Option<Dispatch> {
        let pace = self.rules.pace;
        let run = self.runs.get_mut(&key.run).filter(|run| run.phase == Phase::Going)?;
        if !matches!(run.item(key)?.state, State::Ready) {
            return None;
        }
        let plan = run.admitted.plan.clone();
        let step = &plan.steps[key.step as usize];
        let open = run.open[key.step as usize].as_ref()?;
        let item = open.list.as_ref().and_then(|list| list.get(key.item as usize));
        let item = item.map(|item| (key.item as usize, item));
        let input = match given {
            Some(given) => given.map_err(Stop::Failed),
            None if open.is_costly => Err(Stop::Costly),
            None => plan.input(key.step as usize, run.seen(), item, pace),
        };
        let input = match input {
            Ok(input) => input,
            Err(Stop::Costly) => {
                // What took long once will again: nobody tries it on all of a list.
                run.open[key.step as usize].as_mut()?.is_costly = true;
                self.reckonings.want(key.run, What::Given(key));
                return None;
            }
            Err(Stop::Failed(why)) => {
                self.settle(key, End::Failed(why), None, now.wall, now);
                return None;
            }
        };
        let (resumed, mut place) = (run.resumed(key, now.mono), step.place.clone());
        let item = run.item_mut(key)?;
        let (attempt, began_at) = match resumed {
            Some(Noted { attempt, node, since, .. }) => {
                place.node = Some(node);
                (attempt, if since.0 > 0 { since } else { now.wall })
            }
            None => {
                item.sent += 1;
                (Attempt { generation: self.generation, n: item.sent }, now.wall)
            }
        };
        item.state = State::Out(attempt);
        let not = item.failed_on.clone();
        let overdue = self.clockwork.set(now.mono.plus(step.timeout), Due::Overdue(key, attempt));
        self.outs.insert(key, Out { attempt, node: None, why: None, began_at, overdue, note: None });
        let (action, timeout) = (step.action.clone(), step.timeout);
        Some(Dispatch { key, attempt, action, input, place, timeout, not })
    }
}
