//! Traces of this process, where the settings name a collector.

use mutirao_core::SystemClock;
use mutirao_telemetry::otlp::Teller;
use mutirao_telemetry::{Exporter, Settings as Telemetry};
use mutirao_tls::Believe;

use crate::config::Settings;
use crate::failure::Failure;
use crate::machine;

/// Begins to send spans; none when nobody is to have them.
pub fn start(settings: &Settings, role: &str) -> Result<Option<Exporter>, Failure> {
    let Some(collector) = settings.telemetry_otlp.given() else { return Ok(None) };
    let teller = Teller {
        role: role.into(),
        instance: format!("{}-{}", machine::host_name(), std::process::id()),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    let telemetry = Telemetry {
        collector: collector.0.clone(),
        share: settings.telemetry_sample.0,
        believe: Believe { ca: settings.tls_ca.given().map(|file| file.0.clone()), pin: None },
        teller,
    };
    let started = Exporter::start(telemetry, SystemClock::shared());
    started.map(Some).map_err(|error| Failure::failed(error.to_string()))
}

/// Sends the last of them.
pub async fn stop(exporter: Option<Exporter>) {
    if let Some(exporter) = exporter {
        exporter.stop().await;
    }
}
