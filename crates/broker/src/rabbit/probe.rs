//! Whether everything that we need can be done: a private queue of each kind and a private exchange are made, used as ours
//! are, and taken away again. Plugins, feature flags, policies and permissions all have a say in that, and asking is simpler
//! than knowing them all.
//!
//! Everything is asked, also after a refusal, so that whoever grants permissions hears of all that are lacking at once.

use std::collections::BTreeSet;

use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, ExchangeDeleteOptions,
    QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ExchangeKind};
use mutirao_core::clock::ClockExt;

use super::denied::{Access, Asked, Denied};
use super::dial::{DIAL_MAX, Dial};
use super::trouble::{ACCESS_REFUSED, NOT_FOUND, code, text};
use crate::BrokerError;

/// A server that takes nothing more in the middle of it cannot be asked to clear away either: the queue goes by itself, and
/// the exchange with it.
const GONE_AFTER_MS: i64 = 60_000;

/// The exchange that RabbitMQ brings, on which nodes meet.
const TOPIC: &str = "amq.topic";

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What jobs need: for a manager that starts.
    Work,
    /// Logs as well.
    Everything,
    /// What nodes need beside it: names of their namespace, and `amq.topic`.
    Nodes,
}

impl Extent {
    fn deeds(self) -> &'static [Deed] {
        match self {
            Self::Work => &Deed::ALL[..Deed::WORK],
            Self::Everything => &Deed::ALL,
            Self::Nodes => &[Deed::MakeQueue, Deed::BindTopic, Deed::SendByTopic],
        }
    }
}

/// One thing that is done with the queue or the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    MakeQueue,
    SendByDefault,
    Take,
    MakeExchange,
    Bind,
    SendByExchange,
    MakeLog,
    BindTopic,
    SendByTopic,
}

impl Deed {
    /// In this order: what is made first is used by the others.
    const ALL: [Self; 7] = [
        Self::MakeQueue,
        Self::SendByDefault,
        Self::Take,
        Self::MakeExchange,
        Self::Bind,
        Self::SendByExchange,
        Self::MakeLog,
    ];
    /// Those of them that are work.
    const WORK: usize = 6;

    fn asked(self) -> Asked {
        match self {
            Self::MakeQueue | Self::MakeExchange | Self::MakeLog => Asked::For(Access::Configure),
            Self::SendByDefault | Self::SendByExchange | Self::SendByTopic => Asked::For(Access::Write),
            Self::Take => Asked::For(Access::Read),
            Self::Bind | Self::BindTopic => Asked::Bind,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::MakeQueue => "a quorum queue",
            Self::MakeLog => "a stream queue",
            Self::MakeExchange => "an exchange",
            Self::SendByDefault => "a message to a queue",
            Self::SendByExchange => "a message to an exchange",
            Self::Take => "a look into a queue",
            Self::Bind => "a queue bound to an exchange",
            Self::BindTopic => "a queue bound to amq.topic",
            Self::SendByTopic => "a message to amq.topic",
        }
    }
}

/// What was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    Denied(Denied),
    Other { what: &'static str, why: String },
}

/// Names begin with the prefix, as those do that our user may make.
pub(super) async fn probe(dial: &Dial, prefix: &str, extent: Extent) -> Result<(), BrokerError> {
    let connection = dial.dial("doctor").await?;
    let bench = Bench { connection: &connection, name: format!("{prefix}doctor.{:016x}", dial.dice.u64()) };
    let mut refusals = BTreeSet::new();
    for &deed in extent.deeds() {
        match dial.clock.timeout(DIAL_MAX, bench.does(deed)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => refusals.extend(refusal(deed, &error)),
            // One that is short of memory or disk takes nothing for now, and that is no reason not to start.
            Err(_) if extent == Extent::Work => break,
            Err(_) => {
                let why =
                    "the server does not answer; rabbitmqctl status says whether it is short of memory or disk".into();
                refusals.insert(Refusal::Other { what: deed.what(), why });
                break;
            }
        }
    }
    // What could not be made is not there, and it has told what it can.
    let _ = dial.clock.timeout(DIAL_MAX, bench.clear()).await;
    let _ = connection.close(200, "goodbye".into()).await;
    summary(&refusals, &bench.name, extent)
}

/// None where nothing was refused: what is not there because it could not be made has been told.
fn refusal(deed: Deed, error: &lapin::Error) -> Option<Refusal> {
    let words = text(error);
    let denied = || Denied::read(&words, deed.asked()).map(Refusal::Denied);
    let other = |why: String| Refusal::Other { what: deed.what(), why };
    match code(error) {
        Some(NOT_FOUND) => None,
        Some(ACCESS_REFUSED) => {
            denied().or_else(|| Some(other(format!("{words}; grant it with rabbitmqctl set_permissions"))))
        }
        _ => Some(other(format!(
            "{words}; allow it with rabbitmqctl enable_feature_flag all, and look at the policies of the vhost"
        ))),
    }
}

