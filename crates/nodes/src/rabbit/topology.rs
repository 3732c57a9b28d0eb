//! What must exist at RabbitMQ, as workers and clients out there expect it.
//!
//! | name | what | who reads |
//! |---|---|---|
//! | `<ns>.manager.available` | fanout exchange of beats; the same on `amq.topic` | nodes |
//! | `<ns>.node.unicast` | headers exchange, a queue for each node, which the node declares | nodes |
//! | `<ns>.nodes.register` | key on `amq.topic`; a queue of each manager | every manager |
//! | `<ns>.task.handler.saida` | queue, exchange and key of results | one of the managers |
//! | `<ns>.process.request.entrada` | queue, exchange and key of requests | one of the managers |
//! | `<ns>.nodes.vouched` | exchange of registrations and results of nodes that have a user of their own | as the two above |
//! | `<ns>.task.final.saida` | queue and exchange of answers | clients |

use lapin::options::{
    BasicConsumeOptions, BasicQosOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, Consumer, ExchangeKind, Result};
use mutirao_core::dice::os_random;

use crate::names::NodeId;
use crate::wire::places::{MATCH_ALL, Places, TOPIC_EXCHANGE};

/// Registrations, results and requests that are under way at once, of each.
const CREDIT: u16 = 64;

pub async fn declare(channel: &Channel, places: &Places) -> Result<()> {
    exchange(channel, &places.beats(), ExchangeKind::Fanout).await?;
    exchange(channel, &places.unicast(), ExchangeKind::Headers).await?;
    exchange(channel, &places.vouched(), ExchangeKind::Topic).await?;
    for place in [places.results(), places.requests(), places.finals()] {
        exchange(channel, &place, ExchangeKind::Topic).await?;
        queue(channel, &place, QueueDeclareOptions { durable: true, ..Default::default() }).await?;
        bind(channel, &place, &place, "#").await?;
    }
    for (place, key) in [
        (places.results(), places.results()),
        (places.results(), places.results_misprinted()),
        (places.requests(), places.requests()),
    ] {
        bind(channel, &place, TOPIC_EXCHANGE, &key).await?;
    }
    bind(channel, &places.results(), &places.vouched(), &places.results()).await
}

/// What is heard: registrations by each manager, results and requests by one of them.
pub async fn listen(connection: &Connection, places: &Places) -> Result<Vec<Consumer>> {
    let channel = connection.create_channel().await?;
    channel.basic_qos(CREDIT, BasicQosOptions { global: false }).await?;
    let mut own = [0; 8];
    os_random(&mut own);
    let own = format!("{}.{:016x}", places.register(), u64::from_be_bytes(own));
    let options = QueueDeclareOptions { exclusive: true, auto_delete: true, ..Default::default() };
    queue(&channel, &own, options).await?;
    for exchange in [TOPIC_EXCHANGE, &places.vouched()] {
        bind(&channel, &own, exchange, &places.register()).await?;
    }
    let mut ears = Vec::new();
    for name in [own, places.results(), places.requests()] {
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        ears.push(channel.basic_consume(name.as_str().into(), "".into(), options, arguments).await?);
    }
    Ok(ears)
}

/// A node's own queue, as it would declare and bind it itself.
pub async fn node_queue(channel: &Channel, places: &Places, node: &NodeId, mut headers: FieldTable) -> Result<()> {
    let own = places.unicast_queue(node);
    queue(channel, &own, QueueDeclareOptions { durable: true, ..Default::default() }).await?;
    headers.insert(MATCH_ALL.0.into(), AMQPValue::LongString(MATCH_ALL.1.into()));
    let exchange = places.unicast();
    channel.queue_bind(own.into(), exchange.into(), "".into(), QueueBindOptions::default(), headers).await
}

async fn exchange(channel: &Channel, name: &str, kind: ExchangeKind) -> Result<()> {
    let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
    channel.exchange_declare(name.into(), kind, options, FieldTable::default()).await
}

async fn queue(channel: &Channel, name: &str, options: QueueDeclareOptions) -> Result<()> {
    channel.queue_declare(name.into(), options, FieldTable::default()).await.map(drop)
}

async fn bind(channel: &Channel, queue: &str, exchange: &str, key: &str) -> Result<()> {
    let (options, arguments) = (QueueBindOptions::default(), FieldTable::default());
    channel.queue_bind(queue.into(), exchange.into(), key.into(), options, arguments).await
}
