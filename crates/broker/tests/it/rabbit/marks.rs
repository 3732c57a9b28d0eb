//! A vhost is one installation's: the mark, made and compared by the server itself.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::ExchangeDeleteOptions;
use lapin::{Connection, ConnectionProperties};
use mutirao_broker::rabbit::{Config, Holder};
use mutirao_broker::suite::{Harness, bodies, soon};
use mutirao_broker::{Broker, BrokerError, Rabbit};
use mutirao_core::{Clock, InstallationId, SystemClock};
use mutirao_testkit::services;
use mutirao_testkit::wait::eventually;

use super::{OnRabbit, config};

/// A connection comes back within seconds, on a busy machine somewhat later.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The server behind the proxy, for those who are not cut.
fn direct() -> String {
    services::shared(services::AMQP_VARIABLE).expect("a server")
}

async fn connect_as(url: &str, prefix: &str, id: &InstallationId) -> Result<Arc<Rabbit>, BrokerError> {
    Rabbit::connect(Config { installation: Some(id.clone()), ..config(url, prefix) }).await
}

async fn holder(prefix: &str, id: &InstallationId) -> Holder {
    Rabbit::holder(config(&direct(), prefix), id).await.expect("the server answers")
}

/// As a person does when an installation is gone for good.
async fn delete_mark(prefix: &str) {
    let connection = Connection::connect(&direct(), ConnectionProperties::default()).await.expect("connect");
    let channel = connection.create_channel().await.expect("a channel");
    let mark = format!("{prefix}installation");
    channel.exchange_delete(mark.into(), ExchangeDeleteOptions::default()).await.expect("deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_installation_has_the_vhost_and_another_is_told_whose_it_is() {
    let Some(OnRabbit { url, prefix, .. }) = &OnRabbit::shared().await else { return };
    let (ours, theirs) = (InstallationId::random(), InstallationId::random());
    assert_eq!(holder(prefix, &ours).await, Holder::Nobody);
    assert_eq!(holder(prefix, &theirs).await, Holder::Nobody, "looking makes nothing");
    let first = connect_as(url, prefix, &ours).await.unwrap();
    assert_eq!(holder(prefix, &ours).await, Holder::Us);
    let Holder::Another(said) = holder(prefix, &theirs).await else { panic!("let in") };
    assert!(said.to_string().contains(&format!("another installation ({ours})")), "{said}");
    assert_eq!(connect_as(&direct(), prefix, &theirs).await.err(), Some(said));

    connect_as(url, prefix, &ours).await.unwrap().publish("q", bodies(0..1)).await.unwrap();
    first.close();
    assert!(connect_as(url, prefix, &theirs).await.is_err(), "it stays theirs when they are stopped");
    delete_mark(prefix).await;
    connect_as(url, prefix, &theirs).await.unwrap();
    assert!(matches!(holder(prefix, &ours).await, Holder::Another(_)));
    delete_mark(prefix).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_is_gone_is_made_anew_and_the_vhost_of_another_is_left_alone() {
    let Some(server) = OnRabbit::shared().await else { return };
    let OnRabbit { url, prefix, .. } = &server;
    let (ours, theirs) = (InstallationId::random(), InstallationId::random());
    let rabbit = connect_as(url, prefix, &ours).await.unwrap();
    rabbit.publish("q", bodies(0..1)).await.unwrap();

    server.cut().await;
    delete_mark(prefix).await;
    server.heal().await;
    eventually("the mark to be made again", WAIT_MAX, async || holder(prefix, &ours).await == Holder::Us).await;
    soon("a publish", rabbit.publish("q", bodies(1..2))).await.unwrap();

    delete_mark(prefix).await;
    eventually("a mark deleted by mistake to be back", WAIT_MAX, async || holder(prefix, &ours).await == Holder::Us)
        .await;

    let other = loop {
        delete_mark(prefix).await;
        // Ours may have been quicker.
        if let Ok(other) = connect_as(&direct(), prefix, &theirs).await {
            break other;
        }
    };
    eventually("it to say whose the vhost is", WAIT_MAX, async || {
        rabbit.reachable().is_err_and(|error| error.to_string().contains("another installation"))
    })
    .await;
    let before = other.counts("q").await.unwrap().ready;
    let publishing = tokio::spawn({
        let rabbit = rabbit.clone();
        async move { rabbit.publish("q", bodies(2..3)).await }
    });
    // Some more tries of it.
    SystemClock.sleep(Duration::from_secs(6)).await;
    assert_eq!(other.counts("q").await.unwrap().ready, before, "it has published there");
    assert!(!publishing.is_finished(), "what it has to say waits");

    other.close();
    delete_mark(prefix).await;
    soon("what waited", publishing).await.unwrap().unwrap();
    assert_eq!(holder(prefix, &ours).await, Holder::Us);
    delete_mark(prefix).await;
}
