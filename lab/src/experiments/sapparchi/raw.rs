//! There and back with nothing between: what each protocol costs by itself, one at a time, as a bar for what the product
//! makes of it. Milliseconds, sorted.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer};
use mutirao_core::{Clock, SystemClock};
use mutirao_mqtt::client::{Client, Options as MqttOptions, State};
use mutirao_mqtt::{
    Config, Gate, Guest, Knock, Limits, Listener, Qos, Refusal, Rights, Standing, TopicFilter, TopicName,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{now, shared_dice};

/// Not counted: connections and caches get warm.
pub const WARM: usize = 20;
const PATIENCE: Duration = Duration::from_secs(10);
const PERSISTENT: u8 = 2;

/// Times a round trip, again and again.
pub async fn timed(times: usize, mut once: impl AsyncFnMut(usize) -> anyhow::Result<()>) -> anyhow::Result<Vec<f64>> {
    let mut took = Vec::with_capacity(times);
    for n in 0..times + WARM {
        let begun = now();
        tokio::select! {
            answered = once(n) => answered?,
            () = SystemClock.sleep(PATIENCE) => anyhow::bail!("the raw round trip was not answered"),
        }
        if n >= WARM {
            took.push(now().since(begun).as_secs_f64() * 1_000.0);
        }
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

/// Lets everybody everywhere: an installation's own listener lets no device speak to another.
struct Open;

#[async_trait]
impl Gate for Open {
    async fn admit(&self, _: &Knock) -> Result<Guest, Refusal> {
        let all = TopicFilter::new("#").map_err(|_| Refusal::NotAuthorized)?;
        let rights = Rights { publish: vec![all.clone()], subscribe: vec![all] };
        Ok(Guest { who: "raw".into(), standing: Standing::Known, rights, sessions_max: 10 })
    }
}

/// Two clients that only speak to each other, with quality 1, through a listener like an installation's.
pub async fn mqtt(times: usize) -> anyhow::Result<Vec<f64>> {
    let dice = shared_dice();
    let listener = Listener::start(Config {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        tls: None,
        limits: Limits::default(),
        gate: Arc::new(Open),
        clock: SystemClock::shared(),
        dice: dice.clone(),
    })
    .await?;
    let server = listener.address().to_string();
    let client = |id: &str, hears: &str| -> anyhow::Result<_> {
        let mut options = MqttOptions::new(server.clone(), id, SystemClock::shared(), dice.clone());
        options.clean = true;
        options.subscriptions = vec![(TopicFilter::new(hears)?, Qos::AtLeastOnce)];
        Ok(Client::start(options))
    };
    let (asks, mut answers) = client("raw-1", "raw/1")?;
    let (echo, mut asked) = client("raw-2", "raw/2")?;
    for one in [&asks, &echo] {
        one.state().wait_for(|state| *state == State::Connected).await?;
    }
    let (to, back) = (TopicName::new("raw/2")?, TopicName::new("raw/1")?);
    let echoing = tokio::spawn(async move {
        while let Some(message) = asked.recv().await {
            let body = message.payload.clone();
            message.accept();
            let (echo, back) = (echo.clone(), back.clone());
            tokio::spawn(async move { echo.publish(back, body, Qos::AtLeastOnce).await });
        }
    });
    let took = timed(times, async |n| {
        let (asks, to) = (asks.clone(), to.clone());
        tokio::spawn(async move { asks.publish(to, format!("{n}").into(), Qos::AtLeastOnce).await });
        answers.recv().await.context("the answer did not come")?.accept();
        Ok(())
    });
    let took = took.await;
    echoing.abort();
    listener.stop().await;
    took
}

/// Two clients and two durable queues; messages persistent and confirmed, as the product's are.
pub async fn amqp(url: &str, times: usize) -> anyhow::Result<Vec<f64>> {
    let (asks, mut answers) = end(url, "raw-1").await?;
    let (echo, mut asked) = end(url, "raw-2").await?;
    let echoing = tokio::spawn(async move {
        while let Some(Ok(delivery)) = asked.next().await {
            // The answer first: it is what is waited for.
            let said = say(&echo, "raw-1", &delivery.data).await;
            if said.is_err() || delivery.acker.ack(BasicAckOptions::default()).await.is_err() {
                return;
            }
        }
    });
    let took = timed(times, async |n| {
        say(&asks, "raw-2", n.to_string().as_bytes()).await?;
        let delivery = answers.next().await.context("the answer did not come")??;
        delivery.acker.ack(BasicAckOptions::default()).await?;
        Ok(())
    });
    let took = took.await;
    echoing.abort();
    took
}

/// On a connection of its own, whose messages are confirmed.
pub async fn channel(url: &str) -> anyhow::Result<Channel> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

async fn end(url: &str, queue: &str) -> anyhow::Result<(Channel, Consumer)> {
    let channel = channel(url).await?;
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(queue.into(), durable, FieldTable::default()).await?;
    let consume = BasicConsumeOptions::default();
    let consumer = channel.basic_consume(queue.into(), "".into(), consume, FieldTable::default()).await?;
    Ok((channel, consumer))
}

pub async fn say(channel: &Channel, queue: &str, body: &[u8]) -> anyhow::Result<()> {
    let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
    channel.basic_publish("".into(), queue.into(), BasicPublishOptions::default(), body, properties).await?.await?;
    Ok(())
}

const REQUEST: &[u8] = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// A request there and one back, each answered, on connections that stay open: as a task goes to a node and its result to
/// the manager.
pub async fn http(times: usize) -> anyhow::Result<Vec<f64>> {
    let (mut there, mut back) = (server().await?, server().await?);
    timed(times, async |_| {
        for stream in [&mut there, &mut back] {
            stream.write_all(REQUEST).await?;
            let mut answer = [0; RESPONSE.len()];
            stream.read_exact(&mut answer).await?;
        }
        Ok(())
    })
    .await
}

/// A connection to somebody who answers every request.
async fn server() -> anyhow::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let Ok((mut stream, _)) = listener.accept().await else { return };
        let _ = stream.set_nodelay(true);
        let mut request = [0; REQUEST.len()];
        while stream.read_exact(&mut request).await.is_ok() && stream.write_all(RESPONSE).await.is_ok() {}
    });
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
