//! Whether the kinds of queues that are needed can be had: one of each is made, and taken away again. Plugins, feature
//! flags, policies and permissions all have a say in that, and asking is simpler than knowing them all.

use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use mutirao_core::clock::ClockExt;

use super::dial::{DIAL_MAX, Dial};
use super::trouble::{ACCESS_REFUSED, code, text};
use crate::BrokerError;

/// Work needs the first, logs the second.
const KINDS: [&str; 2] = ["quorum", "stream"];

/// Names begin with the prefix, as those do that our user may make.
pub(super) async fn probe(dial: &Dial, prefix: &str) -> Result<(), BrokerError> {
    let connection = dial.dial("doctor").await?;
    let mut asked = Ok(());
    for kind in KINDS {
        let name = format!("{prefix}.doctor.{kind}.{:016x}", dial.dice.u64());
        let within = dial.clock.timeout(DIAL_MAX, make_and_take_away(&connection, kind, &name)).await;
        let made = within.unwrap_or_else(|_| Err(refused(kind, "the server does not answer; look at its log".into())));
        asked = asked.and(made);
    }
    // It has told what it can.
    let _ = connection.close(200, "goodbye".into()).await;
    asked
}

async fn make_and_take_away(connection: &lapin::Connection, kind: &str, name: &str) -> Result<(), BrokerError> {
    let said = |error: lapin::Error| {
        let remedy = match code(&error) {
            Some(ACCESS_REFUSED) => "grant it with rabbitmqctl set_permissions",
            _ => "allow them with rabbitmqctl enable_feature_flag all, and look at the policies of the vhost",
        };
        refused(kind, format!("{}; {remedy}", text(&error)))
    };
    let channel = connection.create_channel().await.map_err(said)?;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
    channel.queue_declare(name.into(), QueueDeclareOptions::durable(), arguments).await.map_err(said)?;
    channel.queue_delete(name.into(), QueueDeleteOptions::default()).await.map_err(said)?;
    Ok(())
}

fn refused(kind: &str, why: String) -> BrokerError {
    BrokerError::Refused { what: format!("a {kind} queue"), why }
}
