//! What travels in the simulated world: names, letters to and from the broker, questions to the store and their answers.
//! Envelopes are the real ones, not encoded.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use mutirao_core::envelope::{Control, Parcel, Reports};
use mutirao_core::id::{JobKey, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::task::{Needs, Retry, TaskSpec};
use mutirao_jobs::desk::ledger::Ledger;
use mutirao_jobs::desk::order::Rank;
use mutirao_jobs::question;
use mutirao_jobs::store::queues::{QueueRow, Removed};
use mutirao_jobs::store::{OpenJob, Settlement};
use mutirao_queues::QueueSpec;
use mutirao_shards::store::{LeaseRow, MemberRow};
use mutirao_shards::tenancy::Claim;
use mutirao_shards::{MemberId, ShardId};

use super::asker::Asker;

/// One life of a process. A process that starts again has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pid(pub u32);

/// One connection of a process to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId {
    pub pid: Pid,
    pub epoch: u32,
}

/// Queues and topics of the broker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Tasks(QueueName),
    Results(ShardId),
    Control(QueueName),
    Asks(ShardId),
    /// Where a manager listens for answers.
    Answers(Pid),
}

/// A job as submitted.
#[derive(Debug)]
pub struct Definition {
    pub queue: QueueName,
    pub shard: ShardId,
    pub first: u32,
    pub total: u32,
    pub retry: Retry,
    pub needs: Needs,
    pub rank: Rank,
    pub spec: Arc<TaskSpec>,
}

impl Definition {
    /// As an owner takes it in.
    pub fn ledger(&self, retry: Retry) -> Ledger {
        Ledger::new(self.queue.clone(), self.first, self.total, retry, self.needs).ranked(self.rank.clone())
    }
}

/// A message of the broker.
#[derive(Clone, Debug)]
pub enum Body {
    Parcel(Rc<Parcel>),
    Reports(Rc<Reports>),
    Control(Rc<Control>),
    Ask(question::Question, Asker),
    Answer(question::Answer, Asker),
}

#[derive(Clone, Debug)]
pub enum ToBroker {
    Connect,
    Publish { to: Name, bodies: Vec<Body>, confirm: u64 },
    Consume { from: Name, consumer: u64, credit: usize },
    Cancel { consumer: u64 },
    Ack { consumer: u64, through: u64 },
    Announce { topic: Name, body: Body },
    Subscribe(Name),
    Count { queue: Name, id: u64 },
}

#[derive(Clone, Debug)]
pub enum FromBroker {
    Connected,
    Confirmed(u64),
    Delivery {
        consumer: u64,
        tag: u64,
        body: Body,
    },
    Heard(Name, Body),
    Counted {
        id: u64,
        lying: usize,
    },
    /// The connection is no more.
    Lost,
}

/// A question to the store, and who asks.
#[derive(Clone, Debug)]
pub struct Call {
    pub pid: Pid,
    pub id: u64,
    pub question: Question,
}

#[derive(Clone, Debug)]
pub enum Question {
    Beat(MemberId),
    Renew(MemberId, Vec<(ShardId, u64)>),
    Members,
    Leases,
    Claim(MemberId, Claim),
    Release(MemberId, ShardId, u64),
    Forget(MemberId, Option<u64>),
    Create {
        key: u64,
        definition: Rc<Definition>,
    },
    CancelJob(JobKey),
    ChangeQueue(QueueChange),
    /// Every queue there is, every one that was deleted, and who is to rest.
    Queues,
    /// Everything unfinished in a shard.
    Load(ShardId),
    /// Which jobs of a shard are unfinished.
    Keys(ShardId),
    /// Those of these jobs that are unfinished.
    Jobs(ShardId, Vec<JobKey>),
    Settle {
        member: MemberId,
        shard: ShardId,
        generation: u64,
        settlement: Arc<Settlement>,
    },
}

#[derive(Debug)]
pub enum Answer {
    Done,
    Renewed(Vec<ShardId>),
    Members(Vec<MemberRow>),
    Leases(Vec<LeaseRow>),
    Claimed(Option<u64>),
    Created(JobKey, Created),
    NoQueue,
    /// What became of a queue; none when a later change had been made.
    Queue(Option<QueueWord>),
    /// All of them, those that were deleted, and the workers that are to rest.
    Queues(Vec<QueueRow>, Vec<Removed>, BTreeSet<WorkerId>),
    /// Where the job was, if there was something to cancel.
    Cancelled(Option<(ShardId, QueueName)>),
    Loaded(Loaded),
    Keys(Vec<JobKey>),
    Settled,
    /// The generation is over.
    Fenced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    New,
    Before,
}

/// What an owner finds of its shard.
pub struct Loaded {
    pub jobs: Vec<(OpenJob, Rc<Definition>)>,
    pub sessions: Vec<(SessionId, WorkerId, QueueName)>,
    pub queues: Vec<QueueRow>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} jobs, {} sessions", self.jobs.len(), self.sessions.len())
    }
}

/// The store did not answer, or said that it cannot. Whether the question took effect is not known.
#[derive(Clone, Copy, Debug)]
pub struct NoAnswer;

/// What a client asks of a manager.
#[derive(Clone, Debug)]
pub enum Request {
    Submit { key: u64, definition: Rc<Definition> },
    CancelJob(JobKey),
    CancelTask(TaskKey, ShardId),
    ChangeQueue(QueueChange),
}

/// What somebody wants of a queue. Changes of one queue are numbered: an old one that comes late is refused, as by a person
/// who looks before changing.
#[derive(Clone, Debug)]
pub struct QueueChange {
    pub queue: QueueName,
    pub number: u64,
    /// None to delete it, with its jobs.
    pub spec: Option<Rc<QueueSpec>>,
}

/// What the store has written of a queue.
#[derive(Clone, Debug)]
pub enum QueueWord {
    Defined(Box<QueueRow>),
    Removed(Removed),
}

/// What a client hears: it was done, or (within the client's patience) nothing.
#[derive(Clone, Copy, Debug)]
pub enum Response {
    Accepted(JobKey),
    Cancelled,
    Changed,
    /// There is no such queue.
    NoQueue,
    Refused,
}
