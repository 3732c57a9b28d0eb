//! What waits to be applied, over time: what the manager says of it in its metrics, looked at four times a second.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use mutirao_core::{Clock, SystemClock};
use mutirao_testkit::{Installation, http};

use crate::plot::Line;
use crate::report::Report;
use crate::span::pause;

const GAUGE: &str = "mutirao_kv_backlog_writes ";
const LOOK: Duration = Duration::from_millis(250);

/// Looks until it is told to end.
pub struct Backlog {
    over: Arc<AtomicBool>,
    looking: JoinHandle<Vec<(f64, f64)>>,
}

impl Backlog {
    pub fn of(up: &Installation) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (address, bearer, until) = (up.address(), format!("Bearer {}", up.token()), over.clone());
        let looking = std::thread::spawn(move || {
            let (begun, mut points) = (SystemClock.monotonic(), Vec::new());
            while !until.load(Ordering::Relaxed) {
                let waiting = look(address, &bearer);
                points.extend(waiting.map(|writes| (SystemClock.monotonic().since(begun).as_secs_f64(), writes)));
                pause(LOOK);
            }
            points
        });
        Self { over, looking }
    }

    pub fn end(self, report: &mut Report) {
        self.over.store(true, Ordering::Relaxed);
        let points = self.looking.join().unwrap_or_default();
        let most = points.iter().map(|(_, writes)| *writes).fold(0.0, f64::max);
        report.row("  mutirao: most that were accepted and not applied yet", most, "PUTs");
        report.panels.push(vec![Line { name: "mutirao: accepted and not applied yet".into(), points }]);
    }
}

fn look(address: SocketAddr, bearer: &str) -> Option<f64> {
    let answer = http::request(address, "GET /metrics", &[("Authorization", bearer)], b"").ok()?;
    answer.text().lines().find_map(|line| line.strip_prefix(GAUGE)?.trim().parse().ok())
}
