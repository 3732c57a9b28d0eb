//! Where metrics are gathered. There is one recorder in a process, whoever asks for it first.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use mutirao_core::Clock;
use tokio::task::JoinHandle;

use crate::ApiError;

/// Samples pile up until somebody reads or tidies; this often when nobody reads.
const TIDY_EVERY: Duration = Duration::from_secs(5);

static RECORDER: OnceLock<Result<PrometheusHandle, String>> = OnceLock::new();

pub fn handle() -> Result<PrometheusHandle, ApiError> {
    let installed = RECORDER.get_or_init(|| {
        const SECONDS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0];
        let builder = PrometheusBuilder::new().set_buckets(&SECONDS).map_err(|error| error.to_string())?;
        builder.install_recorder().map_err(|error| error.to_string())
    });
    installed.clone().map_err(ApiError::Metrics)
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
