//! What the database refuses for itself, again and again: whoever waits for it is told so, and so is whoever asks after it.

use mutirao_broker::Broker;
use mutirao_core::{Clock, Problem, SystemClock};
use mutirao_kv::outbox::queue_of;
use mutirao_kv::problems::{STATE, WRITE};
use mutirao_kv::service::{WriteState, WriteView};
use mutirao_kv::{Condition, Kv, Place, Until};
use mutirao_store::Database;
use mutirao_store::postgres::Ask;

use crate::engine::{Engine, on_both};
use crate::queued::{BACKLOG_MAX, Member, PATIENCE, broker, history, join, shared_out};
use crate::running::{ana, text};

on_both!(what_the_database_refuses_is_set_aside_and_whoever_waits_is_told);

const KEY: &str = "refused";

/// The database takes nothing under that key.
async fn refuse(database: &Database) {
    match database {
        Database::Sqlite(sqlite) => {
            let sql = "CREATE TRIGGER refuse BEFORE INSERT ON kv_history WHEN NEW.key = 'refused'
                       BEGIN SELECT RAISE(ABORT, 'it is refused'); END";
            sqlite.write(move |db| db.execute_batch(sql)).await.unwrap();
        }
        Database::Postgres(postgres) => {
            let sql = "ALTER TABLE kv_history ADD CONSTRAINT refuse CHECK (key <> 'refused')";
            postgres.connection().await.unwrap().run(sql, &[]).await.unwrap();
        }
    }
}

async fn write(member: &Member) -> Result<WriteView, Problem> {
    let write = |kv: Kv| async move {
        kv.write(&ana(), KEY.parse().unwrap(), text("x"), Condition::None, Until::Applied).await
    };
    member.on(write).await
}

async fn what_the_database_refuses_is_set_aside_and_whoever_waits_is_told(engine: &Engine) {
    let (database, broker) = (engine.database().await, broker());
    refuse(&database).await;
    let (a, b) =
        (join(&database, broker.clone(), BACKLOG_MAX).await, join(&database, broker.clone(), BACKLOG_MAX).await);
    shared_out(&database, &[&a, &b]).await;
    // One of them owns the key, and the other does not.
    let mut sent = 0;
    for member in [&a, &b] {
        let deadline = SystemClock.monotonic().plus(PATIENCE);
        let told = loop {
            sent += 1;
            match write(member).await {
                Err(problem) => break problem,
                // It took so long that nobody waits any more.
                Ok(view) => assert_eq!(member.settled(&view.write, PATIENCE).await.state, WriteState::SetAside),
            }
            assert!(SystemClock.monotonic() < deadline, "nobody is told");
        };
        assert_eq!(
            (told.status, told.kind.as_str(), told.members[STATE].as_str()),
            (500, "set-aside", Some("set_aside"))
        );
        assert!(told.remedy.as_deref().unwrap_or_default().contains("dead letters"), "{told:?}");
        for asked in [&a, &b] {
            let view = asked.settled(told.members[WRITE].as_str().unwrap(), PATIENCE).await;
            assert_eq!((view.state, view.revision), (WriteState::SetAside, None));
        }
    }
    let place = Place { namespace: "default".into(), key: KEY.parse().unwrap() };
    let letters = broker.dead_letters(&queue_of(place.shard()), 100).await.unwrap();
    assert_eq!(letters.len(), sent, "{letters:?}");
    assert!(history(&database, KEY).await.is_empty());
    let beside = (0..)
        .map(|n| format!("k{n}"))
        .find(|key| Place { namespace: "default".into(), key: key.parse().unwrap() }.shard() == place.shard());
    assert_eq!(a.put(&beside.unwrap(), "1", Until::Applied).await.state, WriteState::Applied, "the others go on");
    a.kill();
    b.kill();
}
