//! Signed requests: good once, for a minute, for one method, path and body. Blobs are what they are tried on.

use mutirao_core::Timestamp;
use mutirao_core::blobs::BLOB_LEN_HEADER;

use crate::server::{Server, SignedClient, new_key, problem};

fn blob_of(worker: &SignedClient) -> String {
    format!("/v1/blobs/logs/{}/stdout", worker.id)
}

#[tokio::test]
async fn a_signed_request_is_good_once() {
    let server = Server::start().await;
    let worker = server.worker("default").await;
    let path = format!("{}?offset=0", blob_of(&worker));
    let header = worker.authorize("PUT", &path, b"hello", server.clock.now());
    let send = async || server.ask("PUT", &path).header("authorization", &header).body("hello").send().await.unwrap();
    assert_eq!(send().await.status(), 204);
    assert!(problem(send().await, 401).await.line().contains("already used"));
}

#[tokio::test]
async fn an_old_or_early_time_is_refused() {
    let server = Server::start().await;
    let worker = server.worker("default").await;
    let path = blob_of(&worker);
    let now = server.clock.now();
    for (by_ms, status) in [(-62_000, 401), (62_000, 401), (-50_000, 200), (50_000, 200)] {
        let header = worker.authorize("GET", &path, b"", Timestamp(now.0 + by_ms));
        let answer = server.ask("GET", &path).header("authorization", header).send().await.unwrap();
        assert_eq!(answer.status(), status, "{by_ms}");
    }
}

#[tokio::test]
async fn another_key_path_method_or_body_is_refused() {
    let server = Server::start().await;
    let worker = server.worker("default").await;
    let path = format!("{}?offset=0", blob_of(&worker));
    let now = server.clock.now();
    let impostor = SignedClient { id: worker.id.clone(), key: new_key() };
    let unknown = SignedClient { id: "w000000000000".into(), key: worker.key.clone() };
    let headers = [
        impostor.authorize("PUT", &path, b"hello", now),
        unknown.authorize("PUT", &path, b"hello", now),
        worker.authorize("GET", &path, b"hello", now),
        worker.authorize("PUT", &blob_of(&worker), b"hello", now),
        worker.authorize("PUT", &path, b"hullo", now),
        worker.authorize("PUT", &path, b"hello", now).replace("time=", "time=1"),
        worker.authorize("PUT", &path, b"hello", now).replace("sig=", "sig=AAAA"),
    ];
    for header in headers {
        let answer = server.ask("PUT", &path).header("authorization", &header).body("hello").send().await.unwrap();
        problem(answer, 401).await;
    }
    assert_eq!(worker.send(&server, "PUT", &path, b"hello").await.status(), 204);
}

#[tokio::test]
async fn a_blob_grows_is_read_back_and_tells_its_length() {
    let server = Server::start().await;
    let worker = server.worker("default").await;
    let path = blob_of(&worker);
    let missing = worker.send(&server, "GET", &path, b"").await;
    assert!(missing.status() == 200 && !missing.headers().contains_key(BLOB_LEN_HEADER));

    let put =
        async |offset: u64, bytes: &[u8]| worker.send(&server, "PUT", &format!("{path}?offset={offset}"), bytes).await;
    assert_eq!(put(0, b"hello ").await.headers()[BLOB_LEN_HEADER], "6");
    assert_eq!(put(6, b"world").await.headers()[BLOB_LEN_HEADER], "11");
    assert_eq!(put(6, b"world").await.headers()[BLOB_LEN_HEADER], "11");
    let gap = put(20, b"!").await;
    assert_eq!(gap.headers()[BLOB_LEN_HEADER], "11");
    problem(gap, 409).await;

    let part = worker.send(&server, "GET", &format!("{path}?offset=6&limit=3"), b"").await;
    assert_eq!(part.headers()[BLOB_LEN_HEADER], "11");
    assert_eq!(part.text().await.unwrap(), "wor");
    let length_only = worker.send(&server, "GET", &format!("{path}?limit=0"), b"").await;
    assert_eq!(length_only.headers()[BLOB_LEN_HEADER], "11");
    assert_eq!(length_only.text().await.unwrap(), "");
}

#[tokio::test]
async fn blobs_of_others_and_of_nobody_are_closed() {
    let server = Server::start().await;
    let (mine, other) = (server.worker("default").await, server.worker("default").await);
    for path in [blob_of(&other), "/v1/blobs/modules/x".to_owned(), "/v1/blobs/logs".to_owned()] {
        for method in ["PUT", "GET"] {
            problem(mine.send(&server, method, &path, b"").await, 403).await;
        }
    }
    // Sent as it is: a tidy client would resolve the dots itself.
    let path = format!("/v1/blobs/logs/{}/%2e%2e/x", mine.id);
    let answer = mine.send(&server, "PUT", &path, b"x").await;
    assert!(matches!(answer.status().as_u16(), 401 | 403 | 422), "{}", answer.status());
}

#[tokio::test]
async fn a_chunk_has_a_bound() {
    let server = Server::start().await;
    let worker = server.worker("default").await;
    let path = blob_of(&worker);
    assert_eq!(worker.send(&server, "PUT", &path, &vec![7; 1 << 20]).await.status(), 204);
    problem(worker.send(&server, "PUT", &path, &vec![7; (1 << 20) + 1]).await, 413).await;
    problem(worker.send(&server, "PUT", &path, &vec![7; 3 << 20]).await, 413).await;
}
