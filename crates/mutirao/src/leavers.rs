//! Users of RabbitMQ whose workers have not been seen for a day are removed. Whoever revokes a worker removes its user at
//! once; this is for the many that just never come back: containers, borrowed machines.
//!
//! Removing too many does no harm: a worker that comes back asks for another user, as after every start. Not here: keys.
//! A worker that was let in stays so until somebody revokes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::rabbit::management::Management;
use mutirao_core::{Clock, Mono, WorkerId};
use mutirao_jobs::Jobs;
use tokio_util::sync::CancellationToken;

const LOOK_EVERY: Duration = Duration::from_secs(3_600);
const GONE_FOR: Duration = Duration::from_secs(24 * 3_600);
/// Removed at one look; the rest waits for the next.
const REMOVED_AT_ONCE: usize = 1_000;

/// Since when each worker with a user has not been there, as far as this process has seen.
#[derive(Debug, Default)]
struct Leavers(BTreeMap<WorkerId, Mono>);

impl Leavers {
    /// Takes in who has a user and who is there; says who has been gone for long enough.
    fn look(&mut self, admitted: Vec<WorkerId>, there: &BTreeSet<WorkerId>, now: Mono) -> Vec<WorkerId> {
        let before = std::mem::take(&mut self.0);
        let absent = admitted.into_iter().filter(|worker| !there.contains(worker));
        self.0 = absent.map(|worker| (worker.clone(), before.get(&worker).copied().unwrap_or(now))).collect();
        let long = self.0.iter().filter(|(_, since)| now.since(**since) >= GONE_FOR);
        long.map(|(worker, _)| worker.clone()).take(REMOVED_AT_ONCE).collect()
    }
}

/// Looks every hour, until told to stop.
pub async fn watch(management: Arc<Management>, jobs: Jobs, clock: Arc<dyn Clock>, stop: CancellationToken) {
    let mut leavers = Leavers::default();
    loop {
        tokio::select! {
            () = clock.sleep(LOOK_EVERY) => {}
            () = stop.cancelled() => return,
        }
        let (workers, silent) = jobs.workers().await;
        // Workers of owners that were not heard would look gone.
        if !silent.is_empty() {
            continue;
        }
        let there = workers.into_iter().map(|view| view.worker).collect();
        let admitted = match management.admitted().await {
            Ok(admitted) => admitted,
            Err(error) => {
                tracing::debug!("{error}");
                continue;
            }
        };
        let gone = leavers.look(admitted, &there, clock.monotonic());
        if gone.is_empty() {
            continue;
        }
        let mut removed = 0;
        for worker in &gone {
            removed += usize::from(management.dismiss(worker).await.is_ok());
        }
        tracing::info!(removed, "removed RabbitMQ users of workers that were gone for a day");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers<T: FromIterator<WorkerId>>(names: &[&str]) -> T {
        names.iter().map(|name| WorkerId((*name).into())).collect()
    }

    fn at(hours: u64) -> Mono {
        Mono(Duration::from_secs(hours * 3_600))
    }

    #[test]
    fn a_user_goes_when_its_worker_was_gone_for_a_day_and_not_before() {
        let mut leavers = Leavers::default();
        let none: Vec<WorkerId> = Vec::new();
        assert_eq!(leavers.look(workers(&["a", "b"]), &workers(&["a"]), at(1)), none);
        assert_eq!(leavers.look(workers(&["a", "b"]), &workers(&["a"]), at(24)), none);
        assert_eq!(leavers.look(workers(&["a", "b"]), &workers(&["a"]), at(25)), workers::<Vec<_>>(&["b"]));
    }

    #[test]
    fn one_that_came_back_in_between_begins_anew() {
        let mut leavers = Leavers::default();
        leavers.look(workers(&["b"]), &workers(&[]), at(1));
        leavers.look(workers(&["b"]), &workers(&["b"]), at(20));
        let none: Vec<WorkerId> = Vec::new();
        assert_eq!(leavers.look(workers(&["b"]), &workers(&[]), at(30)), none);
        assert_eq!(leavers.look(workers(&["b"]), &workers(&[]), at(54)), workers::<Vec<_>>(&["b"]));
    }
}
