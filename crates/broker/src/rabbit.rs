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
//! # Permissions
//! A manager needs everything under its prefix: `^mutirao\..*` to configure, write and read, and `amq\.default` to
//! write. A worker of queue `a` that may make nothing but its own ear needs: configure `^mutirao\.ear\..*`, write
//! `^(amq\.default|mutirao\.ear\..*|mutirao\.fanout)$`, read `^mutirao\.(tasks\.a|ear\..*|fanout)$`.

mod consumer;
mod fanout;
mod greeting;
mod line;
mod logs;
mod names;
mod post;
mod topology;
mod trouble;
mod work;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use lapin::tcp::OwnedTLSConfig;
use lapin::uri::AMQPUri;
use mutirao_core::{Clock, Dice};

use crate::memory::refused;
use crate::{Broker, BrokerError, Consumer, Counts, DeadLetter, Limits, Name, Record, Subscription};
use consumer::{Holders, RabbitConsumer};
use fanout::RabbitSubscription;
use line::{Dial, Line};
use logs::{LogName, Logs};
use names::Names;
use post::Post;
use trouble::Place;

pub use names::PREFIX_DEFAULT;

/// How to reach RabbitMQ, and how much may be put there.
pub struct Config {
    /// `amqp://user:password@host:5672/vhost`, or `amqps://…` for TLS.
    pub url: String,
    /// What the names of all our queues and exchanges begin with; ends with a dot.
    pub prefix: String,
    /// Become arguments of the queues, which RabbitMQ does not let change: other limits need another prefix, or the
    /// queues deleted.
    pub limits: Limits,
    /// Certificates, in PEM, of authorities to trust beside those that the system trusts.
    pub authorities_pem: Option<String>,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
}

impl Config {
    pub fn new(url: impl Into<String>, clock: Arc<dyn Clock>, dice: Arc<Dice>) -> Self {
        let (prefix, limits) = (PREFIX_DEFAULT.into(), Limits::default());
        Self { url: url.into(), prefix, limits, authorities_pem: None, clock, dice }
    }
}

/// A broker on RabbitMQ.
pub struct Rabbit(Arc<Inner>);

/// What the broker and everything opened on it hold together: when the last of them goes, so do the connections.
struct Inner {
    names: Names,
    limits: Limits,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
    giving: Line,
    taking: Line,
    post: Post,
    holders: Holders,
    logs: Logs,
}

impl Rabbit {
    /// Connects, and says in one line what is wrong and what to do about it. From then on it stays connected by itself.
    /// Must be called within a tokio runtime.
    pub async fn connect(config: Config) -> Result<Arc<Self>, BrokerError> {
        let Config { url, prefix, limits, authorities_pem, clock, dice } = config;
        let names = Names::new(&prefix)?;
        // The message of the parser can contain the URL, and so the password.
        let uri: AMQPUri = url
            .parse()
            .map_err(|_| refused("the broker's URL", "it is not of the form amqp://user:password@host:5672/vhost"))?;
        let place = Place {
            address: format!("{}:{}", uri.authority.host, uri.authority.port),
            vhost: uri.vhost.clone(),
            user: uri.authority.userinfo.username.clone(),
        };
        let tls = OwnedTLSConfig { identity: None, cert_chain: authorities_pem };
        let dial = Arc::new(Dial { uri, tls, place, clock: clock.clone(), dice: dice.clone() });
        let inner = Inner {
            names,
            limits,
            clock,
            dice,
            giving: Line::new("sending", dial.clone()),
            taking: Line::new("receiving", dial.clone()),
            post: Post::new(),
            holders: Holders::default(),
            logs: Logs::new(dial, limits),
        };
        inner.giving.connect().await?;
        Ok(Arc::new(Self(Arc::new(inner))))
    }

    /// Whether the server can be reached at this moment; if not, why not.
    pub fn reachable(&self) -> Result<(), BrokerError> {
        self.0.giving.now().map(|_| ())
    }

    /// Ends the connections. Everything that waits on this broker, and everything asked later, gets
    /// [`BrokerError::Closed`].
    pub fn close(&self) {
        self.0.giving.shut();
        self.0.taking.shut();
        self.0.logs.shut();
    }

    fn log<'a>(&self, log: &'a Name) -> Result<LogName<'a>, BrokerError> {
        Ok(LogName { ours: log, queue: self.0.names.log(log)? })
    }
}

#[async_trait]
impl Broker for Rabbit {
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

    async fn dead_letters(&self, queue: &Name, limit: u32) -> Result<Vec<DeadLetter>, BrokerError> {
        self.0.dead_letters(queue, limit).await
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

    async fn read(&self, log: &Name, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        self.0.logs.read(&self.log(log)?, offset, limit).await
    }

    async fn extent(&self, log: &Name) -> Result<(u64, u64), BrokerError> {
        self.0.logs.extent(&self.log(log)?).await
    }
}
