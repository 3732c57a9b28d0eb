//! What is sent, what is repeated, and what is said when it fails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::{delete, get, post};
use futures_util::StreamExt;
use mutirao_client::{Believe, Client, ClientError, Credentials, JobFilter, LogsFrom, PageArgs, Reach, Trust};
use mutirao_core::auth::{Role, TokenSpec};
use mutirao_core::blobs::LogStream;
use mutirao_core::clock::{Clock, Mono, Sleep};
use mutirao_core::job::{JobSpec, JobState, TaskState};
use mutirao_core::task::{Action, TaskSpec};
use mutirao_core::{Dice, JobKey, Problem, TaskKey, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{client_of, job_view, refuse, serve};

fn noop() -> JobSpec {
    JobSpec::new(TaskSpec::new(Action::Noop {}))
}

#[tokio::test]
async fn a_submit_that_loses_its_answer_is_repeated_under_the_same_key() {
    // A server that reads a whole request, hangs up twice without a word, and answers the third.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = tokio::spawn(async move {
        let mut keys = Vec::new();
        for turn in 0..3 {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                assert_ne!(socket.read_buf(&mut request).await.unwrap(), 0);
            }
            let text = String::from_utf8(request).unwrap();
            keys.push(text.lines().find_map(|l| l.strip_prefix("idempotency-key: ")).unwrap().to_owned());
            if turn == 2 {
                let body = job_view("ok").to_string();
                let head = format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n", body.len());
                socket.write_all((head + &body).as_bytes()).await.unwrap();
            }
        }
        keys
    });
    let client = Client::new(&url, Credentials::None).unwrap();
    let job = client.submit(&noop()).await.unwrap();
    assert_eq!((job.id, job.state), (JobKey(7), JobState::Ok));
    let keys = seen.await.unwrap();
    assert!(keys[0].len() == 32 && keys.iter().all(|k| *k == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn whoever_wants_to_know_is_told_which_owners_were_not_heard() {
    let routes = Router::new()
        .route("/v1/workers", get(|| async { ([("mutirao-unheard", "3, 12")], axum::Json(Vec::<()>::new())) }))
        .route("/v1/shards", get(|| async { axum::Json(Vec::<()>::new()) }));
    let told = Arc::new(Mutex::new(Vec::new()));
    let keep = told.clone();
    let client = client_of(routes).await.telling_unheard(move |shards| keep.lock().unwrap().push(shards.to_owned()));
    assert!(client.workers().await.unwrap().is_empty() && client.shards().await.unwrap().is_empty());
    assert_eq!(*told.lock().unwrap(), ["3, 12"]);
}

#[tokio::test]
async fn two_submits_have_two_keys() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let kept = keys.clone();
    let routes = Router::new().route(
        "/v1/jobs",
        post(move |headers: HeaderMap| async move {
            kept.lock().unwrap().push(headers["idempotency-key"].clone());
            axum::Json(job_view("ok"))
        }),
    );
    let client = client_of(routes).await;
    client.submit(&noop()).await.unwrap();
    client.submit(&noop()).await.unwrap();
    let keys = keys.lock().unwrap();
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test]
async fn what_makes_a_secret_is_never_asked_twice() {
    let asked = Arc::new(Mutex::new(0));
    let counter = asked.clone();
    let routes = Router::new().route(
        "/v1/tokens",
        post(move || async move {
            *counter.lock().unwrap() += 1;
            refuse(Problem::unavailable("not now"))
        }),
    );
    let spec = TokenSpec { name: "ci".into(), role: Role::Operator, expires_in: None };
    let error = client_of(routes).await.create_token(&spec).await.unwrap_err();
    assert_eq!((error.status(), *asked.lock().unwrap()), (Some(503), 1));
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    let asked = Arc::new(Mutex::new(0));
    let counter = asked.clone();
    let routes = Router::new().route(
        "/v1/jobs/{id}",
        get(move || async move {
            let mut asked = counter.lock().unwrap();
            *asked += 1;
            if *asked < 3 {
                refuse(Problem::unavailable("starting"))
            } else {
                axum::response::IntoResponse::into_response(axum::Json(job_view("ok")))
            }
        }),
    );
    assert!(client_of(routes).await.job(JobKey(7)).await.is_ok());
    assert_eq!(*asked.lock().unwrap(), 3);
}

/// A clock that says how long was slept, without sleeping.
struct Hurried(Mutex<Duration>);

impl Clock for Hurried {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
    fn monotonic(&self) -> Mono {
        Mono(*self.0.lock().unwrap())
    }
    fn sleep(&self, for_: Duration) -> Sleep<'_> {
        *self.0.lock().unwrap() += for_;
        Box::pin(async {})
    }
}

