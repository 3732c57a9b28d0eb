//! Answers that come bit by bit.

use axum::Router;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::routing::get;
use futures_util::{StreamExt, stream};
use mutirao_client::{Client, Credentials, LogsFrom, Reach};
use mutirao_core::blobs::LogStream;
use mutirao_core::job::JobState;
use mutirao_core::{JobKey, TaskKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{client_of, job_view};

#[tokio::test]
async fn a_job_is_seen_each_time_it_changes_and_the_stream_ends_with_it() {
    let events = format!(
        ": hello\n\nevent: job\ndata: {}\n\nevent: other\ndata: x\n\nevent: job\ndata: {}\n\n",
        job_view("running"),
        job_view("ok")
    );
    let routes = Router::new().route(
        "/v1/jobs/{id}/events",
        get(move || async move {
            let bits: Vec<Result<Vec<u8>, std::io::Error>> =
                events.as_bytes().chunks(100).map(|c| Ok(c.to_vec())).collect();
            Body::from_stream(stream::iter(bits))
        }),
    );
    let views: Vec<_> = client_of(routes).await.job_events(JobKey(7)).await.unwrap().collect().await;
    let states: Vec<JobState> = views.into_iter().map(|view| view.unwrap().state).collect();
    assert_eq!(states, [JobState::Running, JobState::Ok]);
}

#[tokio::test]
async fn a_stream_that_is_cut_ends_in_an_error_not_in_silence() {
    // A chunked answer whose end never comes.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        assert_ne!(socket.read(&mut request).await.unwrap(), 0);
        let event = format!("event: job\ndata: {}\n\n", job_view("running"));
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        socket.write_all(format!("{head}{:x}\r\n{event}\r\n", event.len()).as_bytes()).await.unwrap();
    });
    let client = Client::new(&url, Credentials::None).unwrap();
    let views: Vec<_> = client.job_events(JobKey(7)).await.unwrap().collect().await;
    assert!(views[0].is_ok() && views.last().is_some_and(Result::is_err), "{views:?}");
}

#[tokio::test]
async fn output_is_passed_on_byte_for_byte_from_the_offset_asked_for() {
    let routes = Router::new().route(
        "/v1/jobs/{id}/tasks/{index}/logs",
        get(|RawQuery(query): RawQuery| async move {
            let mut bytes = b"\xff\x00".to_vec();
            bytes.extend(query.unwrap_or_default().into_bytes());
            bytes
        }),
    );
    let client = client_of(routes).await;
    let key = TaskKey { job: JobKey(7), index: 3 };
    let mut whole = Vec::new();
    for reach in [Reach::SoFar, Reach::ToTheEnd] {
        let from = LogsFrom { stream: LogStream::Stderr, offset: 9 };
        let mut chunks = client.logs(key, from, reach).await.unwrap();
        while let Some(chunk) = chunks.next().await {
            whole.extend_from_slice(&chunk.unwrap());
        }
    }
    assert_eq!(whole, b"\xff\x00stream=stderr&offset=9\xff\x00stream=stderr&offset=9&follow=true");
}
