//! Resource managers: how they get in, sign, change their keys and are kept out; and the workers they have ids for.

use std::time::Duration;

use ed25519_dalek::SigningKey;
use mutirao_api::Settings;
use mutirao_core::auth::{Duty, ElasticEnrolled, ElasticInvitation, ElasticKeyView, Role};
use mutirao_core::clock::ManualClock;
use mutirao_core::job::Page;
use mutirao_core::{QueueName, Timestamp};
use serde_json::json;

use crate::server::{Server, SignedClient, enrol, new_key, problem};

/// What every resource manager may ask; another key of the same is a harmless thing to want.
const ASKED: &str = "/v1/elastic/keys";

fn wanted() -> Vec<u8> {
    let public = enrol("", &new_key()).public_key;
    json!({ "public_key": public }).to_string().into_bytes()
}

async fn send(client: &SignedClient, server: &Server, method: &str, path: &str, body: &[u8]) -> reqwest::Response {
    let header = client.authorize(method, path, body, server.clock.now());
    let request = server.ask(method, path).header("authorization", header);
    request.header("content-type", "application/json").body(body.to_vec()).send().await.unwrap()
}

async fn resource_manager(server: &Server) -> SignedClient {
    let invitation = server.api.auth().invite_elastic("test").await.unwrap();
    let key = new_key();
    let answer = server.ask("POST", "/v1/elastic/enrol").json(&enrol(&invitation.token, &key)).send().await.unwrap();
    assert_eq!(answer.status(), 201);
    SignedClient { id: answer.json::<ElasticEnrolled>().await.unwrap().key, key }
}

/// Adds a key with the one at hand, and gives the new one.
async fn rotate(first: &SignedClient, server: &Server) -> SignedClient {
    let key = new_key();
    let body = json!({ "public_key": enrol("", &key).public_key }).to_string();
    let answer = send(first, server, "POST", ASKED, body.as_bytes()).await;
    assert_eq!(answer.status(), 201);
    SignedClient { id: answer.json::<ElasticEnrolled>().await.unwrap().key, key }
}

#[tokio::test]
async fn an_invitation_lets_one_resource_manager_in_for_an_hour() {
    let clock = ManualClock::starting_at(Timestamp(1_000_000));
    let server = Server::start_with(Settings::default(), clock.clone()).await;
    let admin = server.token(Role::Admin).await;
    let invite = async || {
        let answer = server.ask("POST", "/v1/elastic/invitations").bearer_auth(&admin).send().await.unwrap();
        assert_eq!(answer.status(), 201);
        answer.json::<ElasticInvitation>().await.unwrap()
    };
    let (first, late) = (invite().await, invite().await);
    let spend = enrol(&first.token, &new_key());
    assert_eq!(server.ask("POST", "/v1/elastic/enrol").json(&spend).send().await.unwrap().status(), 201);
    let other = enrol(&first.token, &new_key());
    let other = server.ask("POST", "/v1/elastic/enrol").json(&other).send().await.unwrap();
    assert!(problem(other, 401).await.line().contains("spent"));
    let again = async || {
        let answer = server.ask("POST", "/v1/elastic/enrol").json(&spend).send().await.unwrap();
        assert_eq!(answer.status(), 201);
        answer.json::<ElasticEnrolled>().await.unwrap().key
    };
    assert_eq!(again().await, again().await, "the same key has the same answer");
    clock.advance(Duration::from_secs(3_600));
    let spend = enrol(&late.token, &new_key());
    problem(server.ask("POST", "/v1/elastic/enrol").json(&spend).send().await.unwrap(), 401).await;
}

#[tokio::test]
async fn a_token_for_a_worker_lets_no_resource_manager_in_and_the_other_way_round() {
    let server = Server::start().await;
    let worker = server.api.auth().create_enrolment(&QueueName::default(), "test").await.unwrap();
    let spend = enrol(&worker.token, &new_key());
    problem(server.ask("POST", "/v1/elastic/enrol").json(&spend).send().await.unwrap(), 401).await;
    let elastic = server.api.auth().invite_elastic("test").await.unwrap();
    let spend = enrol(&elastic.token, &new_key());
    problem(server.ask("POST", "/v1/workers/enrol").json(&spend).send().await.unwrap(), 401).await;
}

