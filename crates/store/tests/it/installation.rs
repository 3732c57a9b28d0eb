//! Which installation a database belongs to, on both engines.

use mutirao_core::InstallationId;
use mutirao_store::installation::{
    FORGET, Installation, MIGRATIONS, POSTGRES_MIGRATIONS, Turn, known, known_if_any, known_in_file, of, take_turn,
};
use mutirao_store::postgres::Ask;
use mutirao_store::suite::schema::Schema;
use mutirao_store::{Database, Postgres, Sqlite};
use mutirao_testkit::services::{POSTGRES_VARIABLE, shared};

fn id(text: &str) -> InstallationId {
    InstallationId(text.into())
}

/// The first id stays, and of any number who saw the same one has the turn.
async fn keeps_its_id_and_gives_turns(database: &Database) {
    assert_eq!(known(database).await.unwrap(), None);
    let (one, two) = tokio::join!(of(database, id("a")), of(database, id("b")));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one, two, "whoever comes at once sees the same");
    assert_eq!((one.markings, of(database, id("c")).await.unwrap()), (0, one.clone()));
    for markings in 0..3 {
        let seen = Installation { markings, ..one.clone() };
        let turns = tokio::join!(take_turn(database, &seen), take_turn(database, &seen), take_turn(database, &seen));
        let turns = [turns.0.unwrap(), turns.1.unwrap(), turns.2.unwrap()];
        assert_eq!(turns.iter().filter(|turn| **turn == Turn::Ours).count(), 1, "{turns:?}");
    }
    let other = Installation { id: id("other"), markings: 3 };
    assert_eq!(take_turn(database, &other).await.unwrap(), Turn::Anothers, "of another installation");
    assert_eq!(known(database).await.unwrap().map(|found| found.markings), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_the_installation() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("db");
    let known_in_file = |file: &std::path::Path| known_in_file(file).unwrap();
    assert_eq!(known_in_file(&file), None, "there is no file");
    let plain = Sqlite::open(&file, &[]).unwrap();
    assert_eq!(known_in_file(&file), None, "there is no table");
    plain.close().await;
    let sqlite = Sqlite::open(&file, MIGRATIONS).unwrap();
    let database = Database::from(sqlite.clone());
    keeps_its_id_and_gives_turns(&database).await;
    assert_eq!(known_in_file(&file), known(&database).await.unwrap());
    sqlite.write(|sql| sql.execute_batch(FORGET)).await.unwrap();
    assert_eq!(of(&database, id("new")).await.unwrap(), Installation { id: id("new"), markings: 0 });
}

#[test]
fn a_file_that_cannot_be_read_is_not_taken_for_one_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let (rubbish, within) = (folder.path().join("rubbish"), folder.path().join("rubbish/db"));
    std::fs::write(&rubbish, "this is no database, and long enough to be told from an empty one".repeat(20)).unwrap();
    for file in [rubbish, within] {
        assert!(known_in_file(&file).is_err(), "{}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_the_installation() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    let empty = Database::from(Postgres::apart(&schema.url(), 1).await.unwrap());
    assert_eq!(known_if_any(&empty).await.unwrap(), None, "there is no table");
    let postgres = Postgres::open(&schema.url(), POSTGRES_MIGRATIONS).await.unwrap();
    let database = Database::from(postgres.clone());
    keeps_its_id_and_gives_turns(&database).await;
    postgres.connection().await.unwrap().run(FORGET, &[]).await.unwrap();
    assert_eq!(of(&database, id("new")).await.unwrap(), Installation { id: id("new"), markings: 0 });
}
