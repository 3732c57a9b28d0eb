//! What the registry promises, on SQLite and on PostgreSQL.

use std::sync::Arc;

use mutirao_api::auth::keys::{Added, ElasticKey, KEYS_GOOD_MAX};
use mutirao_api::auth::registry::{By, Enrolling, Newcomer, Registry, Token, Worker, open};
use mutirao_api::auth::secret::Digest;
use mutirao_api::{MIGRATIONS, POSTGRES_MIGRATIONS};
use mutirao_core::auth::{Duty, Role};
use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_store::postgres::Ask;
use mutirao_store::suite::schema::Schema;
use mutirao_store::{Postgres, Sqlite};
use mutirao_testkit::services::{POSTGRES_VARIABLE, shared};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_the_registry() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("store.db"), MIGRATIONS).unwrap();
    let registry = open(&store.into());
    all_of_it(registry.clone()).await;
    what_is_over_is_followed_and_forgotten(&*registry).await;
    each_is_let_in_for_what_it_was_invited_for(&*registry).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_the_registry() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    let store = Postgres::open(&schema.url(), POSTGRES_MIGRATIONS).await.unwrap();
    all_of_it(open(&store.clone().into())).await;
    let audit = store.connection().await.unwrap().rows("SELECT what FROM api_audit ORDER BY seq", &[]).await.unwrap();
    let audit: Vec<String> = audit.iter().map(|row| row.get(0)).collect();
    assert_eq!(
        audit[..6],
        ["token.create", "token.create", "token.revoke", "enrolment.create", "worker.enrol", "worker.revoke"]
    );
    assert_eq!(audit[6..8], ["elastic.invite", "elastic.enrol"]);
    assert_eq!(audit.last().unwrap(), "elastic.key.revoke");
    what_is_over_is_followed_and_forgotten(&*open(&store.clone().into())).await;
    each_is_let_in_for_what_it_was_invited_for(&*open(&store.clone().into())).await;
    schema.remove().await;
}

async fn all_of_it(registry: Arc<dyn Registry>) {
    registry.ping().await.unwrap();
    tokens_come_back_as_they_were_kept(&*registry).await;
    a_one_time_token_lets_one_worker_in(registry.clone()).await;
    a_resource_manager_has_several_keys(&*registry).await;
    a_request_is_new_once(&*registry).await;
}

async fn a_request_is_new_once(registry: &dyn Registry) {
    let first =
        async |mark: u8, at: i64| registry.first_use([mark; 16], Timestamp(at), Timestamp(at - 120)).await.unwrap();
    assert!(first(1, 1_000).await && first(2, 1_000).await);
    assert!(!first(1, 1_119).await);
    assert!(first(1, 1_121).await, "by then its time is too old anyhow");
}

async fn what_is_over_is_followed_and_forgotten(registry: &dyn Registry) {
    let revoked = registry.revoked_from(Timestamp(60), 9).await.unwrap();
    assert_eq!(revoked.iter().map(|(at, _)| at.0).collect::<Vec<_>>(), [60]);
    assert_eq!(registry.revoked_from(Timestamp(61), 9).await.unwrap(), []);
    assert_eq!(registry.forget(Timestamp(60), Timestamp(0), 100).await.unwrap(), 0, "not yet");
    assert_eq!(registry.forget(Timestamp(81), Timestamp(0), 100).await.unwrap(), 1);
    assert_eq!(registry.workers(0, 9).await.unwrap(), []);
    assert!(registry.tokens(0, 9).await.unwrap().iter().all(|(_, token)| token.revoked_at.is_none()));
    assert_eq!(registry.elastic_key("e0").await.unwrap(), None);
    assert!(registry.elastic_key("e1").await.unwrap().is_some(), "what is good stays");
    for left in [1, 1, 0] {
        assert_eq!(registry.forget(Timestamp(0), Timestamp(10), 1).await.unwrap(), left, "some at a time");
    }
}

fn by(who: &str, at: i64) -> By {
    By { who: who.into(), at: Timestamp(at) }
}

fn token(id: &str, expires_at: Option<Timestamp>) -> Token {
    Token {
        id: id.into(),
        name: "für Ana".into(),
        role: Role::Operator,
        namespace: "default".into(),
        secret: Digest::of(id),
        created_at: Timestamp(5),
        expires_at,
        revoked_at: None,
        last_used_at: None,
    }
}

