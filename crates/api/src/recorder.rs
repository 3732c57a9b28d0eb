//! Where metrics are gathered. There is one recorder in a process, whoever asks for it first.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use mutirao_core::Clock;
use mutirao_core::meters::{Kind, Meter};
use tokio::task::JoinHandle;

use crate::ApiError;

/// Samples pile up until somebody reads or tidies; this often when nobody reads.
const TIDY_EVERY: Duration = Duration::from_secs(5);

static RECORDER: OnceLock<Result<PrometheusHandle, String>> = OnceLock::new();

pub fn handle() -> Result<PrometheusHandle, ApiError> {
    let installed = RECORDER.get_or_init(|| {
        const SECONDS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0];
        let builder = PrometheusBuilder::new().set_buckets(&SECONDS).map_err(|error| error.to_string())?;
        builder.install_recorder().map_err(|error| error.to_string())
    });
    installed.clone().map_err(ApiError::Metrics)
}

/// Begins gathering. What others measure before the first call is lost, so a manager calls this before it starts them.
pub fn gather() -> Result<(), ApiError> {
    handle().map(drop)
}

/// What the API itself measures. The texts are those of the table in docs/operations.md.
pub const METERS: &[Meter] = &[
    Meter {
        name: REQUESTS,
        kind: Kind::Counter,
        labels: &["method", "route", "status"],
        help: "Requests that were answered; a route is its pattern, never what a caller wrote.",
    },
    Meter { name: REQUEST, kind: Kind::Histogram, labels: &[], help: "How long requests took to be answered." },
    Meter {
        name: STRANGERS,
        kind: Kind::Counter,
        labels: &[],
        help: "Requests refused for want of a good token or signature.",
    },
    Meter {
        name: BUILD,
        kind: Kind::Gauge,
        labels: &["version"],
        help: "Always 1; its label is the program's version.",
    },
];

pub const REQUESTS: &str = "mutirao_http_requests_total";
pub const REQUEST: &str = "mutirao_http_request_duration_seconds";
pub const STRANGERS: &str = "mutirao_auth_failures_total";
const BUILD: &str = "mutirao_build_info";

/// Says what they are in `HELP` and `TYPE`, and shows those without labels from the start.
pub fn describe<'a>(meters: impl IntoIterator<Item = &'a Meter>) {
    metrics::gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    for Meter { name, kind, labels, help } in meters.into_iter().copied() {
        let plain = labels.is_empty();
        match kind {
            Kind::Counter => metrics::describe_counter!(name, help),
            Kind::Gauge => metrics::describe_gauge!(name, help),
            Kind::Histogram => metrics::describe_histogram!(name, help),
        }
        match kind {
            Kind::Counter if plain => metrics::counter!(name).increment(0),
            Kind::Gauge if plain => metrics::gauge!(name).increment(0.0),
            _ => {}
        }
    }
}

/// Tidies until it is dropped.
pub struct Tidying(JoinHandle<()>);

impl Tidying {
    pub fn start(handle: PrometheusHandle, clock: Arc<dyn Clock>) -> Self {
        Self(tokio::spawn(async move {
            loop {
                clock.sleep(TIDY_EVERY).await;
                handle.run_upkeep();
            }
        }))
    }
}

impl Drop for Tidying {
    fn drop(&mut self) {
        self.0.abort();
    }
}
