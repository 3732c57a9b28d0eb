//! What waits to be said: words to the workers of a queue, looks into queues, removals. While the broker is away nobody
//! hears any of it; so words to one queue are put together, none is kept twice, and how many wait is counted.

use std::collections::VecDeque;

use mutirao_core::envelope::Control;
use mutirao_core::id::{JobKey, QueueName, WorkerId};

use crate::desk::Pick;
use crate::dispatch::Outgoing;

/// Words in one message to workers.
const MESSAGE_WORDS_MAX: usize = 1_000;

/// What the workers of a queue are to do.
#[derive(Clone, Debug)]
pub(super) enum Word {
    /// Stop this attempt at a task, and earlier ones.
    Stop(Pick),
    /// Stop what there is of a job.
    StopJob(JobKey),
    /// This worker takes nothing new.
    Rest(WorkerId),
}

#[derive(Default)]
pub(super) struct Words {
    waiting: VecDeque<Outgoing>,
    /// In all messages to workers that wait.
    count: usize,
}

impl Words {
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn tell(&mut self, queue: &QueueName, word: Word) {
        let last = self.waiting.iter_mut().rev().find_map(|waiting| match waiting {
            Outgoing::Control(to, control) if to == queue => Some(control),
            _ => None,
        });
        match last {
            Some(control) if has(control, &word) => return,
            Some(control) if length(control) < MESSAGE_WORDS_MAX => add(control, word),
            _ => {
                let mut control = Control::default();
                add(&mut control, word);
                self.waiting.push_back(Outgoing::Control(queue.clone(), control));
            }
        }
        self.count += 1;
    }

    /// Has a queue looked at.
    pub fn look_at(&mut self, queue: QueueName) {
        let is_wanted = |waiting: &Outgoing| matches!(waiting, Outgoing::Look(other) if *other == queue);
        if !self.waiting.iter().any(is_wanted) {
            self.waiting.push_back(Outgoing::Look(queue));
        }
    }

    /// Has a queue that was deleted removed from the broker.
    pub fn remove(&mut self, queue: QueueName) {
        let is_wanted = |waiting: &Outgoing| matches!(waiting, Outgoing::Remove(other) if *other == queue);
        if !self.waiting.iter().any(is_wanted) {
            self.waiting.push_back(Outgoing::Remove(queue));
        }
    }

    pub fn next(&mut self) -> Option<Outgoing> {
        let next = self.waiting.pop_front()?;
        if let Outgoing::Control(_, control) = &next {
            self.count -= length(control);
        }
        Some(next)
    }
}

fn add(control: &mut Control, word: Word) {
    match word {
        Word::Stop(Pick { task, attempt }) => control.cancel(task, attempt),
        Word::StopJob(job) => control.cancel_jobs.push(job),
        Word::Rest(worker) => control.rest.push(worker),
    }
}

fn has(control: &Control, word: &Word) -> bool {
    match word {
        Word::Stop(Pick { task, attempt }) => control.cancelled().any(|known| known == (*task, *attempt)),
        Word::StopJob(job) => control.cancel_jobs.contains(job),
        Word::Rest(worker) => control.rest.contains(worker),
    }
}

fn length(control: &Control) -> usize {
    control.cancel_tasks.len() + control.cancel_jobs.len() + control.rest.len()
}

#[cfg(test)]
mod tests {
    use mutirao_core::id::{Attempt, TaskKey};

    use super::*;

    fn stop(index: u32) -> Word {
        Word::Stop(Pick { task: TaskKey { job: JobKey(1), index }, attempt: Attempt { generation: 1, n: 1 } })
    }

    fn lengths(words: &mut Words) -> Vec<usize> {
        let length_of = |outgoing| match outgoing {
            Outgoing::Control(_, control) => length(&control),
            _ => 0,
        };
        std::iter::from_fn(|| words.next().map(length_of)).collect()
    }

    #[test]
    fn words_that_nobody_hears_are_kept_once_and_put_together() {
        let (mut words, queue) = (Words::default(), QueueName::default());
        for _ in 0..50 {
            (0..10).for_each(|index| words.tell(&queue, stop(index)));
            words.tell(&queue, Word::StopJob(JobKey(7)));
            words.tell(&queue, Word::Rest(WorkerId("w".into())));
            words.look_at(queue.clone());
            words.remove(queue.clone());
        }
        assert_eq!(words.count(), 12);
        assert_eq!(lengths(&mut words), [12, 0, 0]);
        assert_eq!(words.count(), 0);
    }

    #[test]
    fn a_message_has_a_bound_and_no_word_is_left_out() {
        let (mut words, queue) = (Words::default(), QueueName::default());
        (0..2_500).for_each(|index| words.tell(&queue, stop(index)));
        assert_eq!((words.count(), lengths(&mut words)), (2_500, vec![1_000, 1_000, 500]));
    }
}
