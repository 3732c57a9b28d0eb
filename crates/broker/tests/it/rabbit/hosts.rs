//! Hosts of streams as users of RabbitMQ: their logs and topics are open to them, and nothing else is.

use std::sync::Arc;

use lapin::options::{
    BasicConsumeOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, ExchangeKind};
use mutirao_broker::suite::{bodies, soon};
use mutirao_broker::{Broker, Heard, Rabbit};
use mutirao_core::WorkerId;
use mutirao_core::auth::Duty;

use super::workers::{House, forbidden, publish, raw};

const LOG: &str = "streams.s1.stage.0";

async fn admit(house: &House, host: &str) -> String {
    house.management.admit(&WorkerId(host.into()), &Duty::Streams).await.expect("a user")
}

async fn host(house: &House, name: &str) -> Arc<Rabbit> {
    house.worker(&admit(house, name).await).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_share_logs_and_announcements_of_streams_among_them_and_with_managers() {
    let Some(house) = House::new().await else { return };
    let (one, other) = (host(&house, "h1").await, host(&house, "h2").await);
    // Whoever comes first makes it.
    assert_eq!(soon("extent", one.extent(LOG)).await, Ok((0, 0)));
    assert_eq!(soon("append", one.append(LOG, bodies(0..2))).await, Ok(0));
    soon("add", other.add(LOG, bodies(2..3))).await.expect("add");
    soon("add", house.manager.add(LOG, bodies(3..4))).await.expect("a manager, by the same way");
    for reader in [&one, &other, &house.manager] {
        let mut read = Vec::new();
        while read.len() < 4 {
            read.extend(soon("read", reader.read(LOG, read.len() as u64, 9)).await.expect("read"));
        }
        assert_eq!(read.iter().map(|record| record.body.clone()).collect::<Vec<_>>(), bodies(0..4));
    }
    let mut ear = other.subscribe("streams.s1.progress").await.expect("subscribe");
    one.announce("streams.s1.progress", "far".into()).await.expect("announce");
    assert_eq!(soon("the announcement", ear.next()).await, Ok(Heard::Message("far".into())));
    // Gone and made anew by whoever comes next, without a manager.
    soon("forget", house.manager.forget(LOG)).await.expect("forget");
    let add = async { while one.add(LOG, bodies(7..8)).await.is_err() {} };
    soon("adding to it again", add).await;
    assert_eq!(soon("read", other.read(LOG, 0, 9)).await.expect("read")[0].body, bodies(7..8)[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_s_credentials_open_nothing_else() {
    let Some(house) = House::new().await else { return };
    let honest = host(&house, "h1").await;
    for name in ["readings.0", "streamsx.0", "streams"] {
        assert!(honest.append(name, bodies(0..1)).await.is_err(), "appended to {name}");
    }
    assert!(honest.announce("control.a", "stop".into()).await.is_err());
    assert!(honest.subscribe("control.a").await.is_err());
    let thief = raw(&admit(&house, "h2").await).await;
    let name = |name: &str| house.name(name);

    for queue in ["tasks.a", "tasks.a.dead", "results.jobs.0"].map(name) {
        forbidden(&thief, &format!("consuming {queue}"), |channel| async move {
            let options = BasicConsumeOptions::default();
            channel.basic_consume(queue.as_str().into(), "".into(), options, FieldTable::default()).await
        })
        .await;
    }
    let (log, fanout) = (name(&format!("{LOG}.log")), name("fanout"));
    let keys = [
        ("", log),
        ("", name("tasks.a")),
        ("amq.topic", "x".into()),
        (&*name("results"), name("results.jobs.0")),
        (&*fanout, "control.a".into()),
        (&*fanout, "streamsx".into()),
    ];
    for (exchange, key) in keys {
        let what = format!("publishing to {exchange}/{key}");
        forbidden(&thief, &what, |channel| async move {
            publish(&channel, exchange, &key, BasicProperties::default()).await
        })
        .await;
    }
    for queue in [name("tasks.a"), name("tasks.new"), name("streams.x"), name("readings.0.log"), "mine".into()] {
        forbidden(&thief, &format!("making or removing {queue}"), |channel| async move {
            channel.queue_declare(queue.as_str().into(), QueueDeclareOptions::default(), FieldTable::default()).await?;
            channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await
        })
        .await;
    }
    let entrance = name("streams");
    forbidden(&thief, "making the way to the logs anew", |channel| async move {
        let options = ExchangeDeclareOptions::default();
        channel.exchange_declare(entrance.into(), ExchangeKind::Topic, options, FieldTable::default()).await
    })
    .await;
    let ear = name("ear.0123456789abcdef");
    let channel = thief.create_channel().await.unwrap();
    let made = channel.queue_declare(ear.as_str().into(), QueueDeclareOptions::exclusive(), FieldTable::default());
    made.await.expect("an ear of its own");
    for key in ["control.a", "#", "streams.#", "streams.*", "answers.m1"] {
        let (fanout, ear) = (fanout.clone(), ear.clone());
        forbidden(&thief, &format!("hearing {key}"), |channel| async move {
            let (queue, from) = (ear.as_str().into(), fanout.as_str().into());
            channel.queue_bind(queue, from, key.into(), QueueBindOptions::default(), FieldTable::default()).await
        })
        .await;
    }
}
