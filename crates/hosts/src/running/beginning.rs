//! Where a part that reads a log goes on: behind the newest snapshot that reads well, else an older one, else from the beginning
//! of the log. What the log does not hold any more may be in a newer snapshot, of another replica; that is waited for. If there
//! is none, it says what is lost, and goes on with what there is.

use std::time::Duration;

use mutirao_core::Mono;
use mutirao_streams::part::{PartCore, SinkCore};
use mutirao_streams::wire::Snapshot;

use super::outputs::extent;
use super::{Job, saving};

/// How long a newer snapshot is waited for where there may be one.
const WAIT: Duration = Duration::from_secs(45);
const LOOK: Duration = Duration::from_secs(1);

/// What reads a log.
pub trait Core: Sized {
    fn next_offset(&self) -> u64;
    fn skip_to(&mut self, offset: u64);
}

impl Core for PartCore {
    fn next_offset(&self) -> u64 {
        PartCore::next_offset(self)
    }

    fn skip_to(&mut self, offset: u64) {
        PartCore::skip_to(self, offset);
    }
}

/// With how far the other side was.
impl Core for (SinkCore, Option<Vec<u8>>) {
    fn next_offset(&self) -> u64 {
        self.0.next_offset()
    }

    fn skip_to(&mut self, offset: u64) {
        self.0.skip_to(offset);
    }
}

pub struct Begun<C> {
    pub core: C,
    pub from: Option<Snapshot>,
    /// Where the log ended.
    pub end: u64,
}

/// `fresh`: one that has read nothing. `others`: whether somebody else may have a snapshot that is newer.
pub async fn begin<C: Core>(
    job: &Job,
    log: &str,
    others: bool,
    fresh: impl Fn() -> C,
    restore: impl Fn(&[u8]) -> Result<C, String>,
) -> Begun<C> {
    let (clock, mut since) = (&*job.means.clock, None::<Mono>);
    loop {
        let (first, end) = extent(job, log).await;
        let snapshots = job.order().snapshots;
        let (mut core, from) = match saving::restore(job, &snapshots, &restore).await {
            Some((core, from)) => (core, Some(from)),
            None => (fresh(), None),
        };
        let next = core.next_offset();
        if (first..=end).contains(&next) {
            job.status.trouble_is(None);
            return Begun { core, from, end };
        }
        let now = clock.monotonic();
        let waited = now.since(*since.get_or_insert(now));
        if next > end {
            // What was read from it is known, and what comes will have numbers that were used before.
            job.status.trouble_is(Some(format!(
                "its log ends at {end}, and it had read up to {next}: the log was lost or made anew; deploy the stream again with \
                 --replace"
            )));
        } else if others && waited < WAIT {
            job.status.trouble_is(Some(format!(
                "records {next} to {first} are no longer in its log; waiting for a newer snapshot of another replica"
            )));
        } else {
            tracing::warn!(
                log,
                "records {next} to {first} are no longer there, nor in a snapshot: what was in them is lost"
            );
            core.skip_to(first);
            job.status.trouble_is(None);
            return Begun { core, from, end };
        }
        clock.sleep(LOOK).await;
    }
}
