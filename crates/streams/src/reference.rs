//! The same as [`operator`](crate::operator), one event at a time, slowly and plainly: a graph of steps over a list of events,
//! with everything remembered and everything computed anew. Nothing here is shared with what it is compared with, but for the
//! sketches of very many values, which have tests of their own. Not for use but in comparisons: memory grows for ever.

mod plain;
mod windows;

use crate::batch::Value;
use crate::operator::Port;
use crate::schema::Schema;
use crate::window::Grouping;
use windows::Windows;

/// One thing that comes.
#[derive(Clone, Debug)]
pub enum Word {
    Event(Vec<Value>),
    /// Everything before this time has come.
    Time(i64),
}

impl Word {
    /// Whether both are the same to the bit.
    pub fn same(&self, other: &Word) -> bool {
        match (self, other) {
            (Word::Time(one), Word::Time(other)) => one == other,
            (Word::Event(one), Word::Event(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.same(other))
            }
            _ => false,
        }
    }
}

/// A step, and the steps before it by their place in the list, all of them earlier.
pub enum Step<'a> {
    /// Events come from outside.
    Source,
    Filter {
        of: usize,
        test: &'a dyn Fn(&[Value]) -> bool,
    },
    Map {
        of: usize,
        make: &'a dyn Fn(&[Value]) -> Vec<Value>,
    },
    Union {
        of: Vec<usize>,
    },
    Window {
        of: usize,
        grouping: Grouping,
        input: Schema,
    },
}

impl Step<'_> {
    /// At which input what a step says comes in, if it does.
    fn input(&self, from: usize) -> Option<usize> {
        match self {
            Step::Source => None,
            Step::Filter { of, .. } | Step::Map { of, .. } | Step::Window { of, .. } => (*of == from).then_some(0),
            Step::Union { of } => of.iter().position(|of| *of == from),
        }
    }
}

/// What each step said, in order, given what came at each source.
pub fn run(steps: &[Step<'_>], words: &[(usize, Word)]) -> Vec<Vec<(Port, Word)>> {
    let mut run = Run {
        steps,
        times: steps
            .iter()
            .map(|step| if let Step::Union { of } = step { vec![i64::MIN; of.len()] } else { vec![] })
            .collect(),
        windows: steps.iter().map(Windows::of_step).collect(),
        said: steps.iter().map(|_| Vec::new()).collect(),
    };
    for (source, word) in words {
        run.say(*source, Port::Main, word.clone());
    }
    run.said
}

struct Run<'a> {
    steps: &'a [Step<'a>],
    /// How far each input of a union is.
    times: Vec<Vec<i64>>,
    windows: Vec<Option<Windows>>,
    said: Vec<Vec<(Port, Word)>>,
}

impl Run<'_> {
    fn say(&mut self, step: usize, port: Port, word: Word) {
        if port == Port::Main {
            for next in step + 1..self.steps.len() {
                if let Some(input) = self.steps[next].input(step) {
                    self.hear(next, input, &word);
                }
            }
        }
        self.said[step].push((port, word));
    }

    fn hear(&mut self, step: usize, input: usize, word: &Word) {
        match (&self.steps[step], word) {
            (Step::Source, _) => {}
            (Step::Filter { test, .. }, Word::Event(event)) if !test(event) => {}
            (Step::Map { make, .. }, Word::Event(event)) => self.say(step, Port::Main, Word::Event(make(event))),
            (Step::Union { .. }, Word::Time(time)) => {
                let before = self.times[step].iter().min().copied();
                self.times[step][input] = self.times[step][input].max(*time);
                let now = self.times[step].iter().min().copied();
                if now > before {
                    self.say(step, Port::Main, Word::Time(now.unwrap_or(*time)));
                }
            }
            (Step::Window { .. }, word) => {
                let said = self.windows[step].as_mut().map(|windows| windows.hear(word)).unwrap_or_default();
                said.into_iter().for_each(|(port, word)| self.say(step, port, word));
            }
            (Step::Filter { .. } | Step::Union { .. }, Word::Event(_))
            | (Step::Filter { .. } | Step::Map { .. }, Word::Time(_)) => self.say(step, Port::Main, word.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
