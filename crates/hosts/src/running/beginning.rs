//! Where a part that reads a log goes on: behind the newest snapshot that reads well, else an older one, else from the beginning
//! of the log, if that is still there. What the log does not hold any more may be in a newer snapshot, of another replica; that
//! is waited for.
//!
//! A stage that went on with a piece of its log missing would say other rows under the numbers that it used before, and those who
//! read it would drop them as known: it says what is wrong, and waits. A sink says what is lost, and goes on with what there is.

use std::time::Duration;

use mutirao_streams::part::{PartCore, SinkCore};
use mutirao_streams::wire::Snapshot;

use super::outputs::extent;
use super::saving::Found;
use super::{Job, saving};

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

impl Core for SinkCore {
    fn next_offset(&self) -> u64 {
        SinkCore::next_offset(self)
    }

    fn skip_to(&mut self, offset: u64) {
        SinkCore::skip_to(self, offset);
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

/// What a part may do that cannot go on where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// Read all of its log again, and no less: a stage, whose rows have numbers.
    ReadAllAgain,
    /// Pass over what is gone, too: a sink, whose other side knows what it has, or may have it twice.
    PassOver,
    /// Nothing, once it remembered something: a sink whose other side cannot tell what it has.
    Neither,
}

/// `fresh`: one that has read nothing.
pub async fn begin<C: Core>(
    job: &Job,
    log: &str,
    may: May,
    fresh: impl Fn() -> C,
    restore: impl Fn(&[u8]) -> Result<C, String>,
) -> Begun<C> {
    loop {
        let (first, end) = extent(job, log).await;
        let (mut core, from) = match saving::restore(job, &restore).await {
            Found::One(core, from) => (core, Some(from)),
            Found::Unreadable(why) if first > 0 || may == May::Neither => {
                saving::unreadable(job, &why).await;
                continue;
            }
            Found::Nothing | Found::Unreadable(_) => (fresh(), None),
        };
        let next = core.next_offset();
        if (first..=end).contains(&next) {
            job.status.trouble_is(None);
            return Begun { core, from, end };
        }
        if next > end {
            // What was read from it is known, and what comes will have numbers that were used before.
            job.status.trouble_is(Some(format!(
                "its log ends at {end}, and it had read up to {next}: the log was lost or made anew; deploy the stream again with \
                 --replace"
            )));
        } else if may == May::ReadAllAgain {
            job.status.trouble_is(Some(format!(
                "records {next} to {first} are no longer in its log: it waits for a newer snapshot of another replica; if there is \
                 none, deploy the stream again with --replace"
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
        job.means.clock.sleep(LOOK).await;
    }
}
