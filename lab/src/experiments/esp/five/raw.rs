//! The way there with nothing of ours on it.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_tungstenite::tungstenite::Message;

use super::{Options, Took, now, one_by_one};

/// A file that is written to and synced, off the threads that others run on.
pub struct Synced(Arc<Mutex<File>>);

impl Synced {
    pub fn make(path: &Path) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(File::create(path)?))))
    }

    pub async fn append(&self, body: Bytes) -> anyhow::Result<()> {
        let file = self.0.clone();
        tokio::task::spawn_blocking(move || {
            let mut file = file.lock();
            file.write_all(&body)?;
            Ok(file.sync_data()?)
        })
        .await?
    }
}

pub async fn file(options: &Options, path: &Path) -> anyhow::Result<Took> {
    let (synced, bell) = (Synced::make(path)?, Arc::new(Notify::new()));
    let (arrived, mut arrivals) = mpsc::channel(16);
    let woken = bell.clone();
    let waiting = tokio::spawn(async move {
        loop {
            woken.notified().await;
            if arrived.send(now()).await.is_err() {
                return;
            }
        }
    });
    let took = one_by_one(options, &mut arrivals, async |body| {
        synced.append(body).await?;
        bell.notify_one();
        Ok(())
    });
    let took = took.await;
    waiting.abort();
    took
}

/// There, written and synced, and back.
pub async fn echo(options: &Options, url: &str) -> anyhow::Result<Took> {
    let (socket, _) = tokio_tungstenite::connect_async_with_config(url, None, true).await?;
    let (mut there, mut back) = socket.split();
    let (arrived, mut arrivals) = mpsc::channel(16);
    let hearing = tokio::spawn(async move {
        while let Some(Ok(Message::Binary(_))) = back.next().await {
            if arrived.send(now()).await.is_err() {
                return;
            }
        }
    });
    let took = one_by_one(options, &mut arrivals, async |body| Ok(there.send(Message::Binary(body)).await?));
    let took = took.await;
    hearing.abort();
    took
}

async fn channel(url: &str) -> anyhow::Result<Channel> {
    Ok(Connection::connect(url, ConnectionProperties::default()).await?.create_channel().await?)
}

/// Confirmed, and consumed from the end.
pub async fn stream(options: &Options, url: &str, queue: &str) -> anyhow::Result<Took> {
    let (writer, reader) = (channel(url).await?, channel(url).await?);
    writer.confirm_select(ConfirmSelectOptions::default()).await?;
    let mut kind = FieldTable::default();
    kind.insert("x-queue-type".into(), AMQPValue::LongString("stream".into()));
    writer.queue_declare(queue.into(), QueueDeclareOptions::durable(), kind).await?;
    reader.basic_qos(128, BasicQosOptions::default()).await?;
    let mut from = FieldTable::default();
    from.insert("x-stream-offset".into(), AMQPValue::LongString("next".into()));
    let mut deliveries = reader.basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), from).await?;
    let (arrived, mut arrivals) = mpsc::channel(16);
    let consuming = tokio::spawn(async move {
        while let Some(delivery) = deliveries.next().await {
            let (received, delivery) = (now(), delivery?);
            arrived.send(received).await.context("nobody counts")?;
            delivery.acker.ack(BasicAckOptions::default()).await?;
        }
        anyhow::Ok(())
    });
    let persistent = BasicProperties::default().with_delivery_mode(2);
    let took = one_by_one(options, &mut arrivals, async |body| {
        let options = BasicPublishOptions::default();
        writer.basic_publish("".into(), queue.into(), options, &body, persistent.clone()).await?.await?;
        Ok(())
    });
    let took = took.await;
    consuming.abort();
    took
}
