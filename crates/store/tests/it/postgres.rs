//! PostgreSQL: opening with every kind of refusal, steps by several at once, blobs, and a server that is killed.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use bytes::Bytes;
use mutirao_core::SystemClock;
use mutirao_core::blobs::{BlobError, Blobs};
use mutirao_core::clock::ClockExt;
use mutirao_store::postgres::{Ask, BLOBS_MIGRATIONS, CONNECTIONS_MAX, check};
use mutirao_store::suite::schema::{Schema, say};
use mutirao_store::{Migration, PgBlobs, Postgres, StoreError, suite};
use mutirao_testkit::certificates::{Authority, Good};
use mutirao_testkit::services::{POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::wait;

const ROWS: Migration =
    Migration { component: "rows", version: 1, sql: "CREATE TABLE rows (k bigint PRIMARY KEY, v bytea)" };
const WIDER: Migration =
    Migration { component: "rows", version: 2, sql: "ALTER TABLE rows ADD COLUMN w bigint NOT NULL DEFAULT 0" };

/// For what happens at once on an idle machine.
const SOON: Duration = Duration::from_secs(40);

async fn insert(store: &Postgres, k: i64) -> Result<u64, StoreError> {
    store.connection().await?.run("INSERT INTO rows (k) VALUES ($1)", &[&k]).await
}

async fn keys(store: &Postgres) -> Vec<i64> {
    let rows = store.connection().await.unwrap().rows("SELECT k FROM rows ORDER BY k", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// The one line with which opening is refused.
async fn refusal(url: &str) -> String {
    let line = Postgres::open(url, &[ROWS]).await.unwrap_err().to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_waits_for_a_lock_or_holds_one_for_ever() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    let store = Postgres::open(&schema.url(), &[ROWS]).await.unwrap();
    const BOUNDS: &str =
        "SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')";
    let mut lent = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let connection = store.connection().await.unwrap();
        let row = connection.row(BOUNDS, &[]).await.unwrap().unwrap();
        assert_eq!((row.get(0), row.get(1)), ("10s", "1min"));
        lent.push(connection);
    }
    drop(lent);
    let closer = format!("{}%20-clock_timeout%3D2s", schema.url());
    let closer = Postgres::apart(&closer, 1).await.unwrap();
    let row = closer.connection().await.unwrap().row(BOUNDS, &[]).await.unwrap().unwrap();
    assert_eq!((row.get(0), row.get(1)), ("2s", "1min"), "a closer bound stays");

    insert(&store, 1).await.unwrap();
    let mut holder = store.connection().await.unwrap();
    let holding = holder.begin().await.unwrap();
    holding.run("UPDATE rows SET v = NULL WHERE k = 1", &[]).await.unwrap();
    let waiting = closer.connection().await.unwrap();
    let refused = waiting.run("DELETE FROM rows WHERE k = 1", &[]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Locked), "{refused}");
    holding.commit().await.unwrap();
    assert_eq!(waiting.run("DELETE FROM rows WHERE k = 1", &[]).await.unwrap(), 1, "and the connection goes on");
    drop((holder, waiting));
    closer.close().await;
    store.close().await;
    schema.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_open_at_once_all_succeed_and_each_step_is_applied_once() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = schema.url();
            tokio::spawn(async move { Postgres::open(&url, &[ROWS, WIDER]).await })
        })
        .collect();
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
    let store = Postgres::open(&schema.url(), &[ROWS, WIDER]).await.unwrap();
    insert(&store, 1).await.unwrap();
    assert_eq!(keys(&store).await, [1]);
    store.close().await;
    assert!(matches!(insert(&store, 2).await, Err(StoreError::Closed)));
    schema.remove().await;
}

