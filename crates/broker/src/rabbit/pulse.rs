//! A word that nobody hears, every now and then. RabbitMQ tells a connection that it is short of memory or disk only when
//! something is published on it: a manager that has nothing to say would take its workers, who are held up, for dead.

use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;

use super::Inner;

/// Well below any lease, and nothing to a server.
const EVERY: Duration = Duration::from_secs(2);
/// Nobody subscribes to it.
const TOPIC: &str = "pulse";

/// Until the broker is gone.
pub(super) async fn beat(rabbit: Weak<Inner>) {
    loop {
        let Some(inner) = rabbit.upgrade() else { return };
        let clock = inner.clock.clone();
        // Only what the connection learns by it counts.
        let _ = inner.announce(TOPIC, Bytes::new()).await;
        drop(inner);
        clock.sleep(EVERY).await;
    }
}