#[tokio::test]
async fn a_request_of_a_resource_manager_is_good_once() {
    let server = Server::start().await;
    let manager = resource_manager(&server).await;
    let body = wanted();
    let header = manager.authorize("POST", ASKED, &body, server.clock.now());
    let send = async || {
        let request = server.ask("POST", ASKED).header("authorization", &header);
        request.header("content-type", "application/json").body(body.clone()).send().await.unwrap()
    };
    assert_eq!(send().await.status(), 201);
    assert!(problem(send().await, 401).await.line().contains("already used"));
}

#[tokio::test]
async fn an_old_time_an_unknown_key_and_another_body_are_refused() {
    let server = Server::start().await;
    let manager = resource_manager(&server).await;
    let (body, now) = (wanted(), server.clock.now());
    let impostor = SignedClient { id: manager.id.clone(), key: new_key() };
    let unknown = SignedClient { id: "e000000000000".into(), key: manager.key.clone() };
    let headers = [
        manager.authorize("POST", ASKED, &body, Timestamp(now.0 - 62_000)),
        manager.authorize("POST", ASKED, &body, Timestamp(now.0 + 62_000)),
        manager.authorize("POST", ASKED, b"{}", now),
        manager.authorize("PUT", ASKED, &body, now),
        manager.authorize("POST", "/v1/elastic/lease", &body, now),
        impostor.authorize("POST", ASKED, &body, now),
        unknown.authorize("POST", ASKED, &body, now),
    ];
    for header in headers {
        let request = server.ask("POST", ASKED).header("authorization", &header);
        let answer = request.header("content-type", "application/json").body(body.clone()).send().await.unwrap();
        problem(answer, 401).await;
    }
    assert_eq!(send(&manager, &server, "POST", ASKED, &body).await.status(), 201);
}

#[tokio::test]
async fn keys_are_rotated_without_a_pause_and_a_revoked_one_is_refused() {
    let server = Server::start().await;
    let first = resource_manager(&server).await;
    let second = rotate(&first, &server).await;
    for client in [&first, &second] {
        assert_eq!(send(client, &server, "POST", ASKED, &wanted()).await.status(), 201, "both are good");
    }
    let revoke = format!("{ASKED}/{}", first.id);
    assert_eq!(send(&second, &server, "DELETE", &revoke, b"").await.status(), 204);
    problem(send(&first, &server, "POST", ASKED, &wanted()).await, 401).await;
    assert_eq!(send(&second, &server, "POST", ASKED, &wanted()).await.status(), 201);

    let admin = server.token(Role::Admin).await;
    let keys = server.ask("GET", ASKED).bearer_auth(&admin).send().await.unwrap();
    let keys: Page<ElasticKeyView> = keys.json().await.unwrap();
    assert_eq!((&keys.items[0].key, &keys.items[0].manager), (&first.id, &first.id));
    assert!(keys.items[0].revoked_at.is_some() && keys.items[0].last_used_at.is_some());
    assert_eq!((&keys.items[1].key, &keys.items[1].manager, keys.items[1].revoked_at), (&second.id, &first.id, None));
    let by_admin = server.ask("DELETE", &format!("{ASKED}/{}", second.id)).bearer_auth(&admin).send().await.unwrap();
    assert_eq!(by_admin.status(), 204);
    problem(send(&second, &server, "POST", ASKED, &wanted()).await, 401).await;
}

#[tokio::test]
async fn a_resource_manager_ends_no_key_of_another_and_has_a_bounded_number() {
    let server = Server::start().await;
    let (one, other) = (resource_manager(&server).await, resource_manager(&server).await);
    problem(send(&one, &server, "DELETE", &format!("{ASKED}/{}", other.id), b"").await, 403).await;
    let operator = server.token(Role::Operator).await;
    let by_operator =
        server.ask("DELETE", &format!("{ASKED}/{}", other.id)).bearer_auth(operator).send().await.unwrap();
    problem(by_operator, 403).await;
    for _ in 0..7 {
        rotate(&one, &server).await;
    }
    let refused = problem(send(&one, &server, "POST", ASKED, &wanted()).await, 409).await;
    assert!(refused.line().contains("revoke"), "{}", refused.line());
}

