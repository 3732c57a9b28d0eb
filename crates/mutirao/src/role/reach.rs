//! How a worker reaches the broker: over the link, through its manager, or by itself when the manager says so. What its
//! manager tells it is for this worker alone and is never written down.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_broker::link::{Link, LinkState};
use mutirao_broker::rabbit::{Config, Part, Renew};
use mutirao_broker::{Broker, BrokerError, Rabbit, Shared};
use mutirao_client::Client;
use mutirao_core::auth::Way;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice};
use tokio::sync::watch;

use crate::config::{Settings, WorkerWay};
use crate::failure::Failure;
use crate::tls;

/// A manager that says no is asked again for this long: its clock, or ours, may have been wrong for a moment.
const REFUSED_MAX: Duration = Duration::from_secs(12);

#[derive(Clone)]
pub enum Reach {
    Link(Arc<Link>),
    /// With why the manager gives us no new credentials, if it says no.
    Rabbit(Arc<Rabbit>, watch::Receiver<Option<String>>),
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
        let (refusal, refusals) = watch::channel(None);
        let config = Config {
            prefix,
            part: Part::Worker,
            trust: tls::trust(settings, &url, None)?,
            renew: Some(Arc::new(AskAgain { client: client.clone(), refusal })),
            ..Config::new(url, clock.clone(), dice.clone())
        };
        match Rabbit::connect(config).await {
            Ok(rabbit) => {
                link.close();
                tracing::info!("takes tasks and reports over RabbitMQ");
                Ok(Self::Rabbit(rabbit, refusals))
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
            Self::Rabbit(rabbit, _) => rabbit.clone(),
        }
    }

    /// Ends when the manager does not let this worker in any more, and says why.
    pub async fn refused(&self, clock: &dyn Clock) -> String {
        match self {
            Self::Link(link) => {
                let why = |state: &LinkState| match state {
                    LinkState::Refused(why) => Some(why.clone()),
                    _ => None,
                };
                lasting(link.state(), why, clock).await
            }
            Self::Rabbit(rabbit, refusals) => {
                let mut refusals = refusals.clone();
                loop {
                    let why = lasting(refusals.clone(), Option::clone, clock).await;
                    // The server may have taken what it had refused, as one that is just starting does.
                    if rabbit.reachable().is_err() {
                        return why;
                    }
                    // What the manager said before that is over; an outage later must not bring it up again.
                    refusals.mark_unchanged();
                    if refusals.changed().await.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }

    /// Whether somebody is there who takes reports.
    pub fn is_up(&self) -> bool {
        match self {
            Self::Link(link) => *link.state().borrow() == LinkState::Up,
            Self::Rabbit(rabbit, _) => rabbit.reachable().is_ok(),
        }
    }

    pub fn close(&self) {
        match self {
            Self::Link(link) => link.close(),
            Self::Rabbit(rabbit, _) => rabbit.close(),
        }
    }
}

/// Why, once it has been so for long.
async fn lasting<T: Send + Sync>(
    mut state: watch::Receiver<T>,
    why: impl Fn(&T) -> Option<String> + Send + Sync,
    clock: &dyn Clock,
) -> String {
    loop {
        if state.wait_for(|now| why(now).is_some()).await.is_err() {
            // Whoever would say so is gone, and so will we be.
            return std::future::pending().await;
        }
        let otherwise = async { state.wait_for(|now| why(now).is_none()).await.map(drop) };
        let over = clock.timeout(REFUSED_MAX, otherwise).await.is_ok();
        let last = why(&state.borrow());
        if let (false, Some(why)) = (over, last) {
            return why;
        }
    }
}

/// Gets new credentials when those we have are worthless: the server may have been set up anew. Nothing else may ask the
/// manager for them: an answer makes the former one worthless, so whoever asked beside this would lock the worker out.
struct AskAgain {
    client: Client,
    refusal: watch::Sender<Option<String>>,
}

#[async_trait]
impl Renew for AskAgain {
    async fn renew(&self) -> Result<String, BrokerError> {
        let answer = self.client.way_to_broker().await;
        let refusal = answer.as_ref().err().filter(|error| matches!(error.status(), Some(401 | 403)));
        self.refusal.send_replace(refusal.map(ToString::to_string));
        match answer {
            Ok(Way::Rabbitmq { url, .. }) => Ok(url),
            Ok(Way::Link) => Err(BrokerError::Unreachable("the manager can give no new credentials now".into())),
            Err(error) => Err(BrokerError::Unreachable(format!("no new credentials: {error}"))),
        }
    }
}