/// Statements that the server is at work on, for this test's schema and with this word in them.
async fn at_work(store: &Postgres, word: &str) -> i64 {
    let count =
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE $1 AND pid <> pg_backend_pid()";
    let row = store.connection().await.unwrap().row(count, &[&format!("%{word}%")]).await.unwrap();
    row.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_caller_went_away_in_the_middle_of_a_question_is_not_lent_again() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    let watching = Postgres::open(&schema.url(), &[ROWS]).await.unwrap();
    let store = Postgres::apart(&schema.url(), 1).await.unwrap();
    let pid = async |store: &Postgres| -> i32 {
        let row = store.connection().await.unwrap().row("SELECT pg_backend_pid()", &[]).await.unwrap();
        row.unwrap().get(0)
    };
    let first = pid(&store).await;
    assert_eq!(pid(&store).await, first, "one that was answered is lent again");

    // Both end by themselves, long after the test has given them up.
    let (alone, within) =
        (format!("SELECT pg_sleep(60) AS a_{}", schema.name()), format!("SELECT pg_sleep(60) AS b_{}", schema.name()));
    let asking = tokio::spawn({
        let (store, alone) = (store.clone(), alone.clone());
        async move { store.connection().await.unwrap().rows(&alone, &[]).await.map(drop) }
    });
    wait::eventually("the server to be at work", SOON, async || at_work(&watching, &alone).await == 1).await;
    asking.abort();
    let second = SystemClock.timeout(SOON / 2, pid(&store)).await.expect("nobody waits for what nobody wants");
    assert_ne!(second, first);

    let asking = tokio::spawn({
        let (store, within) = (store.clone(), within.clone());
        async move {
            let mut connection = store.connection().await.unwrap();
            connection.begin().await.unwrap().rows(&within, &[]).await.map(drop)
        }
    });
    wait::eventually("the server to be at work", SOON, async || at_work(&watching, &within).await == 1).await;
    asking.abort();
    let third = SystemClock.timeout(SOON / 2, pid(&store)).await.expect("nobody waits for what nobody wants");
    assert_ne!(third, second);
    for word in [&alone, &within] {
        let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = '{word}'");
        say(&server, &end).await;
    }
    schema.remove().await;
}

#[tokio::test]
async fn a_look_at_the_server_tells_what_a_user_may_not() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    Postgres::open(&schema.url(), &[ROWS]).await.unwrap().close().await;
    let guest = format!("guest_{}", schema.name());
    let name = schema.name();
    let rights = format!(
        "CREATE ROLE {guest} LOGIN PASSWORD 'pw'; GRANT USAGE ON SCHEMA {name} TO {guest};
         GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {guest}"
    );
    say(&server, &rights).await;
    let (_, place) = server.rsplit_once('@').unwrap();
    let url = format!("postgres://{guest}:pw@{place}?options=-csearch_path%3D{name}");
    let found = check(&url, &[ROWS, WIDER]).await.unwrap();
    assert_eq!((found.forbidden, found.may_create, found.steps_missing), (vec!["rows".into()], false, 1));
    assert!(found.settings.autovacuum && !found.standby && found.connections_free > 0);
    schema.remove().await;
    say(&server, &format!("DROP ROLE {guest}")).await;
}

#[tokio::test]
async fn newer_tables_are_refused_untouched_and_a_failing_step_undoes_the_upgrade() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    let url = schema.url();
    assert_eq!(check(&url, &[ROWS, WIDER]).await.unwrap().steps_missing, 2);
    let broken = Migration { version: 2, sql: "CREATE TABLE half (x bigint); NONSENSE", ..ROWS };
    let refused = Postgres::open(&url, &[ROWS, broken]).await.unwrap_err();
    assert!(refused.to_string().contains("syntax error"), "{refused}");
    let store = Postgres::open(&url, &[ROWS, WIDER]).await.unwrap();
    let half = store.connection().await.unwrap().row("SELECT to_regclass('half') IS NULL", &[]).await.unwrap();
    assert!(half.unwrap().get::<_, bool>(0), "the broken step left something behind");
    insert(&store, 1).await.unwrap();
    let refused = Postgres::open(&url, &[ROWS]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Newer { found: 2, known: 1, .. }), "{refused}");
    assert!(check(&url, &[ROWS]).await.is_err());
    let found = check(&url, &[ROWS, WIDER]).await.unwrap();
    assert!(
        found.settings.fsync
            && found.may_create
            && found.forbidden.is_empty()
            && found.steps_missing == 0
            && !found.version.is_empty(),
        "{found:?}"
    );
    assert_eq!(keys(&store).await, [1]);
    schema.remove().await;
}

