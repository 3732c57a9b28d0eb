//! Blobs over HTTP, signed.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::{Engine, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, Verifier, VerifyingKey};
use mutirao_client::{Client, Credentials, HttpBlobs, Signer, WorkerKey};
use mutirao_core::auth::signed_bytes;
use mutirao_core::blobs::{BLOB_LEN_HEADER, BlobError, Blobs};
use mutirao_core::{Problem, SystemClock, Timestamp, WorkerId};

use crate::server::{refuse, serve};

type Held = Arc<Mutex<Vec<u8>>>;

#[derive(serde::Deserialize)]
struct Args {
    offset: Option<usize>,
    limit: Option<usize>,
}

struct Guard {
    public: VerifyingKey,
    held: Held,
}

impl Guard {
    fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) {
        let header = headers["authorization"].to_str().unwrap();
        let fields = header.strip_prefix("Mutirao-Ed25519 ").unwrap();
        let field = |name: &str| fields.split(',').find_map(|f| f.strip_prefix(name)?.strip_prefix('=')).unwrap();
        let signature = Signature::from_slice(&STANDARD.decode(field("sig")).unwrap()).unwrap();
        let path = uri.path_and_query().unwrap().as_str();
        let time = Timestamp(field("time").parse().unwrap());
        let bytes = signed_bytes(method.as_str(), path, body, time, field("nonce"));
        self.public.verify(&bytes, &signature).expect("what arrives is what was signed");
    }
}

async fn answer(
    State(guard): State<Arc<Guard>>,
    method: Method,
    uri: Uri,
    Query(args): Query<Args>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    guard.check(&method, &uri, &headers, &body);
    let mut held = guard.held.lock().unwrap();
    let offset = args.offset.unwrap_or(0);
    if method == Method::PUT {
        if offset > held.len() {
            return refuse(Problem::conflict("a hole"));
        }
        held.truncate(offset);
        held.extend_from_slice(&body);
        return (StatusCode::NO_CONTENT, [(BLOB_LEN_HEADER, held.len().to_string())]).into_response();
    }
    let from = offset.min(held.len());
    let to = (from + args.limit.unwrap_or(usize::MAX - from)).min(held.len());
    ([(BLOB_LEN_HEADER, held.len().to_string())], held[from..to].to_vec()).into_response()
}

async fn blobs() -> (HttpBlobs, Held) {
    let (key, held) = (WorkerKey::generate(), Held::default());
    let public: [u8; 32] = STANDARD.decode(key.public_base64()).unwrap().try_into().unwrap();
    let guard = Arc::new(Guard { public: VerifyingKey::from_bytes(&public).unwrap(), held: held.clone() });
    let routes = Router::new()
        .route("/v1/blobs/{*key}", get(answer).put(answer))
        .layer(axum::extract::DefaultBodyLimit::max(1 << 20))
        .with_state(guard);
    let signer = Signer::new(WorkerId("w1".into()), key, SystemClock::shared());
    (HttpBlobs::new(Client::new(&serve(routes).await, Credentials::Key(signer)).unwrap()), held)
}

#[tokio::test]
async fn what_is_appended_is_read_back_also_when_it_needs_several_requests() {
    let (blobs, held) = blobs().await;
    let large: Vec<u8> = (0..2_500_000u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(blobs.append("logs/j1/1/1-1/stdout", 0, large.clone().into()).await, Ok(2_500_000));
    assert!(*held.lock().unwrap() == large);
    assert_eq!(blobs.read("logs/j1/1/1-1/stdout", 1_000, 5).await.unwrap(), large[1_000..1_005]);
    assert_eq!(blobs.len("logs/j1/1/1-1/stdout").await, Ok(Some(2_500_000)));
}

#[tokio::test]
async fn a_hole_is_refused_with_the_place_to_go_on_from() {
    let (blobs, _) = blobs().await;
    blobs.append("a/b", 0, "12345".into()).await.unwrap();
    let refused = blobs.append("a/b", 9, "x".into()).await;
    assert_eq!(refused, Err(BlobError::Gap { key: "a/b".into(), len: 5 }));
}

#[tokio::test]
async fn a_key_that_climbs_is_refused_before_it_is_sent() {
    let (blobs, _) = blobs().await;
    for key in ["../etc", "a//b", "a/../b", "a b", "", "a/"] {
        assert!(matches!(blobs.append(key, 0, "x".into()).await, Err(BlobError::BadKey { .. })), "{key}");
    }
}

#[tokio::test]
async fn a_manager_that_is_away_is_told_apart_from_one_that_refuses() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let blobs = HttpBlobs::new(Client::new(&format!("http://{free}"), Credentials::None).unwrap());
    assert!(matches!(blobs.len("a/b").await, Err(BlobError::Unreachable(_))));
}
