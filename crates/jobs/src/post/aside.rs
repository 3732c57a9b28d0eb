//! What others ask, in the order in which it is taken in. While there is no room for changes they are set aside, so that those
//! who only look are answered: a store that is slow is no reason to be blind.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::doors::Ask;

/// Changes that may be set aside. Past it what comes stays at the door, looks as well.
const ASIDE_MAX: usize = 1_024;

#[derive(Default)]
pub(super) struct Aside(VecDeque<Ask>);

impl Aside {
    /// The next that may be taken in. None when nobody can ask any more, and nothing is left. Cancel-safe.
    pub async fn next(&mut self, asks: &mut mpsc::Receiver<Ask>, has_room: bool) -> Option<Ask> {
        if has_room && let Some(ask) = self.0.pop_front() {
            return Some(ask);
        }
        while self.0.len() < ASIDE_MAX {
            let ask = asks.recv().await?;
            if has_room || ask.only_looks() {
                return Some(ask);
            }
            self.0.push_back(ask);
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use mutirao_core::id::JobKey;
    use tokio::sync::oneshot;

    use super::*;
    use crate::question::Question;

    fn ask(question: Question) -> Ask {
        Ask::Question(question, oneshot::channel().0)
    }

    fn admit(job: u64) -> Ask {
        ask(Question::Admit { job: JobKey(job) })
    }

    fn job_in(ask: Option<Option<Ask>>) -> Option<u64> {
        match ask?? {
            Ask::Question(Question::Admit { job }, _) => Some(job.0),
            _ => None,
        }
    }

    #[test]
    fn without_room_looks_are_taken_in_and_changes_wait_in_their_order() {
        let (door, mut asks) = mpsc::channel(8);
        let mut aside = Aside::default();
        let mut next = |has_room| aside.next(&mut asks, has_room).now_or_never();
        for question in [admit(1), admit(2), ask(Question::Workers), admit(3)] {
            door.try_send(question).unwrap();
        }
        assert!(matches!(next(false), Some(Some(Ask::Question(Question::Workers, _)))));
        assert!(next(false).is_none(), "what is left changes something");
        assert_eq!([next(true), next(true), next(true)].map(job_in), [Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn no_more_is_set_aside_than_a_bound() {
        let (door, mut asks) = mpsc::channel(ASIDE_MAX + 1);
        let mut aside = Aside::default();
        (0..=ASIDE_MAX as u64).for_each(|job| door.try_send(admit(job)).unwrap());
        assert!(aside.next(&mut asks, false).now_or_never().is_none());
        assert_eq!((aside.0.len(), asks.len()), (ASIDE_MAX, 1));
    }
}
