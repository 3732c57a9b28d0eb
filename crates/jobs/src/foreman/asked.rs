//! What others ask: a look is answered at once, a change when it is written.

use std::sync::Arc;

use mutirao_core::id::JobKey;

use super::words::Word;
use super::{Ask, Foreman};
use crate::desk::{Desk, Now};
use crate::question::{Answer, Question};
use crate::store::dead::Tried;
use crate::store::queues::{QueueRow, Removed};

pub(super) fn define(desk: &mut Desk, queues: Vec<QueueRow>, now: Now) {
    queues.into_iter().for_each(|queue| desk.define(&Arc::new(queue.spec), queue.revision, now));
}

impl<A> Foreman<A> {
    pub(super) fn asked(&mut self, ask: Ask<A>, now: Now) {
        match ask {
            Ask::Admit(job, ledger) => {
                if !self.pending.is_buried(job) {
                    self.desk.admit(job, *ledger);
                }
            }
            Ask::Queues { defined, removed } => {
                removed.into_iter().for_each(|queue| self.forget(queue));
                define(&mut self.desk, defined, now);
            }
            Ask::Question(question, asker) => self.question(question, asker, now),
        }
    }

    fn question(&mut self, question: Question, asker: A, now: Now) {
        if let Some(answer) = question.look(&self.desk, now) {
            return self.pending.answer(asker, answer);
        }
        match question {
            Question::CancelTask { task } => {
                return match self.desk.cancel_task(task, now) {
                    true => self.pending.answer_when_written(asker, Answer::CancelTask(true)),
                    false => self.pending.answer(asker, Answer::CancelTask(false)),
                };
            }
            Question::CancelJob { job, queue } => {
                // Also when it is not known here: a former owner may have handed some of it out.
                if !self.desk.knows_job(job) {
                    self.pending.words.tell(&queue, Word::StopJob(job));
                }
                self.cancel_jobs(&[job]);
            }
            Question::Admit { job } => self.hear_of(job),
            Question::Revive { job, tasks } => self.revive(job, &tasks),
            Question::Rest { workers } => self.desk.rest(workers),
            Question::Define { queue } => define(&mut self.desk, vec![*queue], now),
            Question::Forget { queue } => self.forget(queue),
            Question::Bury { worker: Some(worker), pid, .. } => self.desk.bury(&worker, pid, now),
            _ => {}
        }
        self.pending.answer(asker, Answer::Noted);
    }

    fn revive(&mut self, job: JobKey, tasks: &[Tried]) {
        if !self.desk.revive(job, tasks) {
            // It was over, and is not any more.
            self.pending.exhume(job);
            self.comparing.ask_for(job);
        }
    }

    fn forget(&mut self, Removed { queue, revision }: Removed) {
        if self.desk.forget(&queue, revision) {
            // It may have been deleted together with its jobs.
            self.comparing.soon();
        }
    }

    fn hear_of(&mut self, job: JobKey) {
        if !self.desk.knows_job(job) && !self.pending.is_buried(job) {
            self.comparing.ask_for(job);
        }
    }
}