#[tokio::test]
async fn each_way_to_be_refused_is_one_line_with_its_remedy() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let (scheme, rest) = server.split_once("//").unwrap();
    let (who, place) = rest.split_once('@').unwrap();
    let (user, password) = who.split_once(':').unwrap();
    let host = place.split_once('/').unwrap().0;

    let line = refusal(&format!("{scheme}//{user}:wrong@{place}")).await;
    assert!(line.contains("check user and password") && !line.contains("wrong"), "{line}");
    let line = refusal(&format!("{scheme}//{user}@{place}")).await;
    assert!(line.contains("password missing") && line.contains("user:password@"), "{line}");
    let line = refusal(&format!("{server}?sslmode=require")).await;
    assert!(line.contains("does not support TLS") && line.contains("ssl = on"), "{line}");
    let line = refusal(&format!("{server}?sslmode=require&sslrootcert=/nowhere.pem")).await;
    assert!(line.contains("/nowhere.pem"), "{line}");
    let line = refusal(&format!("{scheme}//{who}@{host}/nowhere")).await;
    assert!(line.contains("createdb") && line.contains("nowhere") && !line.contains(password), "{line}");
    let line = refusal(&format!("{scheme}//{who}@127.0.0.1:1/x")).await;
    assert!(line.contains("refused") && line.contains("is it running there"), "{line}");
    let line = refusal(&format!("{server}?options=-csearch_path%3Dnowhere")).await;
    assert!(line.contains("search_path"), "{line}");

    let schema = Schema::in_database(&server).await;
    let stranger = format!("{}_reader", schema.name());
    say(
        &server,
        &format!("CREATE ROLE {stranger} LOGIN PASSWORD 'pw'; GRANT USAGE ON SCHEMA {} TO {stranger}", schema.name()),
    )
    .await;
    let reader = schema.url().replace(who, &format!("{stranger}:pw"));
    let line = refusal(&reader).await;
    assert!(line.contains("permission denied") && line.contains("GRANT CREATE"), "{line}");
    say(&server, &format!("REVOKE ALL ON SCHEMA {} FROM {stranger}; DROP ROLE {stranger}", schema.name())).await;
    schema.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blobs_in_the_database_pass_the_suite_and_are_durable() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    // A server that confirms before it has written would break the promise.
    let careless = format!("{}%20-csynchronous_commit%3Doff", schema.url());
    let store = Postgres::open(&careless, BLOBS_MIGRATIONS).await.unwrap();
    suite::blobs_suite(&PgBlobs(store.clone())).await;
    let connection = store.connection().await.unwrap();
    let left = connection.row("SELECT (SELECT count(*) FROM blobs) + (SELECT count(*) FROM blob_chunks)", &[]).await;
    assert_eq!(left.unwrap().unwrap().get::<_, i64>(0), 0, "no chunk stays behind");
    let commits = connection.row("SELECT current_setting('synchronous_commit')", &[]).await.unwrap().unwrap();
    assert_eq!(commits.get::<_, String>(0), "on");
    schema.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_and_removals_at_once_leave_no_chunk_without_its_blob() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    let store = Postgres::open(&schema.url(), BLOBS_MIGRATIONS).await.unwrap();
    let blobs = PgBlobs(store.clone());
    let appending = tokio::spawn({
        let blobs = blobs.clone();
        async move {
            let mut len = 0;
            for _ in 0..300 {
                len = match blobs.append("a/b", len, Bytes::from_static(b"xyz")).await {
                    Ok(len) => len,
                    Err(BlobError::Gap { len, .. }) => len,
                    Err(other) => panic!("{other}"),
                };
            }
        }
    });
    while !appending.is_finished() {
        blobs.remove_all("a/").await.unwrap();
    }
    appending.await.unwrap();
    blobs.remove_all("a/").await.unwrap();
    let left = store.connection().await.unwrap().row("SELECT count(*) FROM blob_chunks", &[]).await.unwrap().unwrap();
    assert_eq!(left.get::<_, i64>(0), 0);
    schema.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_tls_is_believed_by_its_authority_and_by_its_name() {
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let folder = folder();
    let server = Service::postgres(folder.path()).unwrap();
    let plain = Postgres::open(server.url(), &[ROWS]).await.unwrap();
    let authority = Authority::new();
    let pair = authority.issue(&["127.0.0.1"], Good::ForLong);
    let row = plain.connection().await.unwrap().row("SHOW data_directory", &[]).await.unwrap().unwrap();
    let data = std::path::PathBuf::from(row.get::<_, String>(0));
    let owner = std::fs::metadata(&data).unwrap();
    for (from, name) in [(&pair.cert, "cert.pem"), (&pair.key, "key.pem")] {
        let to = data.join(name);
        std::fs::copy(from, &to).unwrap();
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&to, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    for setting in ["ssl_cert_file = 'cert.pem'", "ssl_key_file = 'key.pem'", "ssl = on"] {
        say(server.url(), &format!("ALTER SYSTEM SET {setting}")).await;
    }
    say(server.url(), "SELECT pg_reload_conf()").await;

    let ca = authority.ca().display().to_string();
    let trusting = format!("{}?sslmode=require&sslrootcert={ca}", server.url());
    wait::eventually("the server to speak TLS", Duration::from_secs(20), async || {
        Postgres::open(&trusting, &[ROWS]).await.is_ok()
    })
    .await;
    let store = Postgres::open(&trusting, &[ROWS]).await.unwrap();
    let ssl = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let row = store.connection().await.unwrap().row(ssl, &[]).await.unwrap().unwrap();
    assert!(row.get::<_, bool>(0), "the way is not encrypted");
    let line = refusal(&format!("{}?sslmode=verify-full", server.url())).await;
    assert!(line.contains("not trusted") && line.contains("sslrootcert"), "{line}");
    let line = refusal(&trusting.replace("127.0.0.1", "localhost")).await;
    assert!(line.contains("not trusted"), "another name is another server: {line}");
}

/// PostgreSQL runs as another user, who must be able to pass.
fn folder() -> tempfile::TempDir {
    let passable = std::fs::Permissions::from_mode(0o711);
    tempfile::Builder::new().permissions(passable).tempdir().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_a_kill_of_the_server_and_the_same_handle_goes_on() {
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let folder = folder();
    let mut server = Service::postgres(folder.path()).unwrap();
    let store = Postgres::open(server.url(), &[ROWS]).await.unwrap();
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            let (mut answered, mut away) = (Vec::new(), false);
            for k in 0.. {
                match insert(&store, k).await {
                    Ok(_) => answered.push(k),
                    Err(StoreError::Unreachable { .. }) => away = true,
                    Err(other) => panic!("{other}"),
                }
                // Some hundred before the kill, and again some afterwards.
                if away && answered.last().is_some_and(|last| *last == k) && answered.len() > 400 {
                    return answered;
                }
            }
            unreachable!()
        }
    });
    wait::eventually("two hundred rows", Duration::from_secs(30), async || keys(&store).await.len() > 200).await;
    server.kill9();
    // What serves a connection lives on for a moment after the server itself was killed.
    let (mut k, mut error) = (0, None);
    wait::eventually("a refusal", Duration::from_secs(30), async || {
        k -= 1;
        error = insert(&store, k).await.err();
        error.is_some()
    })
    .await;
    assert!(matches!(error, Some(StoreError::Unreachable { .. })), "{error:?}");
    server.restart().unwrap();
    let answered = writing.await.unwrap();
    let kept = keys(&store).await;
    let lost: Vec<_> = answered.iter().filter(|k| kept.binary_search(k).is_err()).collect();
    assert!(lost.is_empty(), "answered and lost: {lost:?}");
}

