//! The RabbitMQ, if the settings name one: can it be used, and can workers have users there.

use std::sync::Arc;

use mutirao_broker::Rabbit;
use mutirao_broker::rabbit::{Config, Extent};
use mutirao_core::{Dice, SystemClock};

use super::{Finding, Mark, installation};
use crate::broker;
use crate::config::Settings;
use crate::failure::Failure;
use crate::tls;

pub async fn look(settings: &Settings) -> Vec<Finding> {
    let Some(url) = settings.broker.set() else { return Vec::new() };
    let trust = match tls::trust(settings, &url.0, None) {
        Ok(trust) => trust,
        Err(failure) => return vec![finding("broker", Mark::Fail, line_of(failure))],
    };
    let config =
        || Config { trust: trust.clone(), ..Config::new(&url.0, SystemClock::shared(), Arc::new(Dice::from_os())) };
    match Rabbit::look(config()).await {
        Ok(found) => {
            let mut findings = vec![Finding::ok("broker", found), queues(config()).await];
            findings.push(nodes(settings, config()).await);
            findings.extend(installation::look(settings, config).await);
            findings.push(management(settings, &url.0).await);
            findings
        }
        Err(error) => vec![finding("broker", Mark::Fail, error.to_string())],
    }
}

async fn queues(config: Config) -> Finding {
    match Rabbit::probe(config, Extent::Everything).await {
        Ok(()) => Finding::ok("queues", "quorum and stream queues can be made, written to and read from"),
        Err(error) => finding("queues", Mark::Fail, error.to_string()),
    }
}

/// Not to be had, it keeps nobody from working but nodes at RabbitMQ.
async fn nodes(settings: &Settings, config: Config) -> Finding {
    let prefix = format!("{}.", settings.nodes_namespace);
    match Rabbit::probe(Config { prefix, ..config }, Extent::Nodes).await {
        Ok(()) => Finding::ok("nodes", "names of the nodes' namespace and amq.topic can be used"),
        Err(error) => finding("nodes", Mark::Warn, format!("{error}; until then nodes are not reached by RabbitMQ")),
    }
}

async fn management(settings: &Settings, url: &str) -> Finding {
    let management = match broker::management(settings, url) {
        Ok(management) => management,
        Err(failure) => return finding("management", Mark::Fail, line_of(failure)),
    };
    match management.check().await {
        Ok(()) => Finding::ok("management", "workers get users of their own"),
        Err(error) => finding("management", Mark::Warn, format!("{error}; until then workers use the link")),
    }
}

/// These errors name their remedy themselves.
fn finding(what: &'static str, mark: Mark, found: String) -> Finding {
    Finding { what, mark, found, remedy: None }
}

fn line_of(failure: Failure) -> String {
    match failure {
        Failure::Said { line, .. } => line,
        Failure::Silent { .. } | Failure::BrokenPipe => String::new(),
    }
}
