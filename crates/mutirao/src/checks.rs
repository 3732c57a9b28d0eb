//! What checks are made with, inside a manager and in a checker of its own: the probes, and how much may be done at once.

use std::sync::Arc;

use mutirao_core::Clock;
use mutirao_elastic::Elastic;
use mutirao_monitors::checker::Bounds;
use mutirao_monitors::service::Programs;
use mutirao_probes::{Probes, Reach, Strangers};
use mutirao_resource::local::Trusted;
use mutirao_tls::Believe;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use crate::config::{Between, Leave, Settings};
use crate::failure::Failure;

pub fn probes(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Probes, Failure> {
    Ok(Probes::new(reach(settings, settings.monitors_surroundings)?, clock.clone()))
}

/// What actions of flows make requests with.
pub fn calls(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Probes, Failure> {
    let reach = reach(settings, settings.flows_surroundings)?.for_calls(strangers(settings.flows_loopback));
    Ok(Probes::new(reach, clock.clone()))
}

fn reach(settings: &Settings, surroundings: Leave) -> Result<Reach, Failure> {
    let believe = Believe { ca: settings.tls_ca.given().map(|file| file.0.clone()), pin: None };
    Reach::new(&believe, strangers(surroundings)).map_err(|error| Failure::failed(error.to_string()))
}

fn strangers(leave: Leave) -> Strangers {
    match leave {
        Leave::Refused => Strangers::Refused,
        Leave::Allowed => Strangers::Allowed,
    }
}

pub fn programs(settings: &Settings) -> Programs {
    match settings.monitors_exec {
        Leave::Refused => Programs::Refused,
        Leave::Allowed => Programs::Allowed,
    }
}

/// How many checkers a resource manager keeps, and by what it decides; none where they come and go by hand.
pub fn pool(settings: &Settings) -> Option<Elastic> {
    let Between { min, max } = settings.monitors_checkers.0?;
    Some(Elastic::of_checkers(u32::try_from(bounds(settings).under_way_max).unwrap_or(u32::MAX), min, max))
}

/// How many schedulers it keeps.
pub fn schedulers(settings: &Settings) -> Result<Option<Elastic>, Failure> {
    let Some(Between { min, max }) = settings.monitors_schedulers.0 else { return Ok(None) };
    if settings.database.set().is_none() || settings.broker.set().is_none() {
        let line = "monitors.schedulers needs a PostgreSQL (MUTIRAO_DATABASE) and a RabbitMQ (MUTIRAO_BROKER): without them one \
                    process owns everything, and nobody can take monitors off it; leave it out";
        return Err(Failure::usage(line));
    }
    if min == 0 {
        let line =
            format!("monitors.schedulers=0..{max}: the cpu is measured of those that are there, so keep one: 1..{max}");
        return Err(Failure::usage(line));
    }
    Ok(Some(Elastic::of_schedulers(min, max)))
}

/// What a scheduler is started with that a resource manager starts; none where this process does not know what it needs.
pub fn schedulers_launched_with(settings: &Settings) -> Option<Trusted> {
    let (database, broker) = (settings.database.set()?, settings.broker.set()?);
    let keys = Keys {
        database: database.0.clone(),
        broker: broker.0.clone(),
        broker_management: settings.broker_management.set().map(|url| url.0.clone()),
    };
    let settings = vec![
        format!("monitors.surroundings={}", leave(settings.monitors_surroundings)),
        format!("monitors.exec={}", leave(settings.monitors_exec)),
        format!("monitors.keep={}", settings.monitors_keep),
    ];
    Some(Trusted { settings, keys: serde_json::to_string(&keys).ok()? })
}

/// What opens everything to a scheduler. It gets this over its stdin, where nobody else can read it.
#[derive(Serialize, Deserialize)]
pub struct Keys {
    pub database: String,
    pub broker: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_management: Option<String>,
}

fn leave(leave: Leave) -> &'static str {
    match leave {
        Leave::Refused => "refused",
        Leave::Allowed => "allowed",
    }
}

/// What a checker is started with that a resource manager starts: as this process would check.
pub fn launched_with(settings: &Settings) -> Vec<String> {
    vec![
        format!("monitors.surroundings={}", leave(settings.monitors_surroundings)),
        format!("monitors.host_max={}", settings.monitors_host_max.0),
        format!("monitors.under_way_max={}", settings.monitors_under_way_max.0),
    ]
}

/// A check may need a connection and a file beside it: one that cannot be opened would look like a fault of the service.
pub fn bounds(settings: &Settings) -> Bounds {
    let usual = Bounds::default();
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let wanted = usize::try_from(settings.monitors_under_way_max.0).unwrap_or(usize::MAX).min(usual.under_way_max);
    let under_way_max = usize::try_from(files / 2).unwrap_or(usize::MAX).min(wanted);
    Bounds { under_way_max, host_max: usize::try_from(settings.monitors_host_max.0).unwrap_or(usize::MAX) }
}