/// One line: what is lacking, and the remedy once.
fn summary(refusals: &BTreeSet<Refusal>, name: &str, extent: Extent) -> Result<(), BrokerError> {
    // The random end of the private names says nothing to anybody; the pattern that ours have does.
    let ours = name.split_once("doctor.").map_or(name, |(prefix, _)| prefix);
    let told = |denied: &Denied| denied.lack().replace(name, &format!("{ours}…"));
    let denied: Vec<&Denied> = refusals.iter().filter_map(Refusal::denied).collect();
    if let Some(first) = denied.first() {
        let lacks: BTreeSet<String> = denied.iter().map(|denied| told(denied)).collect();
        let lacks: Vec<String> = lacks.into_iter().collect();
        let (what, remedy) = match extent {
            Extent::Nodes => ("what a manager does for nodes", first.remedy_for_nodes(name)),
            Extent::Work | Extent::Everything => ("what a manager does", first.remedy(name)),
        };
        let why = format!("{}; {remedy}", lacks.join(", "));
        return Err(BrokerError::Refused { what: what.into(), why });
    }
    match refusals.first() {
        Some(Refusal::Other { what, why }) => {
            Err(BrokerError::Refused { what: (*what).into(), why: why.replace(name, &format!("{ours}…")) })
        }
        _ => Ok(()),
    }
}

impl Refusal {
    fn denied(&self) -> Option<&Denied> {
        match self {
            Self::Denied(denied) => Some(denied),
            Self::Other { .. } => None,
        }
    }
}

struct Bench<'a> {
    connection: &'a Connection,
    /// Of the queue and of the exchange.
    name: String,
}

impl Bench<'_> {
    /// On a channel of its own: a refusal takes its channel along.
    async fn does(&self, deed: Deed) -> lapin::Result<()> {
        let channel = self.connection.create_channel().await?;
        let name = || self.name.as_str().into();
        let nothing = FieldTable::default;
        match deed {
            Deed::MakeQueue => {
                let mut arguments = nothing();
                arguments.insert("x-expires".into(), AMQPValue::LongLongInt(GONE_AFTER_MS));
                self.make(&channel, "quorum", &self.name, arguments).await
            }
            Deed::MakeLog => self.make(&channel, "stream", &self.log(), nothing()).await,
            Deed::SendByDefault => self.send(&channel, "").await,
            Deed::SendByExchange => self.send(&channel, &self.name).await,
            Deed::Take => channel.basic_get(name(), BasicGetOptions { no_ack: false }).await.map(drop),
            Deed::MakeExchange => {
                let options = ExchangeDeclareOptions { auto_delete: true, ..Default::default() };
                channel.exchange_declare(name(), ExchangeKind::Topic, options, nothing()).await
            }
            Deed::Bind => channel.queue_bind(name(), name(), name(), QueueBindOptions::default(), nothing()).await,
            Deed::BindTopic => {
                channel.queue_bind(name(), TOPIC.into(), name(), QueueBindOptions::default(), nothing()).await
            }
            Deed::SendByTopic => self.send(&channel, TOPIC).await,
        }
    }

    async fn make(&self, channel: &Channel, kind: &str, name: &str, mut arguments: FieldTable) -> lapin::Result<()> {
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        channel.queue_declare(name.into(), QueueDeclareOptions::durable(), arguments).await.map(drop)
    }

    /// Waits for the confirm: a refusal comes later than what it refuses.
    async fn send(&self, channel: &Channel, exchange: &str) -> lapin::Result<()> {
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        let sent = channel.basic_publish(exchange.into(), self.name.as_str().into(), options, b"doctor", properties);
        sent.await?.await.map(drop)
    }

    fn log(&self) -> String {
        format!("{}.log", self.name)
    }

    async fn clear(&self) {
        for name in [&self.name, &self.log()] {
            if let Ok(channel) = self.connection.create_channel().await {
                let _ = channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await;
            }
        }
        if let Ok(channel) = self.connection.create_channel().await {
            let _ = channel.exchange_delete(self.name.as_str().into(), ExchangeDeleteOptions::default()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use lapin::ErrorKind;
    use lapin::protocol::AMQPError;

    use super::*;

    const NAME: &str = "mutirao.doctor.00000000000000aa";

    fn said(id: u16, words: &str) -> lapin::Error {
        ErrorKind::ProtocolError(AMQPError::from_id(id, words.into()).unwrap()).into()
    }

    fn line(refusals: impl IntoIterator<Item = (Deed, u16, &'static str)>) -> String {
        let refusals = refusals.into_iter().filter_map(|(deed, id, words)| refusal(deed, &said(id, words))).collect();
        summary(&refusals, NAME, Extent::Everything).map_or_else(|error| error.to_string(), |()| "well".into())
    }

    #[test]
    fn every_lacking_permission_is_named_with_one_command_for_all() {
        let queue =
            "ACCESS_REFUSED - access to queue 'mutirao.doctor.00000000000000aa' in vhost 'lab' refused for user 'ana'";
        let default = "ACCESS_REFUSED - access to exchange 'amq.default' in vhost 'lab' refused for user 'ana'";
        let said = line([(Deed::SendByDefault, 403, default), (Deed::Take, 403, queue)]);
        assert!(said.contains("no write permission on exchange 'amq.default'"), "{said}");
        assert!(said.contains("no read permission on queue 'mutirao.…'"), "{said}");
        assert_eq!(said.matches("rabbitmqctl set_permissions -p lab ana").count(), 1, "{said}");
        let said = line([(Deed::MakeQueue, 403, queue), (Deed::Take, 404, "NOT_FOUND - no queue")]);
        assert!(said.contains("no configure permission on queue") && !said.contains("NOT_FOUND"), "{said}");
    }

    #[test]
    fn a_server_without_the_kind_of_queue_says_how_to_get_it() {
        let said = line([(Deed::MakeLog, 540, "NOT_IMPLEMENTED - feature flag stream_queue is disabled")]);
        assert!(said.contains("a stream queue") && said.contains("enable_feature_flag all"), "{said}");
        assert_eq!(line([]), "well");
    }
}
