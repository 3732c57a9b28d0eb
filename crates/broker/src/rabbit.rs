//! The broker on RabbitMQ, 3.10 to 4.x, for many processes on many machines.
//!
//! - Work queues are quorum queues with a bound, a delivery limit and dead letters ([`work`], [`consumer`]).
//! - Fanout is one topic exchange ([`fanout`]); logs are streams ([`logs`]).
//! - Calls wait while the server is away: what was not confirmed is sent again, consumers and subscriptions attach again.
//!   Only what must not happen twice unasked, [`append`](Broker::append) and [`announce`](Broker::announce), fails with
//!   [`BrokerError::Unreachable`].
//!
//! Three connections, each made when it is first needed: for sending, for receiving, and for logs. RabbitMQ stops
//! reading from a connection that publishes when it runs out of memory or disk; acknowledgements must still pass then,
//! or nothing would ever make room.
//!
//! What is weaker than in process: a batch that meets [`BrokerError::Full`] after a while may have been taken in part;
//! counts see only this process's unacknowledged messages. What is stronger: work survives the server's restart.
//!
//! # Who may what
//! A manager makes everything under its prefix and needs `^mutirao\..*` to configure, write and read, and
//! `amq\.default` to write; for nodes also their namespace, and `amq\.topic` to write and read. A vhost is one installation's ([`mark`]). A worker has a user of its own, made by [`management`], that can do three things: take from
//! its queue, hear what is announced to it, and report by the exchange `mutirao.results`. One that hosts streams makes and
//! uses their logs, and nothing else. That a report is the worker's
//! own is checked by whoever reads it ([`vouch`]).

mod consumer;
mod denied;
mod dial;
mod fanout;
mod greeting;
mod letters;
mod line;
mod logs;
pub mod management;
mod mark;
mod names;
mod post;
mod probe;
mod pulse;
mod refusals;
mod topology;
mod trouble;
mod vouch;
mod wire;
mod work;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_core::{Clock, Dice, InstallationId};
use mutirao_tls::Trust;
use tokio::sync::Semaphore;

use crate::memory::refused;
use crate::{Broker, BrokerError, Consumer, Counts, DeadLetter, Deletion, Letters, Limits, Name, Record, Subscription};
use consumer::{Holders, RabbitConsumer};
pub use denied::lacking_permission;
use dial::Dial;
pub use dial::{Renew, check_url, user_in};
use fanout::RabbitSubscription;
use line::Line;
use logs::Logs;
pub use mark::Holder;
use mark::Mark;
pub use names::PREFIX_DEFAULT;
use names::{LogName, Names};
use post::Post;
pub use probe::Extent;
use refusals::Refusals;

/// How to reach RabbitMQ, and how much may be put there.
pub struct Config {
    /// `amqp://user:password@host:5672/vhost`, or `amqps://…` for TLS.
    pub url: String,
    /// What the names of all our queues and exchanges begin with; ends with a dot.
    pub prefix: String,
    /// Become arguments of the queues, which RabbitMQ does not let change: other limits need another prefix, or the
    /// queues deleted.
    pub limits: Limits,
    /// Whom to believe that it is the server, at an `amqps:` address.
    pub trust: Trust,
    /// Who uses it.
    pub part: Part,
    /// Asked for another URL when the server does not let us in with this one any more.
    pub renew: Option<Arc<dyn Renew>>,
    /// Whose the vhost is to be, of a manager's. Nothing is done in one that is another's.
    pub installation: Option<InstallationId>,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
}

impl Config {
    pub fn new(url: impl Into<String>, clock: Arc<dyn Clock>, dice: Arc<Dice>) -> Self {
        Self {
            url: url.into(),
            prefix: PREFIX_DEFAULT.into(),
            limits: Limits::default(),
            trust: Trust::nobody(),
            part: Part::Manager,
            renew: None,
            installation: None,
            clock,
            dice,
        }
    }
}