#[tokio::test]
async fn a_server_that_is_asked_too_often_is_left_alone_for_as_long_as_it_says_and_not_for_ever() {
    let asked = Arc::new(Mutex::new(0));
    let counter = asked.clone();
    // Every other request of the logs is one too many; the list of workers has always been asked for too often.
    let routes = Router::new()
        .route(
            "/v1/jobs/{id}/tasks/{index}/logs",
            get(move || async move {
                let mut asked = counter.lock().unwrap();
                *asked += 1;
                if *asked % 2 == 1 {
                    refuse(Problem::busy("too many requests", 3))
                } else {
                    axum::response::IntoResponse::into_response("hi")
                }
            }),
        )
        .route("/v1/workers", get(|| async { refuse(Problem::busy("too many requests", 7)) }));
    let clock = Arc::new(Hurried(Mutex::default()));
    let url = serve(routes).await;
    let trust = Trust::for_url(&url, &Believe::default()).unwrap();
    let dice = Arc::new(Dice::seeded(1));
    let client = Client::with_clock(&url, Credentials::None, &trust, clock.clone(), dice).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = told.clone();
    let client = client.telling_waits(move |why, wait| telling.lock().unwrap().push((why.status(), wait)));

    let from = LogsFrom { stream: LogStream::Stdout, offset: 0 };
    let chunks = client.logs(TaskKey { job: JobKey(7), index: 1 }, from, Reach::SoFar).await.unwrap();
    let chunks: Vec<_> = chunks.collect().await;
    assert_eq!((&chunks[0].as_ref().unwrap()[..], clock.monotonic()), (&b"hi"[..], Mono(Duration::from_secs(3))));

    let error = client.workers().await.unwrap_err();
    let waited = clock.monotonic().0 - Duration::from_secs(3);
    assert_eq!(error.status(), Some(429));
    assert!((Duration::from_secs(14)..=Duration::from_secs(30)).contains(&waited), "{waited:?}");
    let told = told.lock().unwrap();
    assert!(told.len() >= 2 && told.iter().all(|told| *told == (Some(429), Duration::from_secs(7))), "{told:?}");
}

#[tokio::test]
async fn an_address_nobody_listens_on_is_one_line_with_a_remedy() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = Client::new(&format!("http://{free}"), Credentials::None).unwrap();
    let error = client.job(JobKey(1)).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
    let line = error.to_string();
    assert_eq!(
        line,
        format!("nothing answers at http://{free} (connection refused); start it with `mutirao up` or set MUTIRAO_URL")
    );
}

#[tokio::test]
async fn the_servers_problem_comes_through_and_a_strangers_answer_does_not_pass_for_one() {
    let routes = Router::new()
        .route("/v1/jobs/{id}", get(|| async { refuse(Problem::not_found("there is no job j0000007")) }))
        .route("/v1/workers", get(|| async { (axum::http::StatusCode::BAD_GATEWAY, "<html>nginx</html>") }))
        .route("/v1/tokens", get(|| async { "<html>hello</html>" }));
    let client = client_of(routes).await;
    let error = client.job(JobKey(7)).await.unwrap_err();
    assert_eq!((error.status(), error.to_string().as_str()), (Some(404), "there is no job j0000007"));
    assert!(matches!(client.workers().await.unwrap_err(), ClientError::Unexpected { .. }));
    assert!(matches!(client.tokens(PageArgs::default()).await.unwrap_err(), ClientError::Unexpected { .. }));
}

#[tokio::test]
async fn filters_pages_and_the_token_arrive_as_given() {
    let routes = Router::new().fallback(|uri: axum::http::Uri, headers: HeaderMap| async move {
        let seen = format!("{uri} {}", headers["authorization"].to_str().unwrap());
        refuse(Problem::conflict(seen))
    });
    let client = client_of(routes).await;
    let page = || PageArgs { limit: Some(5), cursor: Some("a b/é".into()) };
    let filter = JobFilter {
        state: Some(JobState::Failed),
        queue: Some("gpu".parse().unwrap()),
        name: Some("night run".into()),
        label: Some("team=x&y".into()),
    };
    let jobs = client.jobs(filter, page()).await.unwrap_err().to_string();
    assert_eq!(
        jobs,
        "/v1/jobs?state=failed&queue=gpu&name=night%20run&label=team%3Dx%26y&limit=5&cursor=a%20b%2F%C3%A9 Bearer mut_1_secret"
    );
    let tasks = client.tasks(JobKey(7), Some(TaskState::TimedOut), PageArgs::default()).await.unwrap_err().to_string();
    assert_eq!(tasks, format!("/v1/jobs/{}/tasks?state=timed_out Bearer mut_1_secret", JobKey(7)));
}

#[tokio::test]
async fn revoking_needs_no_answer_but_yes() {
    let routes =
        Router::new().route("/v1/tokens/{id}", delete(|_: Bytes| async { axum::http::StatusCode::NO_CONTENT }));
    client_of(routes).await.revoke_token("t1").await.unwrap();
}

#[test]
fn addresses_that_are_none_are_refused_before_anything_is_sent() {
    for url in ["", "127.0.0.1:7070", "ftp://example.org", "http://h/path", "http://h?q"] {
        let error = Client::new(url, Credentials::None).err().expect(url).to_string();
        assert!(error.contains("write it like http://127.0.0.1:7070"), "{error}");
    }
    assert!(matches!(Client::new("http://h", Credentials::Token("a\nb".into())), Err(ClientError::BadToken)));
}

#[tokio::test]
async fn the_servers_clock_and_version_are_told() {
    let routes = Router::new().route("/healthz", get(|| async { axum::Json(serde_json::json!({"version": "0.1.0"})) }));
    let health = client_of(routes).await.health().await.unwrap();
    assert_eq!(health.version.as_deref(), Some("0.1.0"));
    assert!(health.now.is_some_and(|at| at.0 > 1_700_000_000_000));
}
