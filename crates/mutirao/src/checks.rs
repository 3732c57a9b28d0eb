//! What checks are made with, inside a manager and in a checker of its own: the probes, and how much may be done at once.

use std::sync::Arc;

use mutirao_core::Clock;
use mutirao_monitors::checker::Bounds;
use mutirao_monitors::service::Programs;
use mutirao_probes::{Probes, Reach, Strangers};
use mutirao_tls::Believe;
use rustix::process::{Resource, getrlimit};

use crate::config::{Leave, Settings};
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

/// A check may need a connection and a file beside it: one that cannot be opened would look like a fault of the service.
pub fn bounds(settings: &Settings) -> Bounds {
    let usual = Bounds::default();
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let under_way_max = usize::try_from(files / 2).unwrap_or(usize::MAX).min(usual.under_way_max);
    Bounds { under_way_max, host_max: usize::try_from(settings.monitors_host_max.0).unwrap_or(usize::MAX) }
}