#[tokio::test]
async fn a_resource_manager_reaches_nothing_else() {
    let server = Server::start().await;
    let manager = resource_manager(&server).await;
    for (method, path) in [
        ("GET", "/v1/tokens"),
        ("GET", "/v1/jobs/j0000000"),
        ("POST", "/v1/workers/broker"),
        ("GET", "/metrics"),
        ("GET", ASKED),
    ] {
        problem(send(&manager, &server, method, path, b"").await, 403).await;
    }
    let worker = server.worker("default").await;
    problem(send(&worker, &server, "POST", ASKED, &wanted()).await, 403).await;
}

#[tokio::test]
async fn a_worker_comes_in_under_the_id_that_was_given_out_and_by_the_last_invitation_only() {
    let server = Server::start().await;
    let auth = server.api.auth();
    let (id, queue) = (auth.mint_worker(), "gpu".parse::<QueueName>().unwrap());
    let first = auth.invite_worker(&id, Duty::Tasks(queue.clone()), "e1").await.unwrap();
    let second = auth.invite_worker(&id, Duty::Tasks(queue.clone()), "e1").await.unwrap();
    let spend = async |token: &str, key: &SigningKey| {
        server.ask("POST", "/v1/workers/enrol").json(&enrol(token, key)).send().await.unwrap()
    };
    let (old, new) = (new_key(), new_key());
    problem(spend(&first.token, &old).await, 401).await;
    let enrolled = spend(&second.token, &old).await;
    assert_eq!(enrolled.json::<serde_json::Value>().await.unwrap()["worker"], id.0);

    let third = auth.invite_worker(&id, Duty::Tasks(queue.clone()), "e1").await.unwrap();
    problem(spend(&third.token, &new).await, 401).await;
    assert_eq!(spend(&third.token, &old).await.status(), 201, "with the key it has it may come again");
    let (old, new) = (SignedClient { id: id.0.clone(), key: old }, SignedClient { id: id.0.clone(), key: new });
    problem(new.send(&server, "POST", "/v1/workers/broker", b"").await, 401).await;
    assert_eq!(old.send(&server, "POST", "/v1/workers/broker", b"").await.status(), 200);

    let last = auth.invite_worker(&id, Duty::Tasks(queue.clone()), "e1").await.unwrap();
    auth.revoke_worker(&id, "e1").await.unwrap();
    problem(spend(&last.token, &new_key()).await, 401).await;
    problem(old.send(&server, "POST", "/v1/workers/broker", b"").await, 401).await;
}

#[tokio::test]
async fn what_a_resource_manager_changes_it_changes_once_also_after_a_restart_and_at_another_manager() {
    let server = Server::start().await;
    let manager = resource_manager(&server).await;
    let other = server.beside().await;
    let (body, again) = (wanted(), "already used");
    let header = manager.authorize("POST", ASKED, &body, server.clock.now());
    let send = async |server: &Server| {
        let request = server.ask("POST", ASKED).header("authorization", &header);
        request.header("content-type", "application/json").body(body.clone()).send().await.unwrap()
    };
    assert_eq!(send(&server).await.status(), 201);
    assert!(problem(send(&other).await, 401).await.line().contains(again));
    assert!(problem(send(&server.beside().await).await, 401).await.line().contains(again));
}

#[tokio::test]
async fn a_key_that_is_added_again_is_the_same_key() {
    let server = Server::start().await;
    let manager = resource_manager(&server).await;
    let body = wanted();
    let add = async || {
        let answer = send(&manager, &server, "POST", ASKED, &body).await;
        assert_eq!(answer.status(), 201);
        answer.json::<ElasticEnrolled>().await.unwrap().key
    };
    let first = add().await;
    for _ in 0..9 {
        assert_eq!(add().await, first);
    }
}