async fn tokens_come_back_as_they_were_kept(registry: &dyn Registry) {
    let (a, b) = (token("a", None), token("b", Some(Timestamp(i64::MAX))));
    registry.add_token(a.clone(), by("ana", 1)).await.unwrap();
    registry.add_token(b.clone(), by("ana", 2)).await.unwrap();
    assert!(registry.add_token(a.clone(), by("ana", 3)).await.is_err(), "an id is used once, and leaves no audit line");
    assert_eq!(registry.token("a").await.unwrap(), Some(a.clone()));
    assert_eq!(registry.token("c").await.unwrap(), None);
    registry.token_used("b", Timestamp(70)).await.unwrap();
    assert!(registry.revoke_token("a", by("ana", 80)).await.unwrap());
    assert!(registry.revoke_token("a", by("ana", 90)).await.unwrap(), "revoking again changes nothing");
    for stranger in ["c", "a\0", "'; --"] {
        assert!(!registry.revoke_token(stranger, by("ana", 90)).await.unwrap(), "{stranger:?}");
    }
    let first = registry.tokens(0, 1).await.unwrap();
    assert_eq!(first[0].1, Token { revoked_at: Some(Timestamp(80)), ..a });
    let rest = registry.tokens(first[0].0, 9).await.unwrap();
    assert_eq!(
        rest.iter().map(|(_, token)| token.clone()).collect::<Vec<_>>(),
        [Token { last_used_at: Some(Timestamp(70)), ..b }]
    );
}

async fn a_one_time_token_lets_one_worker_in(registry: Arc<dyn Registry>) {
    let digest = Digest::of("once");
    let queue: QueueName = "gpu".parse().unwrap();
    registry
        .add_enrolment(digest, Duty::Tasks(queue.clone()), None, "default", Timestamp(100), by("ana", 10))
        .await
        .unwrap();
    let newcomer =
        |n: u8| Newcomer { id: WorkerId(format!("w{n}")), public_key: [n; 32], name: "w".into(), queue: None };
    let worthless = Enrolling::Worthless;
    assert_eq!(registry.enrol(digest, newcomer(9), Timestamp(100)).await.unwrap(), worthless, "too late");
    assert_eq!(registry.enrol(Digest::of("other"), newcomer(9), Timestamp(50)).await.unwrap(), worthless);
    let mistaken = Newcomer { queue: Some("gpus".parse().unwrap()), ..newcomer(9) };
    let other = registry.enrol(digest, mistaken, Timestamp(50)).await.unwrap();
    assert_eq!(other, Enrolling::OtherDuty(Duty::Tasks(queue.clone())), "and it is not spent");
    let racing: Vec<_> = (0..4)
        .map(|n| {
            let (registry, newcomer) = (registry.clone(), Newcomer { queue: Some(queue.clone()), ..newcomer(n) });
            tokio::spawn(async move { registry.enrol(digest, newcomer, Timestamp(50)).await.unwrap() })
        })
        .collect();
    let mut let_in = Vec::new();
    for racer in racing {
        match racer.await.unwrap() {
            Enrolling::LetIn(worker) => let_in.push(worker),
            refused => assert_eq!(refused, Enrolling::Worthless),
        }
    }
    let [worker] = &let_in[..] else { panic!("{let_in:?}") };
    assert_eq!((&worker.duty, worker.enrolled_at), (&Duty::Tasks(queue), Timestamp(50)));
    assert_eq!(registry.worker(&worker.id).await.unwrap().as_ref(), Some(worker));
    assert_eq!(registry.worker(&WorkerId("w9\0".into())).await.unwrap(), None);
    a_revoked_worker_stays_in_the_list(&*registry, worker).await;
}

async fn a_revoked_worker_stays_in_the_list(registry: &dyn Registry, worker: &Worker) {
    assert!(registry.revoke_worker(&worker.id, by("ana", 60)).await.unwrap());
    assert!(registry.revoke_worker(&worker.id, by("ana", 70)).await.unwrap(), "revoking again changes nothing");
    assert!(!registry.revoke_worker(&WorkerId("w9\0".into()), by("ana", 70)).await.unwrap());
    let all = registry.workers(0, 9).await.unwrap();
    assert_eq!(all.iter().map(|(_, worker)| worker.revoked_at).collect::<Vec<_>>(), [Some(Timestamp(60))]);
    assert!(registry.workers(all[0].0, 9).await.unwrap().is_empty());
}

