//! A node that has a key and comes in by AMQP, as a user of its own: it says so with each word, speaks for itself only, and is out
//! once its device is removed, whatever RabbitMQ still believes.

use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use mutirao_broker::rabbit::management::Management;
use mutirao_core::node::{AmqpPlace, NodePassword};
use mutirao_nodes::NodeId;
use mutirao_nodes::device::new_password;
use mutirao_nodes::errand::{End, NotSent, Reach};
use mutirao_nodes::keys;
use mutirao_nodes::registry::Proof;
use mutirao_testkit::services::{AMQP_VARIABLE, Service, shared};
use mutirao_testkit::wait::eventually;
use mutirao_tls::Trust;

use crate::house::{LONG, signed_as, tester};
use crate::rabbit::{Yard, next, result};

const NAMESPACE: &str = "mutirao";
const USER: &str = "mutirao.node.gate-7";

/// Lets a node give its key, and gives it a user.
async fn let_in(yard: &Yard, node: &NodeId, key: &SigningKey) -> (AmqpPlace, String) {
    yard.enrol(node, key).await;
    let password = new_password();
    let hash = keys::written_for_rabbit(&password);
    let said: NodePassword = signed_as(key, node, 1, &password, Some(hash));
    let place = yard.board.change_password(node, &said).await.unwrap().amqp.unwrap();
    (place, password)
}

/// As the node, on a channel that confirms nothing.
async fn say(channel: &Channel, exchange: &str, key: &str, user: Option<&str>, text: String) {
    let properties =
        user.map_or_else(BasicProperties::default, |user| BasicProperties::default().with_user_id(user.into()));
    let options = BasicPublishOptions::default();
    channel.basic_publish(exchange.into(), key.into(), options, text.as_bytes(), properties).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_was_made_for_a_node_speaks_for_that_node_only_says_so_and_is_out_with_its_device() {
    if shared(AMQP_VARIABLE).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let service = Service::rabbitmq(folder.path()).unwrap();
    mutirao_tls::install();
    let management = Management::new(service.url(), service.management_url().unwrap(), "mutirao.", &Trust::nobody());
    let yard = Yard::managed(service.url(), NAMESPACE, Arc::new(management.unwrap())).await;
    let (node, key): (NodeId, _) = ("gate-7".parse().unwrap(), SigningKey::from_bytes(&[7; 32]));
    eventually("it is attached", LONG, async || yard.board.answer(r#"{"id":"first"}"#.into(), None).await.is_ok())
        .await;
    let (place, password) = let_in(&yard, &node, &key).await;
    let exchange = place.exchange.clone().unwrap();
    assert_eq!((place.user.as_str(), exchange.as_str()), (USER, "mutirao.nodes.vouched"));
    let own_url = service.url().replace("guest:guest", &format!("{USER}:{password}"));
    let own = Connection::connect(&own_url, ConnectionProperties::default()).await.unwrap();
    let open = async || own.create_channel().await.unwrap();
    let (registers, results) = (yard.name("nodes.register"), yard.name("task.handler.saida"));
    let registration = |node: &str| yard.registration(node, "EDGE", "open");
    let kept = async |word: &str| yard.board.rubbish(100).await.unwrap().iter().any(|one| one.reason.contains(word));
    let its_proof = || yard.board.node(&node).map(|info| info.record.proof);

    // Where everybody speaks it may not: that channel is ended, and nothing arrives.
    let channel = open().await;
    say(&channel, "amq.topic", &registers, None, registration("gate-7")).await;
    eventually("it is not let near the others' exchange", LONG, async || !channel.status().connected()).await;
    // Nor as somebody else, which RabbitMQ itself refuses.
    let channel = open().await;
    say(&channel, &exchange, &registers, Some("guest"), registration("gate-7")).await;
    eventually("it cannot say that it is another", LONG, async || !channel.status().connected()).await;
    assert_eq!(its_proof(), None);

    let channel = open().await;
    say(&channel, &exchange, &registers, None, registration("gate-7")).await;
    eventually("it has to say who it is", LONG, async || kept("user_id is missing").await).await;
    say(&channel, &exchange, &registers, Some(USER), registration("other")).await;
    eventually("it is no other", LONG, async || kept("belongs to another").await).await;
    assert!(yard.board.nodes().is_empty());
    // Nor is another it, though it was not there yet.
    yard.publish("amq.topic", &registers, registration("gate-7")).await;
    let stolen =
        async || yard.board.rubbish(100).await.unwrap().iter().filter(|one| one.reason.contains("belongs to")).count();
    eventually("nobody else has its id", LONG, async || stolen().await == 2).await;
    say(&channel, &exchange, &registers, Some(USER), registration("gate-7")).await;
    eventually("it is registered", LONG, async || its_proof() == Some(Proof::User("gate-7".into()))).await;

    yard.board.send(yard.errand("r1", "open")).await.unwrap();
    let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
    let queue = yard.name("node.unicast.gate-7");
    let mut inbox = open().await.basic_consume(queue.as_str().into(), "".into(), options, none).await.unwrap();
    assert_eq!(next(&mut inbox).await["requestID"], "r1");
    yard.publish("amq.topic", &results, result("r1")).await;
    eventually("nobody answers for it", LONG, async || kept("another node was given").await).await;
    assert!(yard.desk.returned.lock().is_empty());
    say(&channel, &exchange, &results, Some(USER), result("r1")).await;
    eventually("it answers", LONG, async || yard.desk.returned.lock().len() == 1).await;
    assert_eq!(yard.desk.returned.lock()[0].end, End::Ok("{\"ok\":1}".into()));

    // What is under way when it is removed is not its to answer any more.
    yard.board.send(yard.errand("r2", "open")).await.unwrap();
    yard.board.remove_device("gate-7", &tester().id).await.unwrap();
    assert!(matches!(yard.board.send(yard.errand("r3", "open")).await, Err(NotSent::Nobody(_))));
    assert_eq!(yard.desk.lost.lock().as_slice(), std::slice::from_ref(&node));
    eventually("its connection is ended", LONG, async || !own.status().connected()).await;
    assert!(!service.rabbitmqctl(&["list_users"]).unwrap().contains(USER));
    assert!(!service.rabbitmqctl(&["list_queues", "name"]).unwrap().contains(&queue));
    assert!(Connection::connect(&own_url, ConnectionProperties::default()).await.is_err());

    // As if RabbitMQ had been away when it was removed: it comes in, and nobody listens; then its user goes after all.
    for args in [&["add_user", USER, &password][..], &["set_permissions", USER, ".*", ".*", ".*"]] {
        service.rabbitmqctl(args).unwrap();
    }
    let back = Connection::connect(&own_url, ConnectionProperties::default()).await.unwrap();
    let channel = back.create_channel().await.unwrap();
    say(&channel, &exchange, &registers, Some(USER), registration("gate-7")).await;
    say(&channel, &exchange, &results, Some(USER), result("r2")).await;
    let refused =
        async || yard.board.rubbish(100).await.unwrap().iter().filter(|one| one.reason.contains("was taken")).count();
    eventually("both are refused", LONG, async || refused().await == 2).await;
    assert!(its_proof().is_none() && yard.desk.returned.lock().len() == 1);
    let within = Duration::from_secs(50);
    eventually("its user goes", within, async || !service.rabbitmqctl(&["list_users"]).unwrap().contains(USER)).await;
    yard.close().await;
}
