//! What clients ask of a simulated manager, and what it says to the owners of shards: through its own post, or to whoever
//! listens.

use mutirao_jobs::question::Question as Wanted;
use mutirao_shards::ShardId;

use super::super::asker::{Asker, Who};
use super::super::ground::{Event, Ground, MS};
use super::super::weather::shard_of_queue;
use super::super::wire::{
    Answer, Body, Created, Name, NoAnswer, Pid, Question, QueueWord, Request, Response, ToBroker,
};
use super::{Manager, Purpose};

impl Manager {
    pub fn asked(&mut self, request: u64, what: Request, ground: &mut Ground) {
        let question = match &what {
            Request::Submit { key, definition } => Question::Create { key: *key, definition: definition.clone() },
            Request::CancelJob(job) => Question::CancelJob(*job),
            Request::ChangeQueue(change) => Question::ChangeQueue(change.clone()),
            Request::CancelTask(task, shard) => {
                let who = match self.posts.contains_key(shard) {
                    true => Who::Client(request),
                    false => Who::ClientOf(self.pid, request),
                };
                let asker = Asker { who, task: Some(*task) };
                return self.ask(*shard, Wanted::CancelTask { task: *task }, asker, ground);
            }
        };
        let now = self.now(ground).mono;
        self.calls.ask(Purpose::Request(request, what), question, now, ground);
    }

    pub(super) fn respond(
        &mut self,
        request: u64,
        what: Request,
        answer: Result<Answer, NoAnswer>,
        ground: &mut Ground,
    ) {
        let response = match (what, answer) {
            (Request::Submit { definition, .. }, Ok(Answer::Created(job, created))) => {
                if created == Created::New {
                    let shard = definition.shard;
                    match self.posts.contains_key(&shard) {
                        true => self.with_post(shard, ground, |post, h| post.admit(job, definition, h)),
                        false => self.ask(shard, Wanted::Admit { job }, Asker::NOBODY, ground),
                    }
                }
                Response::Accepted(job)
            }
            (Request::CancelJob(job), Ok(Answer::Cancelled(of))) => {
                if let Some((shard, queue)) = of {
                    self.ask(shard, Wanted::CancelJob { job, queue }, Asker::NOBODY, ground);
                }
                Response::Cancelled
            }
            (Request::Submit { .. }, Ok(Answer::NoQueue)) => Response::NoQueue,
            (Request::ChangeQueue(change), Ok(Answer::Queue(word))) => {
                let shard = shard_of_queue(&change.queue);
                match word {
                    Some(QueueWord::Defined(row)) => {
                        self.ask(shard, Wanted::Define { queue: row }, Asker::NOBODY, ground);
                    }
                    Some(QueueWord::Removed(queue)) => {
                        self.ask(shard, Wanted::Forget { queue }, Asker::NOBODY, ground);
                    }
                    None => {}
                }
                Response::Changed
            }
            _ => Response::Refused,
        };
        ground.after(MS, Event::Responded(request, response));
    }

    fn ask(&mut self, shard: ShardId, question: Wanted, asker: Asker, ground: &mut Ground) {
        if self.posts.contains_key(&shard) {
            self.with_post(shard, ground, |post, h| post.asked(question, asker, h));
        } else {
            let (topic, body) = (Name::Asks(shard), Body::Ask(question, asker));
            self.link.send(ToBroker::Announce { topic, body }, ground);
        }
    }

    /// A worker process was seen dying.
    pub fn bury(&mut self, pid: Pid, ground: &mut Ground) {
        self.all_posts(ground, |post, h| post.bury(pid, h));
    }
}