/// Who uses the broker: what is made, by which way messages are sent, and who is believed depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Manager,
    Worker,
}

/// A single connection, for whoever speaks AMQP in words of their own, as nodes do. It does not come back by itself.
pub async fn dial(
    url: &str,
    trust: &Trust,
    purpose: &str,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
) -> Result<lapin::Connection, BrokerError> {
    Dial::new(url, trust, None, clock, dice)?.dial(purpose).await
}

/// A broker on RabbitMQ.
pub struct Rabbit(Arc<Inner>);

/// What the broker and everything opened on it hold together: when the last of them goes, so do the connections.
struct Inner {
    names: Names,
    limits: Limits,
    part: Part,
    dial: Arc<Dial>,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
    giving: Line,
    taking: Line,
    post: Post,
    holders: Holders,
    refusals: Refusals,
    /// Whoever looks at dead letters has them for that while.
    looking: Semaphore,
    logs: Arc<Logs>,
}

impl Rabbit {
    /// One more connection, of whoever needs the server for something else than a broker. Not kept up.
    pub async fn dial(&self, purpose: &str) -> Result<lapin::Connection, BrokerError> {
        self.0.dial.dial(purpose).await
    }

    /// Connects, and says in one line what is wrong and what to do about it. From then on it stays connected by itself.
    /// Must be called within a tokio runtime.
    pub async fn connect(config: Config) -> Result<Arc<Self>, BrokerError> {
        let Config { url, prefix, limits, trust, part, renew, installation, clock, dice } = config;
        let names = Names::new(&prefix)?;
        let mark = installation.map(|installation| Mark::new(&names, &installation));
        let dial = Arc::new(Dial::new(&url, &trust, renew, clock.clone(), dice.clone())?.under(mark));
        let inner = Inner {
            names,
            limits,
            part,
            dial: dial.clone(),
            refusals: Refusals::new(clock.clone()),
            clock,
            dice,
            giving: Line::new("sending", dial.clone()),
            taking: Line::new("receiving", dial.clone()),
            post: Post::new(),
            holders: Holders::default(),
            looking: Semaphore::new(1),
            logs: Logs::new(dial, limits, part),
        };
        inner.giving.connect().await?;
        if part == Part::Manager {
            // Workers wait for it; and who may not make anything should hear so now.
            inner.make_exchanges().await?;
        }
        let inner = Arc::new(inner);
        if part == Part::Manager {
            tokio::spawn(pulse::beat(Arc::downgrade(&inner)));
        }
        Ok(Arc::new(Self(inner)))
    }

    /// Whether one could connect, and what is there: for people. Makes nothing.
    pub async fn look(config: Config) -> Result<String, BrokerError> {
        Dial::new(&config.url, &config.trust, None, config.clock, config.dice)?.look().await
    }

    /// Whose the vhost is, as this installation sees it. Makes nothing.
    pub async fn holder(config: Config, installation: &InstallationId) -> Result<Holder, BrokerError> {
        let mark = Mark::new(&Names::new(&config.prefix)?, installation);
        Dial::new(&config.url, &config.trust, None, config.clock, config.dice)?.holder(&mark).await
    }

    /// Takes the vhost from whichever installation marked it, and says whose it is once those who run have had the time to
    /// mark it again: nobody's, if the other one is gone.
    pub async fn take_over(config: Config, installation: &InstallationId) -> Result<Holder, BrokerError> {
        let (clock, mark) = (config.clock.clone(), Mark::new(&Names::new(&config.prefix)?, installation));
        let dial = Dial::new(&config.url, &config.trust, None, config.clock, config.dice)?;
        dial.unmark(&mark).await?;
        clock.sleep(line::MARKED_WITHIN).await;
        dial.holder(&mark).await
    }

