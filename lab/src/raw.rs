//! The raw limits of the services: what they can do when nobody asks for more than the bare thing.

use mutirao_broker::Broker;
use mutirao_broker::rabbit::{Config, Rabbit};
use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_store::Postgres;
use mutirao_store::postgres::Ask;

const BODY_BYTES: usize = 200;
const BATCH: usize = 500;
const ROWS_AT_ONCE: i64 = 1_000;

/// Messages of 200 bytes per second, each published with confirmation to a quorum queue, delivered and acknowledged.
pub async fn messages_per_s(amqp: &str, messages: usize) -> anyhow::Result<f64> {
    let rabbit = Rabbit::connect(Config::new(amqp, SystemClock::shared(), Dice::from_os().into())).await?;
    let mut consumer = rabbit.consume("raw", 4 * BATCH as u32).await?;
    let begin = SystemClock.monotonic();
    let publisher = {
        let rabbit = rabbit.clone();
        tokio::spawn(async move {
            for _ in 0..messages.div_ceil(BATCH) {
                rabbit.publish("raw", vec![vec![b'x'; BODY_BYTES].into(); BATCH]).await?;
            }
            anyhow::Ok(())
        })
    };
    let mut seen = 0;
    while seen < messages {
        let some = consumer.next().await?;
        seen += some.len();
        if let Some(last) = some.last() {
            consumer.ack_through(last.tag).await?;
        }
    }
    publisher.await??;
    let rate = seen as f64 / SystemClock.monotonic().since(begin).as_secs_f64();
    rabbit.close();
    Ok(rate)
}

/// Rows per second upserted a thousand at a time on one connection, each transaction synced.
pub async fn rows_per_s(postgres: &str, rows: i64) -> anyhow::Result<f64> {
    let store = Postgres::open(postgres, &[]).await?;
    let mut connection = store.connection().await?;
    connection.run("CREATE TABLE raw (job bigint, idx bigint, state text, PRIMARY KEY (job, idx))", &[]).await?;
    let begin = SystemClock.monotonic();
    for first in (0..rows).step_by(ROWS_AT_ONCE as usize) {
        let idx: Vec<i64> = (first..first + ROWS_AT_ONCE).collect();
        let tx = connection.begin().await?;
        tx.run(
            "INSERT INTO raw SELECT 1, idx, 'ok' FROM unnest($1::bigint[]) AS idx
             ON CONFLICT (job, idx) DO UPDATE SET state = EXCLUDED.state",
            &[&idx],
        )
        .await?;
        tx.commit().await?;
    }
    let rate = rows as f64 / SystemClock.monotonic().since(begin).as_secs_f64();
    connection.run("DROP TABLE raw", &[]).await?;
    drop(connection);
    store.close().await;
    Ok(rate)
}
