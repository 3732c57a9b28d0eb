//! Nodes that run actions: the switchboard as the settings ask for it, and the ways that are open to it.

use std::net::SocketAddr;
use std::sync::Arc;

use mutirao_broker::rabbit::management::Management;
use mutirao_broker::{Rabbit, Shared};
use mutirao_core::{Clock, Dice};
use mutirao_elastic::view::NodeView;
use mutirao_fleet::Runners;
use mutirao_mqtt::Limits;
use mutirao_nodes::breaker;
use mutirao_nodes::embedded::{self, Embedded};
use mutirao_nodes::endpoint::Loopback;
use mutirao_nodes::http::HttpWay;
use mutirao_nodes::pulse::Pace;
use mutirao_nodes::rabbit::{Bounds, RabbitWays};
use mutirao_nodes::registry::Strangers;
use mutirao_nodes::routing::Rules;
use mutirao_nodes::store;
use mutirao_nodes::switchboard::{Parts, Switchboard};
use mutirao_shards::Company;
use mutirao_store::Database;
use mutirao_tls::Serving;

use crate::config::{Leave, Settings, Switch};
use crate::failure::Failure;
use crate::tls;

/// What everything here is made of.
pub struct House<'a> {
    pub store: &'a Database,
    pub clock: &'a Arc<dyn Clock>,
    pub dice: &'a Arc<Dice>,
    pub broker: &'a Shared,
}

/// Who is registered, read back from the store. Nobody is heard yet.
pub async fn start(settings: &Settings, house: &House<'_>, company: Company) -> Result<Switchboard, Failure> {
    let pause = settings.nodes_breaker_pause.0;
    let failures = u32::try_from(settings.nodes_breaker_failures.0).unwrap_or(u32::MAX);
    let limits = breaker::Limits::default();
    let breaker = breaker::Limits { failures, pause, pause_max: limits.pause_max.max(pause), ..limits };
    let parts = Parts {
        namespace: settings.nodes_namespace.clone(),
        store: store::open(house.store),
        clock: house.clock.clone(),
        dice: house.dice.clone(),
        strangers: strangers(settings),
        loopback: loopback(settings),
        routing: Rules { policy: settings.nodes_routing.0, breaker, ..Rules::default() },
        pace: Pace::default(),
        others: (company == Company::Others).then(|| house.broker.clone()),
    };
    let started = Switchboard::start(parts).await;
    let board = started.map_err(|error| Failure::failed(format!("who is registered cannot be read: {error}")))?;
    let trust = tls::trust(settings, "https:", None)?;
    HttpWay::open(&board, &trust, house.clock.clone()).map_err(|error| Failure::failed(error.to_string()))?;
    Ok(board)
}

/// RabbitMQ, where there is one: AMQP, and MQTT by its plugin.
pub fn attach(
    settings: &Settings,
    house: &House<'_>,
    board: &Switchboard,
    rabbit: Option<&Arc<Rabbit>>,
    management: Option<&Arc<Management>>,
) -> Option<RabbitWays> {
    let bounds = Bounds {
        age: settings.nodes_queue_age.0,
        answers_max: u32::try_from(settings.nodes_answers_max.0).unwrap_or(u32::MAX),
        answers_age: settings.nodes_answers_age.0,
    };
    rabbit.map(|rabbit| RabbitWays::open(board, rabbit.clone(), management.cloned(), house.clock.clone(), bounds))
}

fn loopback(settings: &Settings) -> Loopback {
    match settings.nodes_loopback {
        Leave::Allowed => Loopback::Allowed,
        Leave::Refused => Loopback::Refused,
    }
}

fn strangers(settings: &Settings) -> Strangers {
    match settings.mqtt_allow_anonymous {
        Switch::On => Strangers::LetIn,
        Switch::Off => Strangers::Refused,
    }
}

/// The manager's own MQTT listener, if it is to have one. From then on devices are heard.
pub async fn listen(
    settings: &Settings,
    house: &House<'_>,
    board: &Switchboard,
    tls: Option<&Serving>,
) -> Result<Option<Embedded>, Failure> {
    let Some(&listen) = settings.mqtt_listen.given() else { return Ok(None) };
    let tls = tls.filter(|_| settings.mqtt_tls == Switch::On);
    if tls.is_none() && !listen.ip().is_loopback() {
        tracing::warn!(
            "{listen} can be reached from other machines, and passwords of devices travel in the clear; set tls.cert and tls.key"
        );
    }
    if settings.mqtt_allow_anonymous == Switch::On && !listen.ip().is_loopback() {
        tracing::warn!("whoever reaches {listen} may register as a node, for mqtt.allow_anonymous is on");
    }
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let limits = Limits {
        queue_messages_max: size(settings.mqtt_queue_messages.0),
        queue_bytes_max: size(settings.mqtt_queue_size.0),
        queue_age_max: settings.mqtt_queue_age.0,
        ..Limits::default()
    };
    let parts = embedded::Parts {
        listen,
        tls: tls.map(|serving| serving.acceptor_for(None)),
        strangers: strangers(settings),
        limits,
        store: store::open(house.store),
        clock: house.clock.clone(),
        dice: house.dice.clone(),
    };
    Embedded::open(board, parts).await.map(Some).map_err(|error| not_open(listen, &error))
}

fn not_open(listen: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::failed(format!(
        "cannot listen for MQTT on {listen}: {error}; choose another with --mqtt-listen ({}:0 takes any free port)",
        listen.ip()
    ))
}

/// Listed with the nodes that carry workers.
pub struct Listed(pub Switchboard);

impl Runners for Listed {
    fn nodes(&self) -> Vec<NodeView> {
        self.0.nodes().into_iter().map(NodeView::from).collect()
    }
}
