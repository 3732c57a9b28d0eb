//! A user that may not do everything: which permission is lacking is told, with the command that grants it.

use futures_util::StreamExt;
use mutirao_broker::rabbit::Extent;
use mutirao_broker::suite::{bodies, soon};
use mutirao_broker::{Broker, BrokerError, Rabbit};
use mutirao_core::{Clock, SystemClock};
use mutirao_testkit::{http, services};

use super::{config, connect, random_prefix};

/// A user of the shared server, for this test alone.
struct User {
    name: String,
    prefix: String,
    url: String,
    management: String,
}

#[derive(Clone, Copy)]
struct May<'a> {
    configure: &'a str,
    write: &'a str,
    read: &'a str,
}

impl User {
    /// `None` when the test run has no server.
    fn new() -> Option<Self> {
        let url = services::shared(services::AMQP_VARIABLE)?;
        let management = services::shared(services::AMQP_MANAGEMENT_VARIABLE)?;
        let prefix = random_prefix();
        let name = format!("u-{}", prefix.trim_end_matches('.'));
        let url = url.replacen("guest:guest", &format!("{name}:pw"), 1);
        let user = Self { name, prefix, url, management };
        user.ask(&format!("PUT /api/users/{}", user.name), r#"{"password":"pw","tags":""}"#);
        Some(user)
    }

    /// Their names.
    fn queues(&self) -> String {
        self.ask("GET /api/queues/%2f?columns=name", "")
    }

    fn ask(&self, line: &str, json: &str) -> String {
        let address = self.management.trim_start_matches("http://").parse().unwrap();
        // guest:guest
        let headers = [("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="), ("Content-Type", "application/json")];
        let answer = http::request(address, line, &headers, json.as_bytes()).unwrap();
        assert!((200..300).contains(&answer.status), "{line}: {}", answer.text());
        answer.text()
    }

    fn permit(&self, may: May<'_>) {
        let json = serde_json::json!({ "configure": may.configure, "write": may.write, "read": may.read });
        self.ask(&format!("PUT /api/permissions/%2f/{}", self.name), &json.to_string());
    }

    async fn probed(&self) -> String {
        match Rabbit::probe(config(&self.url, &self.prefix), Extent::Everything).await {
            Ok(()) => "well".into(),
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.ask(&format!("DELETE /api/users/{}", self.name), "");
    }
}

#[tokio::test]
async fn every_lacking_permission_is_found_by_trying_and_told_with_the_command_that_grants_it() {
    let Some(user) = User::new() else { return };
    let ours = format!("^{}.*", user.prefix.replace('.', r"\."));
    let write = format!(r"^({}.*|amq\.default)$", user.prefix.replace('.', r"\."));
    let all = May { configure: &ours, write: &write, read: &ours };
    user.permit(all);
    assert_eq!(user.probed().await, "well");
    for (may, lack) in [
        (May { write: &ours, ..all }, "no write permission on exchange 'amq.default'"),
        (May { read: "^$", ..all }, "no read permission on queue"),
        (May { configure: "^$", ..all }, "no configure permission on queue"),
        (May { write: r"^amq\.default$", ..all }, "no write permission on exchange"),
    ] {
        user.permit(may);
        let said = user.probed().await;
        assert!(said.contains(lack), "{lack}: {said}");
        let prefix = user.prefix.replace('.', r"\.");
        let (writes, reads) = (format!(r"^({prefix}.*|amq\.(default|topic))$"), format!(r"^({prefix}.*|amq\.topic)$"));
        let command = format!("rabbitmqctl set_permissions -p / {} '{ours}' '{writes}' '{reads}'", user.name);
        assert_eq!(said.matches(&command).count(), 1, "{command}: {said}");
    }
}

#[tokio::test]
async fn what_nodes_need_beside_it_is_tried_by_itself() {
    let Some(user) = User::new() else { return };
    let prefix = user.prefix.replace('.', r"\.");
    let (ours, write) = (format!("^{prefix}.*"), format!(r"^({prefix}.*|amq\.(default|topic))$"));
    let read = format!(r"^({prefix}.*|amq\.topic)$");
    let all = May { configure: &ours, write: &write, read: &read };
    let probed = async || match Rabbit::probe(config(&user.url, &user.prefix), Extent::Nodes).await {
        Ok(()) => "well".into(),
        Err(error) => error.to_string(),
    };
    user.permit(all);
    assert_eq!(probed().await, "well");
    for (may, lack) in [
        (May { read: &ours, ..all }, "no read permission on exchange 'amq.topic'"),
        (May { write: &ours, ..all }, "no write permission on exchange 'amq.topic'"),
    ] {
        user.permit(may);
        let said = probed().await;
        assert!(said.contains(lack) && said.contains("amq\\.topic"), "{lack}: {said}");
        assert_eq!(said.matches("rabbitmqctl set_permissions").count(), 1, "{said}");
    }
}

#[tokio::test]
async fn what_is_refused_at_run_time_has_the_right_reason_until_it_is_granted() {
    let Some(user) = User::new() else { return };
    let all = May { configure: ".*", write: ".*", read: ".*" };
    user.permit(all);
    let rabbit = connect(&user.url, &user.prefix).await.unwrap();
    for (may, lack) in [
        (May { write: "^test-.*", ..all }, "no write permission on exchange 'amq.default'"),
        (May { read: "^$", ..all }, "no read permission on queue"),
        (May { configure: "^$", ..all }, "no configure permission on queue"),
    ] {
        user.permit(may);
        let queue = lack.split(' ').nth(1).unwrap_or_default();
        let Err(error @ BrokerError::Refused { .. }) = rabbit.publish(queue, bodies(0..1)).await else {
            panic!("{lack}: it was taken");
        };
        assert!(error.to_string().contains(lack) && error.to_string().contains("set_permissions"), "{error}");
        assert_eq!(rabbit.trouble(queue), Some(error));
        assert_eq!((rabbit.trouble("another"), rabbit.reachable()), (None, Ok(())));
        let refused = rabbit.consume(&format!("{queue}2"), 1).await.map(drop);
        assert!(refused.is_err_and(|error| error.to_string().contains(lack)), "{lack}");
        user.permit(all);
        soon("publish", async {
            while rabbit.publish(queue, bodies(0..1)).await.is_err() {
                SystemClock.sleep(std::time::Duration::from_millis(50)).await;
            }
        })
        .await;
        assert_eq!(rabbit.trouble(queue), None);
    }
}

#[tokio::test]
async fn a_long_row_of_refusals_leaves_no_queues_behind_and_is_got_over() {
    // RabbitMQ's channels on a connection, and some more.
    const TRIES: usize = 2_047 + 200;
    let Some(user) = User::new() else { return };
    let all = May { configure: ".*", write: ".*", read: ".*" };
    user.permit(all);
    let rabbit = connect(&user.url, &user.prefix).await.unwrap();
    rabbit.consume("q", 1).await.unwrap();
    user.permit(May { read: "^$", ..all });
    let tries = futures_util::stream::iter(0..TRIES).map(|_| rabbit.subscribe("t"));
    let refused = tries.buffer_unordered(16).filter(|tried| std::future::ready(tried.is_err())).count().await;
    assert_eq!(refused, TRIES);
    let ears = format!("{}ear.", user.prefix);
    assert_eq!(user.queues().matches(&ears).count(), 0, "{}", user.queues());
    user.permit(all);
    soon("to be heard and to hear again", async {
        drop(rabbit.subscribe("t").await.unwrap());
        drop(rabbit.consume("q", 1).await.unwrap());
    })
    .await;
}
