//! How a worker reaches the broker: over the link, through its manager, or by itself when the manager says so. What its
//! manager tells it is for this worker alone and is never written down.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_broker::link::{Link, LinkState};
use mutirao_broker::rabbit::{Config, Part, Renew};
use mutirao_broker::{Broker, BrokerError, Rabbit, Shared};
use mutirao_client::Client;
use mutirao_core::auth::Way;
use mutirao_core::{Clock, Dice};

use crate::config::{Settings, WorkerWay};
use crate::failure::Failure;
use crate::tls;

#[derive(Clone)]
pub enum Reach {
    Link(Arc<Link>),
    Rabbit(Arc<Rabbit>),
}

impl Reach {
    /// The way that the manager offers, unless the settings ask for the link. A link that is not needed is closed.
    pub async fn find(
        settings: &Settings,
        client: &Client,
        link: Arc<Link>,
        clock: &Arc<dyn Clock>,
        dice: &Arc<Dice>,
    ) -> Result<Self, Failure> {
        if settings.worker_way == WorkerWay::Link {
            return Ok(Self::Link(link));
        }
        let (url, prefix) = match client.way_to_broker().await {
            Ok(Way::Rabbitmq { url, prefix }) => (url, prefix),
            Ok(Way::Link) => return Ok(Self::Link(link)),
            // One of an earlier version knows no other way.
            Err(error) => {
                tracing::debug!(%error, "the manager offers no other way than the link");
                return Ok(Self::Link(link));
            }
        };
        let config = Config {
            prefix,
            part: Part::Worker,
            trust: tls::trust(settings, &url, None)?,
            renew: Some(Arc::new(AskAgain(client.clone()))),
            ..Config::new(url, clock.clone(), dice.clone())
        };
        match Rabbit::connect(config).await {
            Ok(rabbit) => {
                link.close();
                tracing::info!("takes tasks and reports over RabbitMQ");
                Ok(Self::Rabbit(rabbit))
            }
            Err(error) => {
                tracing::warn!("{error}; using the link through the manager instead");
                Ok(Self::Link(link))
            }
        }
    }

    pub fn broker(&self) -> Shared {
        match self {
            Self::Link(link) => link.clone(),
            Self::Rabbit(rabbit) => rabbit.clone(),
        }
    }

    /// Whether somebody is there who takes reports.
    pub fn is_up(&self) -> bool {
        match self {
            Self::Link(link) => *link.state().borrow() == LinkState::Up,
            Self::Rabbit(rabbit) => rabbit.reachable().is_ok(),
        }
    }

    pub fn close(&self) {
        match self {
            Self::Link(link) => link.close(),
            Self::Rabbit(rabbit) => rabbit.close(),
        }
    }
}

/// Gets new credentials when those we have are worthless: the server may have been set up anew.
struct AskAgain(Client);

#[async_trait]
impl Renew for AskAgain {
    async fn renew(&self) -> Result<String, BrokerError> {
        match self.0.way_to_broker().await {
            Ok(Way::Rabbitmq { url, .. }) => Ok(url),
            Ok(Way::Link) => Err(BrokerError::Unreachable("the manager can give no new credentials now".into())),
            Err(error) => Err(BrokerError::Unreachable(format!("no new credentials: {error}"))),
        }
    }
}
