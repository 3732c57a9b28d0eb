//! The resource manager around the real core: each pass decides, looks, plans, and carries the plan out step by step. Every
//! write and every call is a place to die.

use mutirao_core::WorkerId;
use mutirao_elastic::fleet::Cause;
use mutirao_elastic::{Action, Fleet, Removal, State, decide};

use super::{CALL_S_MAX, Landing, Store, Want, World};

pub struct Manager {
    fleet: Fleet,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Over,
    Died,
}

#[derive(Clone, Debug)]
pub enum Call {
    Launch(WorkerId),
    End(WorkerId),
}

enum Answer {
    Yes,
    No,
    Died,
}

/// Goes on, or ends the pass as the caller died.
macro_rules! or_die {
    ($step:expr) => {
        if $step == Pass::Died {
            return Ok(Pass::Died);
        }
    };
}

impl Manager {
    /// Only what was written is there; what it was is read as a successor reads it.
    pub fn adopting(store: &Store) -> Self {
        let text = |value: serde_json::Result<String>| value.expect("it can be written");
        let fleet = serde_json::from_str(&text(serde_json::to_string(&store.fleet))).expect("it can be read");
        let state = serde_json::from_str(&text(serde_json::to_string(&store.state))).expect("it can be read");
        Self { fleet, state }
    }

    pub fn pass(&mut self, world: &mut World) -> Result<Pass, String> {
        let seen = world.seen();
        self.fleet.look(&seen, world.now);
        let aim = match &world.want {
            Want::Schedule(schedule) => {
                let now_s = world.elapsed_s();
                let wanted = schedule.iter().rev().find(|(from, _)| *from <= now_s).map_or(0, |(_, wanted)| *wanted);
                world.aim(wanted, Removal::Any)
            }
            Want::Policy(elastic) => {
                let load = world.load(&self.fleet);
                let (decision, state) = decide(elastic, self.state.clone(), &load, world.now);
                let change = decision.change(world.now);
                or_die!(world.step());
                world.store.state = state.clone();
                world.history.extend(change);
                or_die!(world.step());
                self.state = state;
                world.aim(decision.wanted, decision.removal)
            }
        };
        for action in self.fleet.plan(&aim, &seen, &world.terms.clone(), world.now) {
            match self.act(&action, world)? {
                Answer::Yes => {}
                Answer::No => break,
                Answer::Died => return Ok(Pass::Died),
            }
        }
        Ok(Pass::Over)
    }

    fn act(&mut self, action: &Action, world: &mut World) -> Result<Answer, String> {
        let now = world.now;
        match action {
            Action::Ask { count } => {
                for _ in 0..*count {
                    if world.step() == Pass::Died {
                        return Ok(Answer::Died);
                    }
                    world.issued += 1;
                    let worker = WorkerId(format!("w{:04}", world.issued));
                    world.store.fleet.issue(worker.clone(), None, None, now);
                    self.fleet.issue(worker, None, None, now);
                }
                Ok(Answer::Yes)
            }
            Action::Adopt { .. } | Action::Drain { .. } | Action::Forget { .. } => {
                if self.write(action, world) == Pass::Died {
                    return Ok(Answer::Died);
                }
                self.notice(action, world);
                Ok(Answer::Yes)
            }
            Action::Dismiss { worker, .. } => {
                if self.write(action, world) == Pass::Died {
                    return Ok(Answer::Died);
                }
                // Refused, it goes by itself.
                world.carry_out(&Call::End(worker.clone()))?;
                Ok(Answer::Yes)
            }
            Action::Launch { worker } => {
                let answer = self.call(Call::Launch(worker.clone()), world)?;
                if matches!(answer, Answer::Yes) {
                    self.fleet.apply(action, now);
                }
                Ok(answer)
            }
            Action::End { worker, .. } => {
                if self.write(action, world) == Pass::Died {
                    return Ok(Answer::Died);
                }
                let answer = self.call(Call::End(worker.clone()), world)?;
                self.notice(action, world);
                Ok(answer)
            }
        }
    }

    fn notice(&mut self, action: &Action, world: &World) {
        if action.gives_up() {
            self.fleet.failed(Cause::Silence, &action.to_string(), &world.terms, &world.dice, world.now);
        }
    }

    fn write(&mut self, action: &Action, world: &mut World) -> Pass {
        if world.step() == Pass::Died {
            return Pass::Died;
        }
        world.store.fleet.apply(action, world.now);
        if world.step() == Pass::Died {
            return Pass::Died;
        }
        self.fleet.apply(action, world.now);
        Pass::Over
    }

    fn call(&mut self, call: Call, world: &mut World) -> Result<Answer, String> {
        if world.step() == Pass::Died {
            return Ok(Answer::Died);
        }
        if world.step() == Pass::Died {
            match world.faults.landing {
                Landing::Never => {}
                Landing::AtOnce => world.carry_out(&call)?,
                Landing::Late => {
                    let at = world.now.plus(std::time::Duration::from_secs(1 + world.dice.below(CALL_S_MAX)));
                    world.under_way.push((at, call));
                }
            }
            return Ok(Answer::Died);
        }
        world.calls += 1;
        let fails = world.faults.fails_each.is_some_and(|each| world.calls.is_multiple_of(each));
        let works = !fails || world.calls.is_multiple_of(2);
        if works {
            world.carry_out(&call)?;
        }
        if fails {
            world.errors += 1;
            self.fleet.failed(Cause::Call, "the provider is out of order", &world.terms, &world.dice, world.now);
            return Ok(Answer::No);
        }
        self.fleet.answered();
        Ok(if world.step() == Pass::Died { Answer::Died } else { Answer::Yes })
    }
}
