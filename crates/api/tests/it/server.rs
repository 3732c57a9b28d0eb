//! An API of one's own for each test, on a free port, with a client that can sign.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use mutirao_api::{Api, ApiError, ApiParts, MIGRATIONS, Settings, build};
use mutirao_broker::memory::{Limits, Memory};
use mutirao_core::auth::{Duty, Enrol, Enrolled, Role, SIGNATURE_SCHEME, TokenSpec, signed_bytes};
use mutirao_core::dice::os_random;
use mutirao_core::{Clock, Problem, SystemClock, Timestamp};
use mutirao_store::Sqlite;
use mutirao_store::blobs::FileBlobs;
use reqwest::{Method, RequestBuilder, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::capability::{Mood, capability};

pub struct Server {
    pub api: Arc<Api>,
    pub url: String,
    pub http: reqwest::Client,
    pub clock: Arc<dyn Clock>,
    pub broker: mutirao_broker::Shared,
    pub store: Sqlite,
    pub mood: Mood,
    pub shutdown: CancellationToken,
    pub served: JoinHandle<Result<(), ApiError>>,
    pub data: tempfile::TempDir,
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with(Settings::default(), SystemClock::shared()).await
    }

    pub async fn start_with(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let data = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&data.path().join("store.db"), MIGRATIONS).unwrap();
        Self::over(store, data, settings, clock).await
    }

    /// Another on the same store, which remembers only what is written there.
    pub async fn beside(&self) -> Self {
        let data = tempfile::tempdir().unwrap();
        Self::over(self.store.clone(), data, Settings::default(), self.clock.clone()).await
    }

    async fn over(store: Sqlite, data: tempfile::TempDir, settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let broker: mutirao_broker::Shared = Memory::new(Some(data.path().join("log")), Limits::default());
        let mood = Mood::default();
        let shutdown = CancellationToken::new();
        let api = build(ApiParts {
            ways: Arc::new(mutirao_api::OnlyLink),
            auth: mutirao_api::auth_of(&store.clone().into(), clock.clone()),
            broker: broker.clone(),
            blobs: Arc::new(FileBlobs::open(&data.path().join("blobs")).unwrap()),
            clock: clock.clone(),
            capabilities: vec![capability(mood.clone())],
            settings,
            shutdown: shutdown.clone(),
        })
        .await
        .unwrap();
        let api = Arc::new(api);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = api.clone();
        let served = tokio::spawn(async move { serving.serve(listener).await });
        mutirao_tls::install();
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap();
        Self { api, url, http, clock, broker, store, mood, shutdown, served, data }
    }

    pub fn ask(&self, method: &str, path: &str) -> RequestBuilder {
        self.http.request(Method::from_bytes(method.as_bytes()).unwrap(), format!("{}{path}", self.url))
    }

    pub async fn token(&self, role: Role) -> String {
        let spec = TokenSpec { name: role.as_str().into(), role, expires_in: None };
        self.api.auth().create_token(&spec, "test").await.unwrap().secret
    }

    pub async fn worker(&self, queue: &str) -> SignedClient {
        self.let_in(Duty::Tasks(queue.parse().unwrap())).await
    }

    pub async fn let_in(&self, duty: Duty) -> SignedClient {
        let enrolment = self.api.auth().invite(duty.clone(), "test").await.unwrap();
        let key = new_key();
        let answer = self.ask("POST", "/v1/workers/enrol").json(&enrol(&enrolment.token, &key)).send().await.unwrap();
        assert_eq!(answer.status(), 201);
        let enrolled: Enrolled = answer.json().await.unwrap();
        assert_eq!((enrolled.queue.as_str(), enrolled.streams), (duty.queue(), duty.is_streams()));
        SignedClient { id: enrolled.worker.0, key }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.served.abort();
    }
}

pub fn new_key() -> SigningKey {
    let mut secret = [0; 32];
    os_random(&mut secret);
    SigningKey::from_bytes(&secret)
}

pub fn enrol(token: &str, key: &SigningKey) -> Enrol {
    let public_key = STANDARD.encode(key.verifying_key().as_bytes());
    Enrol { token: token.into(), public_key, name: "a test's worker".into() }
}

/// An enrolled worker's key, and the signing of requests with it.
#[derive(Clone)]
pub struct SignedClient {
    pub id: String,
    pub key: SigningKey,
}

impl SignedClient {
    pub fn authorize(&self, method: &str, path: &str, body: &[u8], at: Timestamp) -> String {
        let mut nonce = [0u8; 8];
        os_random(&mut nonce);
        let nonce = format!("{:016x}", u64::from_be_bytes(nonce));
        let signature = self.key.sign(&signed_bytes(method, path, body, at, &nonce));
        let sig = STANDARD.encode(signature.to_bytes());
        format!("{SIGNATURE_SCHEME} key={},time={},nonce={nonce},sig={sig}", self.id, at.0)
    }

    pub async fn send(&self, server: &Server, method: &str, path: &str, body: &[u8]) -> Response {
        let header = self.authorize(method, path, body, server.clock.now());
        server.ask(method, path).header("authorization", header).body(body.to_vec()).send().await.unwrap()
    }
}

/// The answer is a problem with this status; everything a problem must have is there.
pub async fn problem(answer: Response, status: u16) -> Problem {
    let (got, kind) = (answer.status().as_u16(), answer.headers().get("content-type").cloned());
    let retry = answer.headers().get("retry-after").cloned();
    assert!(answer.headers().contains_key("x-request-id"));
    let text = answer.text().await.unwrap();
    assert_eq!(got, status, "{text}");
    assert_eq!(kind.unwrap(), "application/problem+json", "{text}");
    let problem: Problem = serde_json::from_str(&text).unwrap();
    assert_eq!(problem.status, status);
    assert!(!problem.kind.is_empty() && !problem.title.is_empty());
    assert_eq!(retry.map(|s| s.to_str().unwrap().parse::<u64>().unwrap()), problem.retry_after_s);
    problem
}