/// A user of its own with all rights on one table, and nothing else.
async fn guest(server: &str) -> (Schema, String, String) {
    let schema = Schema::in_database(server).await;
    Postgres::open(&schema.url(), &[ROWS]).await.unwrap().close().await;
    let (name, guest) = (schema.name(), format!("guest_{}", schema.name()));
    let rights = format!(
        "CREATE ROLE {guest} LOGIN PASSWORD 'pw'; GRANT USAGE ON SCHEMA {name} TO {guest};
         GRANT ALL ON ALL TABLES IN SCHEMA {name} TO {guest}"
    );
    say(server, &rights).await;
    let (_, place) = server.rsplit_once('@').unwrap();
    let url = format!("postgres://{guest}:pw@{place}?options=-csearch_path%3D{name}");
    (schema, guest, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_taken_and_given_back_is_a_denial_with_the_remedy_and_got_over() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let (schema, guest, url) = guest(&server).await;
    let (name, store) = (schema.name().to_owned(), Postgres::open(&url, &[ROWS]).await.unwrap());
    insert(&store, 1).await.unwrap();
    say(&server, &format!("REVOKE INSERT ON {name}.rows FROM {guest}")).await;
    let denied = insert(&store, 2).await.unwrap_err();
    assert!(matches!(denied, StoreError::Denied { .. }), "{denied:?}");
    let line = denied.to_string();
    assert!(line.contains("permission denied for table rows; ") && line.contains("GRANT ALL ON ALL TABLES"), "{line}");
    assert_eq!(keys(&store).await, [1], "what is allowed goes on");
    say(&server, &format!("GRANT INSERT ON {name}.rows TO {guest}")).await;
    insert(&store, 3).await.unwrap();
    assert_eq!(keys(&store).await, [1, 3], "nothing was written by the refused one");
    store.close().await;
    schema.remove().await;
    say(&server, &format!("DROP ROLE {guest}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_changed_and_set_back_is_a_denial_with_the_remedy_and_got_over() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let (schema, guest, url) = guest(&server).await;
    let store = Postgres::open(&url, &[ROWS]).await.unwrap();
    insert(&store, 1).await.unwrap();
    let hang_up = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{guest}'");
    say(&server, &format!("ALTER USER {guest} PASSWORD 'another'; {hang_up}")).await;
    let mut last = String::new();
    wait::eventually("a denial", SOON, async || match insert(&store, 2).await {
        Err(error @ StoreError::Denied { .. }) => {
            last = error.to_string();
            true
        }
        // Of connections that have just been hung up on.
        Err(StoreError::Unreachable { .. }) => false,
        other => panic!("{other:?}"),
    })
    .await;
    assert!(last.contains("check user and password in the address") && !last.contains("'pw'"), "{last}");
    say(&server, &format!("ALTER USER {guest} PASSWORD 'pw'")).await;
    insert(&store, 3).await.unwrap();
    assert_eq!(keys(&store).await, [1, 3]);
    store.close().await;
    schema.remove().await;
    say(&server, &format!("DROP ROLE {guest}")).await;
}
