//! What was answered lately. Messages come at least once: one that comes again is answered with what was answered before, or,
//! while it still runs, with nothing, for its answer is on its way. How much is remembered of what was sent is bounded by number
//! and bytes; what is still to be sent is never forgotten, and bounded by where it is kept.

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
    /// It ended, and its answer is kept under this number until it was sent.
    Kept(u64),
    /// It ended, and this was the answer.
    Answered(String),
}

#[derive(Debug, Default)]
pub struct Answers {
    /// None of them is new.
    known: HashMap<String, Known>,
    /// Those that were answered, the oldest first.
    ended: VecDeque<String>,
    bytes: usize,
}

impl Answers {
    pub fn ask(&mut self, request: &str) -> Known {
        if let Some(known) = self.known.get(request) {
            return known.clone();
        }
        self.known.insert(request.into(), Known::Underway);
        Known::New
    }

    /// It will not be answered: should it come again, it is new.
    pub fn forget(&mut self, request: &str) {
        if self.known.get(request) == Some(&Known::Underway) {
            self.known.remove(request);
        }
    }

    /// Its answer is where it is not lost, and is sent from there.
    pub fn kept(&mut self, request: &str, number: u64) {
        if !matches!(self.known.get(request), Some(Known::Answered(_))) {
            self.known.insert(request.into(), Known::Kept(number));
        }
    }

    /// If it was answered, and that is remembered.
    pub fn answer(&self, request: &str) -> Option<String> {
        match self.known.get(request) {
            Some(Known::Answered(answer)) => Some(answer.clone()),
            _ => None,
        }
    }

    /// Somebody else has its answer.
    pub fn answered(&mut self, request: &str, answer: String) {
        if matches!(self.known.get(request), Some(Known::Answered(_))) {
            return;
        }
        self.bytes += answer.len();
        self.known.insert(request.into(), Known::Answered(answer));
        self.ended.push_back(request.into());
        while self.ended.len() > REMEMBERED_MAX || (self.bytes > REMEMBERED_BYTES_MAX && self.ended.len() > 1) {
            let Some(oldest) = self.ended.pop_front() else { break };
            if let Some(Known::Answered(answer)) = self.known.remove(&oldest) {
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
                    Known::Kept(_) => prop_assert!(false, "nothing was kept"),
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
        answers.kept("kept", 7);
        for n in 2_000..4_000 {
            answers.answered(&n.to_string(), "x".repeat(10_000));
        }
        assert_eq!(answers.ask("kept"), Known::Kept(7), "however much was answered since");
        answers.answered("kept", "x".into());
        assert_eq!(answers.ask("kept"), Known::Answered("x".into()));
        assert_eq!((answers.ask("new"), answers.ask("new")), (Known::New, Known::Underway));
        answers.forget("new");
        assert_eq!(answers.ask("new"), Known::New);
        answers.answered("big", "x".repeat(2 << 20));
        assert!(matches!(answers.ask("big"), Known::Answered(_)), "the last is kept however large");
    }
}
