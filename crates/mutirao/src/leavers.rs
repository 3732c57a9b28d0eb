//! Users of RabbitMQ that should not be there are removed: those of workers that have not been seen for a day, which are the
//! many that just never come back (containers, borrowed machines); and those of workers that were revoked. Whoever revokes a
//! worker removes its user at once; where the management API was away at that moment, it is done here as soon as it answers.
//!
//! Removing too many does no harm: a worker that comes back asks for another user, as after every start. Not here: keys.
//! A worker that was let in stays so until somebody revokes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mutirao_api::Auth;
use mutirao_broker::rabbit::management::Management;
use mutirao_core::auth::Duty;
use mutirao_core::{Clock, Mono, Timestamp, WorkerId};
use mutirao_jobs::Jobs;
use tokio_util::sync::CancellationToken;

const LOOK_EVERY: Duration = Duration::from_secs(3_600);
/// How long a worker that was revoked may go on at most, once the management API answers.
const REVOKED_EVERY: Duration = Duration::from_secs(30);
/// Keys of workers read at once.
const KEYS_AT_ONCE: u32 = 1_000;
/// Revocations read at once.
const REVOKED_AT_ONCE: u32 = 1_000;
/// How far back it is looked each time for what was revoked: clocks of managers differ.
const OVERLAP: Duration = Duration::from_secs(300);
/// How often all of them are looked at again: a user may have been made anew by a manager that had not heard yet.
const ALL_EVERY: Duration = Duration::from_secs(3_600);
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

/// Until told to stop.
pub async fn watch(
    management: Arc<Management>,
    jobs: Jobs,
    auth: Arc<Auth>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    let both = async {
        tokio::join!(watch_leavers(&management, &jobs, &auth, &clock), watch_revoked(&management, &auth, &clock))
    };
    tokio::select! {
        _ = both => {}
        () = stop.cancelled() => {}
    }
}

async fn watch_revoked(management: &Management, auth: &Auth, clock: &Arc<dyn Clock>) {
    let mut revoked = Revoked::default();
    let mut began = clock.monotonic();
    loop {
        if clock.monotonic().since(began) >= ALL_EVERY {
            (revoked, began) = (Revoked::default(), clock.monotonic());
        }
        match dismiss_revoked(management, auth, &mut revoked).await {
            Ok(0) => {}
            Ok(removed) => tracing::warn!(removed, "removed RabbitMQ users of workers that had been revoked"),
            Err(why) => tracing::debug!(why, "workers that were revoked could not be looked for; the next round will"),
        }
        clock.sleep(REVOKED_EVERY).await;
    }
}

/// Workers that were revoked and may still have a user, and from when on there may be more of them.
#[derive(Debug, Default)]
struct Revoked {
    pending: BTreeSet<WorkerId>,
    from: Timestamp,
}

impl Revoked {
    /// What was read from [`Revoked::from`] on; whether there may be more to read at once.
    fn add(&mut self, page: Vec<(Timestamp, WorkerId)>, rows: u32) -> bool {
        let full = page.len() >= rows as usize;
        let last = page.last().map(|(at, _)| *at);
        self.pending.extend(page.into_iter().map(|(_, worker)| worker));
        match last {
            // A page of one moment would be read for ever.
            Some(at) if full && at == self.from => self.from = Timestamp(at.0 + 1),
            Some(at) => self.from = at,
            None => {}
        }
        full
    }

    /// Nothing more to read for now.
    fn rest(&mut self) {
        self.from = Timestamp(self.from.0.saturating_sub(OVERLAP.as_millis() as i64).max(0));
    }
}

async fn dismiss_revoked(management: &Management, auth: &Auth, revoked: &mut Revoked) -> Result<usize, String> {
    loop {
        let page = auth.revoked_from(revoked.from, REVOKED_AT_ONCE).await.map_err(|problem| problem.line())?;
        if !revoked.add(page, REVOKED_AT_ONCE) {
            break;
        }
    }
    revoked.rest();
    if revoked.pending.is_empty() {
        return Ok(0);
    }
    let admitted = management.admitted().await.map_err(|error| error.to_string())?;
    let admitted: BTreeSet<WorkerId> = admitted.into_iter().collect();
    revoked.pending.retain(|worker| admitted.contains(worker));
    let mut removed = 0;
    for worker in revoked.pending.clone().into_iter().take(REMOVED_AT_ONCE) {
        if management.dismiss(&worker).await.is_ok() {
            revoked.pending.remove(&worker);
            removed += 1;
        }
    }
    Ok(removed)
}

/// Those that take no tasks, so that nobody who hands tasks out sees them.
async fn checkers(auth: &Auth) -> Result<BTreeSet<WorkerId>, String> {
    let (mut found, mut after) = (BTreeSet::new(), 0);
    loop {
        let page = auth.workers(after, KEYS_AT_ONCE).await.map_err(|problem| problem.line())?;
        let Some((last, _)) = page.last() else { return Ok(found) };
        after = *last;
        found.extend(page.into_iter().filter(|(_, key)| !matches!(key.duty, Duty::Tasks(_))).map(|(_, key)| key.id));
    }
}

async fn watch_leavers(management: &Management, jobs: &Jobs, auth: &Auth, clock: &Arc<dyn Clock>) {
    let mut leavers = Leavers::default();
    loop {
        clock.sleep(LOOK_EVERY).await;
        let (workers, silent) = jobs.workers().await;
        // Workers of owners that were not heard would look gone.
        if !silent.is_empty() {
            continue;
        }
        let mut there: BTreeSet<WorkerId> = workers.into_iter().map(|view| view.worker).collect();
        match checkers(auth).await {
            Ok(checkers) => there.extend(checkers),
            Err(why) => {
                tracing::debug!(why, "who makes checks is not known; the next look will");
                continue;
            }
        }
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
    fn revocations_are_read_once_and_again_only_as_far_back_as_clocks_may_differ() {
        let page = |from: i64, count: i64| -> Vec<(Timestamp, WorkerId)> {
            (from..from + count).map(|at| (Timestamp(at), WorkerId(format!("w{at}")))).collect()
        };
        let mut revoked = Revoked::default();
        assert!(revoked.add(page(1_000_000, 3), 3), "a full page: there may be more");
        assert_eq!(revoked.from, Timestamp(1_000_002));
        assert!(!revoked.add(page(1_000_002, 2), 3));
        assert_eq!((revoked.pending.len(), revoked.from), (4, Timestamp(1_000_003)));
        revoked.rest();
        assert_eq!(revoked.from, Timestamp(700_003));
        let one_moment: Vec<_> = (0..3).map(|n| (Timestamp(700_003), WorkerId(format!("x{n}")))).collect();
        assert!(revoked.add(one_moment, 3));
        assert_eq!(revoked.from, Timestamp(700_004), "and not the same for ever");
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
