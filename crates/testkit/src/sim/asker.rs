//! Who asked the owner of a shard something, and how the answer finds its way.

use mutirao_core::id::TaskKey;
use mutirao_jobs::question::Answer;

use super::ground::{Event, Ground, MS};
use super::link::Link;
use super::wire::{Body, Name, Pid, Response, ToBroker};

#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// Nobody waits: what gets lost is found in the store.
    Nobody,
    /// A client of this manager, by its request.
    Client(u64),
    /// A client of another manager.
    ClientOf(Pid, u64),
}

#[derive(Clone, Copy, Debug)]
pub struct Asker {
    pub who: Who,
    /// The task that is to be cancelled.
    pub task: Option<TaskKey>,
}

impl Asker {
    pub const NOBODY: Asker = Asker { who: Who::Nobody, task: None };

    /// Takes an answer to whoever waits for it.
    pub fn answer(self, answer: Answer, link: &mut Link, ground: &mut Ground) {
        if let (Some(task), Answer::CancelTask(true)) = (self.task, &answer) {
            ground.oracle.told_cancelled(task);
        }
        match self.who {
            Who::Nobody => {}
            Who::Client(request) => ground.after(MS, Event::Responded(request, Response::Cancelled)),
            Who::ClientOf(pid, request) => {
                let (topic, asker) = (Name::Answers(pid), Asker { who: Who::Client(request), task: self.task });
                link.send(ToBroker::Announce { topic, body: Body::Answer(answer, asker) }, ground);
            }
        }
    }
}
