//! Messages that a node has, and what becomes of them. Each is run once, however often it comes: a copy that comes while the
//! first runs waits with it, and one that comes after is answered with what was answered before: also while that is on its way,
//! since whoever sent it may have sent it because it was lost there.
//!
//! Accepting a message tells whoever sent it that it need not come again. So all copies of one are accepted together, once
//! its result is safe; and if its run ends without a result, broken or cut short, none is, and it is new when it comes again.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use super::Accept;
use crate::answers::{Answers, Known};

/// Copies of one message that wait with it. A server has no more than this unacknowledged at once; older ones came over
/// connections that are gone.
const COPIES_MAX: usize = 16;

#[derive(Default)]
pub struct Desk(Mutex<Papers>);

#[derive(Default)]
struct Papers {
    answers: Answers,
    /// Of what runs under a name.
    running: HashMap<String, Running>,
}

#[derive(Default)]
struct Running {
    /// To be called when it is safe.
    accepts: VecDeque<Accept>,
    /// Its answer, once that is on its way.
    said: Option<String>,
}

/// What is to be done about a message.
pub enum Turn {
    /// It is new: run it under this name, and say how it ended ([`Desk::underway`]).
    Run(String),
    /// Its answer is kept under this number; it was accepted.
    Kept(String, u64),
    /// This is its answer; it was accepted, or will be with the first.
    Again(String),
}

impl Desk {
    /// It ended before this start, and its result is still to be sent.
    pub fn kept(&self, key: &str, number: u64) {
        self.0.lock().answers.kept(key, number);
    }

    pub fn answer(&self, key: &str) -> Option<String> {
        self.0.lock().answers.answer(key)
    }

    /// Its result, which was kept, was sent.
    pub fn sent(&self, key: &str, answer: String) {
        self.0.lock().answers.answered(key, answer);
    }

    /// None: it runs still, and its copy waits with it.
    pub fn ask(&self, key: String, accept: Accept) -> Option<Turn> {
        let mut papers = self.0.lock();
        match papers.answers.ask(&key) {
            Known::Answered(text) => {
                drop(papers);
                accept();
                Some(Turn::Again(text))
            }
            Known::Kept(number) => {
                drop(papers);
                accept();
                Some(Turn::Kept(key, number))
            }
            known => {
                let running = papers.running.entry(key.clone()).or_default();
                running.accepts.push_back(accept);
                if running.accepts.len() > COPIES_MAX {
                    running.accepts.pop_front();
                }
                if known == Known::New { Some(Turn::Run(key)) } else { running.said.clone().map(Turn::Again) }
            }
        }
    }

    pub fn underway(&self, key: String) -> Underway<'_> {
        Underway { desk: self, key: Some(key) }
    }
}

/// A message that runs. Dropped before it has ended, it is nobody's: it comes again, and is new.
pub struct Underway<'a> {
    desk: &'a Desk,
    /// None once it has ended.
    key: Option<String>,
}

impl Underway<'_> {
    /// Its answer goes on its way now, and is not safe yet.
    pub fn said(&self, answer: &str) {
        let Some(key) = &self.key else { return };
        if let Some(running) = self.desk.0.lock().running.get_mut(key) {
            running.said = Some(answer.to_owned());
        }
    }

    /// Its result is safe with somebody else.
    pub fn ended(self, answer: String) {
        self.settle(|answers, key| answers.answered(key, answer));
    }

    /// Its result is safe here, and will be sent.
    pub fn kept(self, number: u64) {
        self.settle(|answers, key| answers.kept(key, number));
    }

    fn settle(mut self, note: impl FnOnce(&mut Answers, &str)) {
        let Some(key) = self.key.take() else { return };
        let accepts = {
            let mut papers = self.desk.0.lock();
            note(&mut papers.answers, &key);
            papers.running.remove(&key)
        };
        accepts.into_iter().flat_map(|running| running.accepts).for_each(|accept| accept());
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let dropped = {
            let mut papers = self.desk.0.lock();
            papers.answers.forget(&key);
            papers.running.remove(&key)
        };
        // Outside the lock: whoever hears of it may come again at once.
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Clone, Default)]
    struct Counter(Arc<AtomicUsize>);

    impl Counter {
        fn accept(&self) -> Accept {
            let count = self.0.clone();
            Box::new(move || {
                count.fetch_add(1, Ordering::SeqCst);
            })
        }

        fn seen(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn copies_are_accepted_with_the_first_and_not_before() {
        let (desk, accepted) = (Desk::default(), Counter::default());
        let Some(Turn::Run(key)) = desk.ask("r1".into(), accepted.accept()) else { panic!("it is new") };
        let underway = desk.underway(key);
        for _ in 0..3 {
            assert!(desk.ask("r1".into(), accepted.accept()).is_none(), "it runs");
        }
        assert_eq!(accepted.seen(), 0);
        underway.ended("7".into());
        assert_eq!(accepted.seen(), 4);
        let again = desk.ask("r1".into(), accepted.accept());
        assert!(matches!(again, Some(Turn::Again(text)) if text == "7") && accepted.seen() == 5);
    }

    #[test]
    fn a_copy_that_comes_while_the_answer_is_on_its_way_is_answered_too_and_accepted_with_the_first() {
        let (desk, accepted) = (Desk::default(), Counter::default());
        let Some(Turn::Run(key)) = desk.ask("r1".into(), accepted.accept()) else { panic!("it is new") };
        let underway = desk.underway(key);
        underway.said("7");
        let again = desk.ask("r1".into(), accepted.accept());
        assert!(matches!(again, Some(Turn::Again(text)) if text == "7") && accepted.seen() == 0);
        underway.ended("7".into());
        assert_eq!(accepted.seen(), 2);
    }

    #[test]
    fn one_whose_result_is_kept_is_accepted_and_not_run_however_long_ago_it_was() {
        let (desk, accepted) = (Desk::default(), Counter::default());
        let Some(Turn::Run(key)) = desk.ask("r1".into(), accepted.accept()) else { panic!("it is new") };
        desk.underway(key).kept(7);
        for n in 0..5_000 {
            desk.sent(&n.to_string(), "x".repeat(1_000));
        }
        let again = desk.ask("r1".into(), accepted.accept());
        assert!(matches!(again, Some(Turn::Kept(key, 7)) if key == "r1") && accepted.seen() == 2);
        desk.sent("r1", "7".into());
        let again = desk.ask("r1".into(), accepted.accept());
        assert!(matches!(again, Some(Turn::Again(text)) if text == "7"));
    }

    #[test]
    fn one_that_ends_without_a_result_is_accepted_by_nobody_and_new_again() {
        let (desk, accepted) = (Desk::default(), Counter::default());
        for _ in 0..2 {
            let Some(Turn::Run(key)) = desk.ask("r1".into(), accepted.accept()) else { panic!("it is new") };
            assert!(desk.ask("r1".into(), accepted.accept()).is_none());
            drop(desk.underway(key));
        }
        assert_eq!(accepted.seen(), 0);
        assert!(desk.0.lock().running.is_empty(), "nothing is kept of it");
    }

    #[test]
    fn copies_over_connections_that_are_gone_do_not_pile_up() {
        let (desk, accepted) = (Desk::default(), Counter::default());
        for _ in 0..1_000 {
            desk.ask("r1".into(), accepted.accept());
        }
        desk.underway("r1".into()).ended("7".into());
        assert_eq!(accepted.seen(), COPIES_MAX);
    }
}
