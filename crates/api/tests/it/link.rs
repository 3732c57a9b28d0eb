//! The link of an enrolled worker: open to its own queue and its own name, closed to the rest.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutirao_broker::link::Link;
use mutirao_broker::{Broker, BrokerError, Heard};
use mutirao_core::auth::{Duty, Role};
use mutirao_core::envelope::{Reports, seal};
use mutirao_core::{Dice, SessionId, WorkerId};

use crate::server::{Server, SignedClient, problem};

fn reports_of(worker: &str) -> Bytes {
    seal(&Reports::new(SessionId("s".into()), WorkerId(worker.into())))
}

async fn link_of(server: &Server, worker: &SignedClient) -> Arc<Link> {
    let url = format!("{}/v1/link", server.url.replace("http", "ws"));
    let (signer, clock) = (worker.clone(), server.clock.clone());
    let authorize: mutirao_broker::link::Authorize =
        Arc::new(move || signer.authorize("GET", "/v1/link", b"", clock.now()));
    let link = Link::connect(url, authorize, server.clock.clone(), Arc::new(Dice::seeded(1)));
    link.connected().await;
    link
}

fn refused<T>(answer: Result<T, BrokerError>) -> bool {
    matches!(answer, Err(BrokerError::Refused { .. }))
}

#[tokio::test]
async fn a_worker_takes_from_its_own_queue_and_from_no_other() {
    let server = Server::start().await;
    let worker = server.worker("gpu").await;
    server.broker.publish("tasks.gpu", vec!["a parcel".into()]).await.unwrap();
    let link = link_of(&server, &worker).await;
    let mut consumer = link.consume("tasks.gpu", 1).await.unwrap();
    assert_eq!(consumer.next().await.unwrap()[0].body, "a parcel");
    assert!(link.subscribe("control.gpu").await.is_ok());

    assert!(refused(link.consume("tasks.default", 1).await));
    assert!(refused(link.consume("results.jobs.0", 1).await));
    assert!(refused(link.subscribe("control.default").await));
    assert!(refused(link.publish("tasks.gpu", vec![reports_of(&worker.id)]).await));
    assert!(refused(link.announce("control.gpu", "stop".into()).await));
    assert!(refused(link.append("log", vec!["x".into()]).await));
    assert!(refused(link.read("log", 0, 1).await));
}

#[tokio::test]
async fn a_worker_reports_in_its_own_name_only() {
    let server = Server::start().await;
    let worker = server.worker("default").await;
    let link = link_of(&server, &worker).await;
    link.publish("results.jobs.0", vec![reports_of(&worker.id)]).await.unwrap();
    assert!(refused(link.publish("results.jobs.0", vec![reports_of("another")]).await));
    assert!(refused(link.publish("results.jobs.0", vec!["rubbish".into()]).await));
    assert!(refused(link.publish("results.jobs.0", vec![reports_of(&worker.id), reports_of("another")]).await));
    assert_eq!(server.broker.counts("results.jobs.0").await.unwrap().ready, 1);
}

#[tokio::test]
async fn a_host_of_streams_has_their_logs_and_topics_and_nothing_else() {
    let server = Server::start().await;
    let link = link_of(&server, &server.let_in(Duty::Streams).await).await;
    assert_eq!(link.append("streams.s1.stage.0", vec!["a".into()]).await, Ok(0));
    assert_eq!(link.add("streams.s1.stage.0", vec!["b".into()]).await, Ok(()));
    assert_eq!(link.extent("streams.s1.stage.0").await, Ok((0, 2)));
    assert_eq!(link.read("streams.s1.stage.0", 1, 9).await.unwrap()[0].body, "b");
    let mut heard = link.subscribe("streams.s1.progress").await.unwrap();
    link.announce("streams.s1.progress", "here".into()).await.unwrap();
    assert_eq!(heard.next().await, Ok(Heard::Message("here".into())));

    assert!(refused(link.forget("streams.s1.stage.0").await) && refused(link.trim("streams.s1.stage.0", 1).await));
    for other in ["streams", "streamsx.a", "readings.0", "control.default"] {
        assert!(
            refused(link.append(other, vec!["x".into()]).await) && refused(link.read(other, 0, 1).await),
            "{other}"
        );
        assert!(refused(link.announce(other, "x".into()).await) && refused(link.subscribe(other).await), "{other}");
    }
    for queue in ["tasks.default", "tasks.streams", "streams.s1.stage.0", "results.jobs.0"] {
        assert!(
            refused(link.consume(queue, 1).await) && refused(link.publish(queue, vec!["x".into()]).await),
            "{queue}"
        );
        assert!(refused(link.counts(queue).await) && refused(link.delete(queue).await), "{queue}");
    }
}

#[tokio::test]
async fn a_link_is_for_workers_and_speaks_websocket() {
    let server = Server::start().await;
    let admin = server.token(Role::Admin).await;
    problem(server.ask("GET", "/v1/link").bearer_auth(admin).send().await.unwrap(), 403).await;
    let worker = server.worker("default").await;
    problem(worker.send(&server, "GET", "/v1/link", b"").await, 426).await;
}

#[tokio::test]
async fn a_shutdown_ends_links() {
    let mut server = Server::start().await;
    let worker = server.worker("default").await;
    let link = link_of(&server, &worker).await;
    server.broker.publish("tasks.default", vec!["a parcel".into()]).await.unwrap();
    let mut consumer = link.consume("tasks.default", 1).await.unwrap();
    consumer.next().await.unwrap();
    server.shutdown.cancel();
    (&mut server.served).await.unwrap().unwrap();
    assert_eq!(server.broker.counts("tasks.default").await.unwrap().ready, 1, "what it held went back");
}

#[tokio::test]
async fn a_revoked_worker_loses_its_link_and_gets_no_other() {
    let server = Server::start().await;
    let (admin, worker) = (server.token(Role::Admin).await, server.worker("default").await);
    let link = link_of(&server, &worker).await;
    server.broker.publish("tasks.default", vec!["a parcel".into()]).await.unwrap();
    let mut consumer = link.consume("tasks.default", 1).await.unwrap();
    consumer.next().await.unwrap();
    let path = format!("/v1/workers/keys/{}", worker.id);
    let keys = server.ask("GET", "/v1/workers/keys").bearer_auth(&admin).send().await.unwrap();
    assert!(keys.text().await.unwrap().contains(&worker.id));
    assert_eq!(server.ask("DELETE", &path).bearer_auth(&admin).send().await.unwrap().status(), 204);
    problem(worker.send(&server, "GET", "/v1/link", b"").await, 401).await;
    while server.broker.counts("tasks.default").await.unwrap().ready == 0 {
        server.clock.sleep(Duration::from_millis(50)).await;
    }
    problem(server.ask("DELETE", "/v1/workers/keys/nobody").bearer_auth(&admin).send().await.unwrap(), 404).await;
}
