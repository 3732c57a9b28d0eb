//! What checks are made with, inside a manager and in a checker of its own: the probes, and how much may be done at once.

use std::sync::Arc;

use mutirao_core::Clock;
use mutirao_elastic::Elastic;
use mutirao_monitors::checker::Bounds;
use mutirao_monitors::service::Programs;
use mutirao_probes::{Probes, Reach, Strangers};
use mutirao_tls::Believe;
use rustix::process::{Resource, getrlimit};

use crate::config::{Between, Leave, Settings};
use crate::failure::Failure;

pub fn probes(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Probes, Failure> {
    let believe = Believe { ca: settings.tls_ca.given().map(|file| file.0.clone()), pin: None };
    let strangers = match settings.monitors_surroundings {
        Leave::Refused => Strangers::Refused,
        Leave::Allowed => Strangers::Allowed,
    };
    let reach = Reach::new(&believe, strangers).map_err(|error| Failure::failed(error.to_string()))?;
    Ok(Probes::new(reach, clock.clone()))
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

/// What a checker is started with that a resource manager starts: as this process would check.
pub fn launched_with(settings: &Settings) -> Vec<String> {
    let surroundings = match settings.monitors_surroundings {
        Leave::Refused => "refused",
        Leave::Allowed => "allowed",
    };
    vec![
        format!("monitors.surroundings={surroundings}"),
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
