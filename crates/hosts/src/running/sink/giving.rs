//! Rows are handed over, however often that has to be tried.

use mutirao_core::clock::ClockExt;
use mutirao_streams::part::SinkRow;

use super::{End, LOOK, PAUSE_MAX, PAUSE_MIN, Work};

impl Work<'_> {
    /// Hands all of them over, however long that takes.
    pub(super) async fn give(&mut self, mut rows: &[SinkRow]) -> Result<(), End> {
        let Self { job, outlet, tend, dead, .. } = self;
        let clock = job.means.clock.clone();
        let mut pause = PAUSE_MIN;
        while !rows.is_empty() {
            let given = {
                let mut giving = std::pin::pin!(outlet.give(rows));
                loop {
                    tokio::select! {
                        biased;
                        _ = job.stopped() => return Err(End::Stopped),
                        given = &mut giving => break given,
                        () = clock.sleep_until(tend.looked.plus(LOOK)) => tend.look(),
                    }
                }
            };
            let (done, given, why) = match given {
                Ok(given) => (rows.len(), given, None),
                Err(away) => (away.done, away.given, Some(away.why)),
            };
            if let Some((row, why)) = given.refused.first() {
                let before = *dead;
                *dead += given.refused.len() as u64;
                job.status.meter.unfit(given.refused.len() as u64);
                // Of twice as many a line again: all of them may be refused.
                if before.checked_ilog2() != dead.checked_ilog2() {
                    let number = rows.get(*row).map(|row| row.place.to_string()).unwrap_or_default();
                    tracing::warn!(
                        log = tend.log,
                        number,
                        refused = *dead,
                        "a row is refused for good, and left out: {why}"
                    );
                }
            }
            let bytes = rows[..done].iter().map(|row| row.value.len() as u64).sum();
            job.status.meter.network(bytes);
            rows = &rows[done..];
            if done > 0 {
                pause = PAUSE_MIN;
            }
            tend.trouble = why;
            if tend.trouble.is_some() {
                tend.look();
                let again = clock.monotonic().plus(job.means.dice.jitter(pause));
                pause = (pause * 2).min(PAUSE_MAX);
                while clock.monotonic() < again {
                    tokio::select! {
                        _ = job.stopped() => return Err(End::Stopped),
                        () = clock.sleep_until(again.min(tend.looked.plus(LOOK))) => {}
                    }
                    if clock.monotonic() >= tend.looked.plus(LOOK) {
                        tend.look();
                    }
                }
            }
        }
        tend.trouble = None;
        Ok(())
    }
}