async fn each_is_let_in_for_what_it_was_invited_for(registry: &dyn Registry) {
    let duties = [Duty::Streams, Duty::Checks("tcp,http".parse().unwrap()), Duty::Tasks("streams".parse().unwrap())];
    for (n, duty) in (20..).zip(duties) {
        let digest = Digest::of(&format!("{duty:?}"));
        registry.add_enrolment(digest, duty.clone(), None, "default", Timestamp(100), by("ana", 61)).await.unwrap();
        let id = WorkerId(format!("d{n}"));
        let newcomer = Newcomer { id: id.clone(), public_key: [n; 32], name: "w".into(), queue: None };
        let meant = Some("streams".parse().unwrap());
        let mistaken =
            registry.enrol(digest, Newcomer { queue: meant, ..newcomer.clone() }, Timestamp(62)).await.unwrap();
        match &duty {
            Duty::Tasks(_) => assert!(matches!(mistaken, Enrolling::LetIn(_))),
            _ => assert_eq!(mistaken, Enrolling::OtherDuty(duty.clone())),
        }
        // The same key asks again, if it was let in.
        let Enrolling::LetIn(worker) = registry.enrol(digest, newcomer, Timestamp(63)).await.unwrap() else {
            panic!("{duty} was not let in")
        };
        assert_eq!(worker.duty, duty);
        assert_eq!(registry.worker(&id).await.unwrap().unwrap().duty, duty);
        registry.revoke_worker(&id, by("ana", 64)).await.unwrap();
    }
}

fn elastic_key(id: &str) -> ElasticKey {
    ElasticKey {
        id: id.into(),
        manager: "e0".into(),
        public_key: Digest::of(id).0,
        name: "lab".into(),
        created_at: Timestamp(50),
        revoked_at: None,
        last_used_at: None,
    }
}

async fn a_resource_manager_has_several_keys(registry: &dyn Registry) {
    let digest = Digest::of("once for elastic");
    registry.add_elastic_enrolment(digest, Timestamp(100), by("ana", 10)).await.unwrap();
    let late = ElasticKey { created_at: Timestamp(100), ..elastic_key("e9") };
    assert_eq!(registry.enrol_elastic(digest, late).await.unwrap(), None, "too late");
    assert_eq!(registry.enrol_elastic(digest, elastic_key("e0")).await.unwrap().as_deref(), Some("e0"));
    assert_eq!(registry.enrol_elastic(digest, elastic_key("e9")).await.unwrap(), None, "spent");
    let again = ElasticKey { public_key: elastic_key("e0").public_key, ..elastic_key("e9") };
    assert_eq!(registry.enrol_elastic(digest, again).await.unwrap().as_deref(), Some("e0"), "the same asks again");
    assert_eq!(registry.elastic_key("e0").await.unwrap(), Some(elastic_key("e0")));
    assert_eq!(registry.elastic_key("e9\0").await.unwrap(), None);
    for n in 1..KEYS_GOOD_MAX {
        assert_eq!(registry.add_elastic_key(elastic_key(&format!("e{n}")), by("e0", 60)).await.unwrap(), Added::Added);
    }
    assert_eq!(registry.add_elastic_key(elastic_key("e8"), by("e0", 60)).await.unwrap(), Added::TooMany);
    let again = ElasticKey { public_key: elastic_key("e3").public_key, ..elastic_key("e9") };
    assert_eq!(registry.add_elastic_key(again, by("e0", 60)).await.unwrap(), Added::Already("e3".into()));
    registry.elastic_key_used("e1", Timestamp(70)).await.unwrap();
    assert!(registry.revoke_elastic_key("e0", by("e1", 80)).await.unwrap());
    assert!(registry.revoke_elastic_key("e0", by("e1", 90)).await.unwrap(), "revoking again changes nothing");
    assert!(!registry.revoke_elastic_key("e9", by("e1", 90)).await.unwrap());
    let page = registry.elastic_keys(0, 2).await.unwrap();
    assert_eq!(page[0].1.revoked_at, Some(Timestamp(80)));
    assert_eq!(page[1].1.last_used_at, Some(Timestamp(70)));
    assert_eq!(registry.elastic_keys(page[1].0, 99).await.unwrap().len() as u32, KEYS_GOOD_MAX - 2);
}
