//! A listener with somebody at its door, for tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_mqtt::{
    Config, Delivery, Gate, Guest, Inbox, Knock, Limits, Listener, Port, Refusal, Rights, Standing, TopicFilter,
    TopicName,
};
use tokio_rustls::TlsAcceptor;

use crate::raw::within;

pub const LONG: Duration = Duration::from_secs(30);

pub fn name(text: &str) -> TopicName {
    TopicName::new(text).unwrap()
}

pub fn filter(text: &str) -> TopicFilter {
    TopicFilter::new(text).unwrap()
}

/// Lets the user `device` in with its password, to its own corner, and those who show nothing to everything if told so.
/// For `slow` it takes for ever.
struct Doorman {
    anonymous: bool,
}

#[async_trait]
impl Gate for Doorman {
    async fn admit(&self, knock: &Knock) -> Result<Guest, Refusal> {
        let everything = Rights { publish: vec![filter("#")], subscribe: vec![filter("#")] };
        let corner = Rights { publish: vec![filter("device/out")], subscribe: vec![filter("device/#")] };
        let guest = |who: &str, standing, rights| Guest { who: who.into(), standing, rights, sessions_max: 4_000 };
        match (knock.user.as_deref(), knock.password.as_deref()) {
            (None, None) if self.anonymous => Ok(guest("anonymous", Standing::Anonymous, everything)),
            (None, _) => Err(Refusal::NotAuthorized),
            (Some("slow"), _) => std::future::pending().await,
            (Some("device"), Some(b"secret")) => Ok(guest("device", Standing::Known, corner)),
            _ => Err(Refusal::BadCredentials),
        }
    }
}

pub struct House {
    pub listener: Listener,
    pub address: SocketAddr,
    pub port: Port,
}

impl House {
    pub async fn open() -> Self {
        Self::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> Self {
        Self::build(limits, SystemClock::shared(), true, None, 0).await
    }

    pub async fn on(limits: Limits, clock: Arc<dyn Clock>) -> Self {
        Self::build(limits, clock, true, None, 0).await
    }

    /// Nobody comes in without a password.
    pub async fn guarded() -> Self {
        Self::build(Limits::default(), SystemClock::shared(), false, None, 0).await
    }

    pub async fn with_tls(tls: TlsAcceptor) -> Self {
        Self::build(Limits::default(), SystemClock::shared(), true, Some(tls), 0).await
    }

    pub async fn at_port(port: u16) -> Self {
        Self::build(Limits::default(), SystemClock::shared(), true, None, port).await
    }

    async fn build(
        limits: Limits,
        clock: Arc<dyn Clock>,
        anonymous: bool,
        tls: Option<TlsAcceptor>,
        port: u16,
    ) -> Self {
        let config = Config {
            listen: (Ipv4Addr::LOCALHOST, port).into(),
            limits,
            tls,
            gate: Arc::new(Doorman { anonymous }),
            clock,
            dice: Arc::new(Dice::seeded(1)),
        };
        let listener = Listener::start(config).await.unwrap();
        let (address, port) = (listener.address(), listener.port());
        Self { listener, address, port }
    }
}

/// The next delivery, which must come.
pub async fn next(inbox: &mut Inbox) -> Delivery {
    within("a delivery", inbox.next()).await.expect("the listener lives")
}

pub fn text(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.message.payload).into_owned()
}
