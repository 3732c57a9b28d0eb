//! What was answered lately. Messages come at least once: one that comes again is answered with what was answered before, or,
//! while it still runs, with nothing, for its answer is on its way. How much is remembered is bounded by number and bytes.

use std::collections::{HashMap, VecDeque};

pub const REMEMBERED_MAX: usize = 512;
pub const REMEMBERED_BYTES_MAX: usize = 1 << 20;

/// What a message is, by its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is to be run. Whoever asked has to say how it ended.
    New,
    /// It runs, or waits for its turn.
    Underway,
    /// It ended, and this was the answer.
    Answered(String),
}

#[derive(Debug, Default)]
pub struct Answers {
    /// None while it runs.
    known: HashMap<String, Option<String>>,
    /// Those that ended, the oldest first.
    ended: VecDeque<String>,
    bytes: usize,
}

impl Answers {
    pub fn ask(&mut self, request: &str) -> Known {
        match self.known.get(request) {
            Some(Some(answer)) => Known::Answered(answer.clone()),
            Some(None) => Known::Underway,
            None => {
                self.known.insert(request.into(), None);
                Known::New
            }
        }
    }

    /// It will not be answered: should it come again, it is new.
    pub fn forget(&mut self, request: &str) {
        if matches!(self.known.get(request), Some(None)) {
            self.known.remove(request);
        }
    }

    pub fn answered(&mut self, request: &str, answer: String) {
        if matches!(self.known.get(request), Some(Some(_))) {
            return;
        }
        self.bytes += answer.len();
        self.known.insert(request.into(), Some(answer));
        self.ended.push_back(request.into());
        while self.ended.len() > REMEMBERED_MAX || (self.bytes > REMEMBERED_BYTES_MAX && self.ended.len() > 1) {
            let Some(oldest) = self.ended.pop_front() else { break };
            if let Some(Some(answer)) = self.known.remove(&oldest) {
                self.bytes -= answer.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_comes_is_run_once_while_it_is_remembered(asked in proptest::collection::vec(0u16..40, 0..400)) {
            let mut answers = Answers::default();
            let mut runs: HashMap<u16, u32> = HashMap::new();
            for one in asked {
                let name = one.to_string();
                match answers.ask(&name) {
                    Known::New => *runs.entry(one).or_default() += 1,
                    Known::Underway => answers.answered(&name, format!("answer {name}")),
                    Known::Answered(answer) => prop_assert_eq!(answer, format!("answer {}", name)),
                }
            }
            prop_assert!(runs.values().all(|many| *many == 1));
        }
    }

    #[test]
    fn memory_is_bounded_and_a_failure_to_answer_is_forgotten() {
        let mut answers = Answers::default();
        for n in 0..2_000 {
            assert_eq!(answers.ask(&n.to_string()), Known::New);
            answers.answered(&n.to_string(), "x".repeat(10_000));
        }
        assert!(answers.bytes <= REMEMBERED_BYTES_MAX && answers.known.len() <= REMEMBERED_MAX);
        assert!(matches!(answers.ask("1999"), Known::Answered(_)));
        assert_eq!((answers.ask("new"), answers.ask("new")), (Known::New, Known::Underway));
        answers.forget("new");
        assert_eq!(answers.ask("new"), Known::New);
        answers.answered("big", "x".repeat(2 << 20));
        assert!(matches!(answers.ask("big"), Known::Answered(_)), "the last is kept however large");
    }
}
