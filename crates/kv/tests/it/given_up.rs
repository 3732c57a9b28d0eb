//! Without RabbitMQ, a database that goes away in the middle: each write is answered in time, and what is said of it is what is so.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Dice, Problem, SystemClock};
use mutirao_kv::problems::WRITE;
use mutirao_kv::service::{WriteState, WriteView};
use mutirao_kv::write::Named;
use mutirao_kv::{AtHand, Condition, Kv, KvParts, Path, Place, Until, store};
use mutirao_shards::store as leases;
use mutirao_shards::{MemberId, Terms};
use mutirao_store::suite::schema::Schema;
use mutirao_store::{Database, Postgres};
use mutirao_testkit::proxy::Proxy;
use mutirao_testkit::services::{POSTGRES_VARIABLE, shared};
use tokio_util::sync::CancellationToken;

use crate::running::{ana, text};

/// Whoever waits gives up after fifteen.
const ANSWERED_WITHIN: Duration = Duration::from_secs(13);
const WELL_AGAIN_WITHIN: Duration = Duration::from_secs(60);

async fn open(url: &str) -> Database {
    let steps = [leases::postgres::MIGRATIONS, mutirao_kv::POSTGRES_MIGRATIONS].concat();
    Postgres::open(url, &steps).await.unwrap().into()
}

async fn start(database: Database) -> Kv {
    Kv::start(KvParts {
        leases: leases::open(&database, None).await.unwrap(),
        store: database,
        path: Path::Commit,
        at_hand: AtHand::Nowhere,
        terms: Terms::alone(),
        member: MemberId::mint("test"),
        address: String::new(),
        clock: SystemClock::shared(),
        dice: Arc::new(Dice::from_os()),
        keep: Duration::from_secs(3_600),
        keep_bytes: None,
        shutdown: CancellationToken::new(),
    })
    .await
    .unwrap()
}

async fn write(kv: &Kv, value: &str) -> (Result<WriteView, Problem>, Duration) {
    let begun = SystemClock.monotonic();
    let told = kv.write(&ana(), "a".parse().unwrap(), text(value), Condition::None, Until::Durable).await;
    (told, SystemClock.monotonic().since(begun))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_while_the_database_is_away_are_answered_in_time_and_are_made_only_if_that_was_left_open() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    let host = server.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned();
    let proxy = Proxy::to(host.parse().unwrap()).unwrap();
    let kv = start(open(&schema.url().replace(&host, &proxy.address().to_string())).await).await;
    write(&kv, "before").await.0.unwrap();

    proxy.cut();
    let first = tokio::spawn({
        let kv = kv.clone();
        async move { write(&kv, "first").await }
    });
    // The others come while the first is tried.
    SystemClock.sleep(Duration::from_millis(500)).await;
    let behind = ["second", "third"].map(|value| {
        let kv = kv.clone();
        tokio::spawn(async move { write(&kv, value).await })
    });
    let (told, waited) = first.await.unwrap();
    let problem = told.unwrap_err();
    assert!(waited < ANSWERED_WITHIN && problem.status == 503, "{waited:?}, {problem:?}");
    let doubted: Named = problem.members[WRITE].as_str().unwrap().parse().unwrap();
    for one in behind {
        let (told, waited) = one.await.unwrap();
        let problem = told.unwrap_err();
        assert!(waited < ANSWERED_WITHIN && problem.status == 503, "{waited:?}, {problem:?}");
        assert!(problem.detail.as_deref().unwrap_or_default().contains("nothing was written"), "{problem:?}");
    }

    proxy.heal();
    // It is asked after as soon as the database is back: first it is not known, and then nothing needs to be written to know.
    let deadline = SystemClock.monotonic().plus(WELL_AGAIN_WITHIN);
    loop {
        match kv.settled(&ana(), doubted, Duration::from_secs(1)).await {
            Ok(view) if view.state == WriteState::NotMade => break,
            Ok(view) => assert_eq!(view.state, WriteState::InDoubt),
            Err(problem) => assert_eq!(problem.status, 503, "{problem:?}"),
        }
        assert!(SystemClock.monotonic() < deadline, "it stays in doubt");
    }
    write(&kv, "after").await.0.unwrap();
    let store = store::open(&open(&schema.url()).await);
    let shard = Place { namespace: "default".into(), key: "a".parse().unwrap() }.shard();
    let store::Past::Events { events, .. } =
        store.past(shard, 0, store::Extent { rows: 100, bytes: 1 << 20 }).await.unwrap()
    else {
        panic!("compacted")
    };
    let values: Vec<_> = events.iter().map(|event| event.value.as_ref().unwrap().bytes.clone()).collect();
    assert_eq!(values, ["before", "after"]);
    kv.stop().await;
    schema.remove().await;
}