    /// Whether everything can be done that a manager does: with queues and an exchange of its own, which go again. Names
    /// every permission that is lacking, and the command that grants them.
    pub async fn probe(config: Config, extent: Extent) -> Result<(), BrokerError> {
        let dial = Dial::new(&config.url, &config.trust, None, config.clock, config.dice)?;
        probe::probe(&dial, &config.prefix, extent).await
    }

    /// Ends the connections. Everything that waits on this broker, and everything asked later, gets
    /// [`BrokerError::Closed`].
    pub fn close(&self) {
        self.0.giving.shut();
        self.0.taking.shut();
        self.0.logs.shut();
    }

    fn log(&self, log: &Name) -> Result<LogName, BrokerError> {
        self.0.names.log(log)
    }
}

/// While the server has said that it takes nothing.
fn short_of_room() -> BrokerError {
    BrokerError::Unreachable("RabbitMQ takes nothing: it is short of memory or of disk; give it room".into())
}

impl Inner {
    /// As whom we are known at the server. Other managers believe what we pass on only if they have the same user.
    fn user(&self) -> String {
        self.dial.target().place.user.clone()
    }
}

#[async_trait]
impl Broker for Rabbit {
    fn reachable(&self) -> Result<(), BrokerError> {
        let up = self.0.giving.now()?;
        if up.is_blocked() { Err(short_of_room()) } else { Ok(()) }
    }

    fn trouble(&self, queue: &Name) -> Option<BrokerError> {
        let refused = || self.0.refusals.of(&self.0.names.whole(queue));
        self.reachable().err().or_else(refused)
    }

    async fn publish(&self, queue: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        self.0.publish(queue, &batch).await
    }

    async fn consume(&self, queue: &Name, credit: u32) -> Result<Box<dyn Consumer>, BrokerError> {
        if credit == 0 {
            return Err(refused(queue, "a consumer without credit would never get anything"));
        }
        let credit = credit.try_into().unwrap_or(u16::MAX);
        Ok(Box::new(RabbitConsumer::open(self.0.clone(), self.0.names.work(queue)?, credit).await?))
    }

    async fn counts(&self, queue: &Name) -> Result<Counts, BrokerError> {
        self.0.counts(queue).await
    }

    async fn delete(&self, queue: &Name) -> Result<Deletion, BrokerError> {
        self.0.delete(queue).await
    }

    async fn dead_letters(&self, queue: &Name, limit: u32) -> Result<Vec<DeadLetter>, BrokerError> {
        self.0.dead_letters(queue, limit).await
    }

    async fn count_dead_letters(&self, queue: &Name) -> Result<u64, BrokerError> {
        self.0.count_dead_letters(queue).await
    }

    async fn remove_dead_letters(&self, queue: &Name, which: &Letters) -> Result<u64, BrokerError> {
        self.0.remove_dead_letters(queue, which).await
    }

    async fn announce(&self, topic: &Name, body: Bytes) -> Result<(), BrokerError> {
        self.0.announce(topic, body).await
    }

    async fn subscribe(&self, topic: &Name) -> Result<Box<dyn Subscription>, BrokerError> {
        Ok(Box::new(RabbitSubscription::open(self.0.clone(), topic).await?))
    }

    async fn append(&self, log: &Name, batch: Vec<Bytes>) -> Result<u64, BrokerError> {
        self.0.logs.append(&self.log(log)?, &batch).await
    }

    async fn add(&self, log: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        self.0.logs.add(&self.log(log)?, &batch).await
    }

    async fn read(&self, log: &Name, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        self.0.logs.read(&self.log(log)?, offset, limit).await
    }

    async fn extent(&self, log: &Name) -> Result<(u64, u64), BrokerError> {
        self.0.logs.extent(&self.log(log)?).await
    }

    async fn trim(&self, log: &Name, _before: u64) -> Result<(), BrokerError> {
        // Streams are bounded by their bytes and in no other way.
        self.log(log).map(drop)
    }

    async fn forget(&self, log: &Name) -> Result<(), BrokerError> {
        self.0.logs.forget(&self.log(log)?).await
    }
}
