//! RabbitMQ: the shared server of the test run through a proxy that can be cut, or one of our own that can be killed.
//! Without a server every test says that it was skipped.

mod faults;
mod hosts;
mod leaving;
mod marks;
mod permissions;
mod service;
mod workers;

use std::sync::Arc;

use mutirao_broker::rabbit::Config;
use mutirao_broker::suite::{Bounds, Harness};
use mutirao_broker::{BrokerError, Limits, Rabbit, Shared};
use mutirao_core::{Dice, SystemClock};
use mutirao_testkit::services;

use crate::memory;
use crate::proxy::Proxy;

/// The shared server's URL with another address in it.
fn url_through(url: &str, address: std::net::SocketAddr) -> String {
    let (before, after) = url.split_once('@').expect("a URL with a user");
    let (_, vhost) = after.split_once('/').expect("a URL with a vhost");
    format!("{before}@{address}/{vhost}")
}

fn address_of(url: &str) -> std::net::SocketAddr {
    let (_, after) = url.split_once('@').expect("a URL with a user");
    after.split('/').next().unwrap_or_default().parse().expect("an address")
}

fn limits() -> Limits {
    Limits { backlog_messages_max: 1_024, ..memory::limits() }
}

fn config(url: &str, prefix: &str) -> Config {
    let config = Config::new(url, SystemClock::shared(), Arc::new(Dice::from_os()));
    Config { prefix: prefix.into(), limits: limits(), ..config }
}

fn random_prefix() -> String {
    format!("test-{:016x}.", Dice::from_os().u64())
}

async fn connect(url: &str, prefix: &str) -> Result<Arc<Rabbit>, BrokerError> {
    Rabbit::connect(config(url, prefix)).await
}

pub struct OnRabbit {
    limits: Limits,
    url: String,
    prefix: String,
    proxy: Proxy,
}

impl OnRabbit {
    /// `None` when the test run has no server.
    async fn shared() -> Option<Self> {
        let url = services::shared(services::AMQP_VARIABLE)?;
        let proxy = Proxy::to(address_of(&url)).await;
        Some(Self { limits: limits(), url: url_through(&url, proxy.address), prefix: random_prefix(), proxy })
    }

    /// As an installation has it.
    async fn roomy() -> Option<Self> {
        Some(Self { limits: Limits::default(), ..Self::shared().await? })
    }

    async fn rabbit(&self) -> Arc<Rabbit> {
        let config = Config { limits: self.limits, ..config(&self.url, &self.prefix) };
        Rabbit::connect(config).await.expect("connect")
    }
}

#[async_trait::async_trait]
impl Harness for OnRabbit {
    async fn broker(&self) -> Shared {
        self.rabbit().await
    }

    fn bounds(&self) -> Bounds {
        // RabbitMQ says no once a queue is past its bound, and counts what is ready. A stream drops whole segments, a
        // while after it has begun another.
        Bounds { queue_messages: 201, backlog_messages: 3_000, log_bytes: 1_000_000 }
    }

    async fn cut(&self) {
        self.proxy.cut();
        self.proxy.ended().await;
    }

    async fn heal(&self) {
        self.proxy.heal();
    }
}

mutirao_broker::broker_suite!(OnRabbit::shared, or skip);
mutirao_broker::behaviours!(
    OnRabbit::roomy, or skip; logs::records_as_large_as_a_message_pass_and_larger_ones_do_not
);
mutirao_broker::broker_cut_suite!(OnRabbit::shared, or skip);
