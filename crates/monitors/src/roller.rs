//! Adds outcomes up: those of a minute once it is over, minutes to hours, hours to days. One process does it at a time, the
//! owner of the first shard; what it writes is fenced, and written anew it is the same, so that nothing counts twice.
//!
//! Read and written in pages of bounded size, whatever the number of monitors.

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::StoreError;

use crate::grid::MonitorKey;
use crate::rollup::{self, Ended, Roll, Step};
use crate::store::Settling;
use crate::store::rolls::{Marks, Rolled, SharedRolls, Stretch};

/// The owner of this shard adds up for all.
pub const SHARD: ShardId = ShardId(0);
/// How often.
pub const EVERY: Duration = Duration::from_secs(30);
/// A minute is added up this long after it is over. What is told of it later is in the raw history only.
pub const LAG: Duration = Duration::from_secs(300);
/// Rows of one page.
const PAGE_ROWS: u32 = 20_000;
/// Outcomes that are not yet added up and are looked at for one monitor.
const RAW_ROWS_MAX: u32 = 20_000;
/// Minutes added up together.
const MINUTES_AT_ONCE: u32 = 30;

#[derive(Clone)]
pub struct Roller {
    pub store: SharedRolls,
}

/// Where adding up begins.
enum Begin {
    At(Marks),
    /// There is no outcome.
    Nowhere,
    Fenced,
}

impl Roller {
    /// Adds up all that is complete.
    pub async fn round(&self, fence: &Fence, now: Timestamp) -> Result<Settling, StoreError> {
        let mut marks = match self.marks(fence).await? {
            Begin::At(marks) => marks,
            Begin::Nowhere => return Ok(Settling::Written { new: 0 }),
            Begin::Fenced => return Ok(Settling::Fenced),
        };
        let past = Timestamp(now.0.saturating_sub(LAG.as_millis() as i64));
        for step in Step::ALL {
            let complete = match step.finer() {
                None => step.of(past),
                Some(finer) => marks.get(&finer).map_or(Timestamp(i64::MIN), |mark| step.of(*mark)),
            };
            let mut from = marks.get(&step).copied().unwrap_or(complete);
            while from < complete {
                let at_once = if step == Step::Minute { MINUTES_AT_ONCE } else { 1 };
                let until = from.plus(step.length() * at_once).min(complete);
                if self.add_up(fence, step, from, until).await? == Settling::Fenced {
                    return Ok(Settling::Fenced);
                }
                from = until;
                marks.insert(step, until);
            }
        }
        Ok(Settling::Written { new: 0 })
    }

    /// What the outcomes of a monitor come to, stretch by stretch, up to now: sums as far as they go, finer ones from there on,
    /// and outcomes for the last minutes.
    pub async fn sums(
        &self,
        monitor: MonitorKey,
        step: Step,
        since: Timestamp,
    ) -> Result<BTreeMap<Timestamp, Roll>, StoreError> {
        let marks = self.store.marks().await?;
        let (mut from, mut sums) = (step.of(since), BTreeMap::<Timestamp, Roll>::new());
        for each in Step::ALL.into_iter().rev().filter(|each| *each <= step) {
            let Some(until) = marks.get(&each).copied().filter(|until| *until > from) else { continue };
            for rolled in self.store.rolls(monitor, each, from, until).await? {
                sums.entry(step.of(rolled.at)).or_default().merge(&rolled.roll);
            }
            from = until;
        }
        for (_, at, ended) in self.store.raw(monitor, from, RAW_ROWS_MAX).await? {
            sums.entry(step.of(at)).or_default().add(ended);
        }
        Ok(sums)
    }

    /// Where to go on; before the first time, where the first outcome is.
    async fn marks(&self, fence: &Fence) -> Result<Begin, StoreError> {
        let mut marks = self.store.marks().await?;
        if marks.len() == Step::ALL.len() {
            return Ok(Begin::At(marks));
        }
        let Some(oldest) = self.store.oldest().await? else { return Ok(Begin::Nowhere) };
        let missing: Vec<Step> = Step::ALL.into_iter().filter(|step| !marks.contains_key(step)).collect();
        for step in missing {
            let mark = step.of(oldest);
            if self.store.roll(fence.clone(), step, vec![], Some(mark)).await? == Settling::Fenced {
                return Ok(Begin::Fenced);
            }
            marks.insert(step, mark);
        }
        Ok(Begin::At(marks))
    }

    async fn add_up(
        &self,
        fence: &Fence,
        step: Step,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Settling, StoreError> {
        let mut after = MonitorKey(0);
        loop {
            let stretch = Stretch { from, until, after, rows: PAGE_ROWS };
            let (rolls, last) = match step.finer() {
                None => {
                    let mut ended = self.store.ended(stretch).await?;
                    let last = cut(&mut ended, |(monitor, _, _): &(MonitorKey, Timestamp, Ended)| *monitor);
                    (rollup::gather(step, ended), last)
                }
                Some(finer) => {
                    let mut rolled = self.store.rolled(finer, stretch).await?;
                    let last = cut(&mut rolled, |rolled: &Rolled| rolled.monitor);
                    let parts = rolled.into_iter().map(|one| (one.monitor, one.at, one.roll));
                    (rollup::merge(step, parts), last)
                }
            };
            let rolled =
                rolls.into_iter().map(|((monitor, at), roll)| Rolled { monitor, at, roll }).collect::<Vec<_>>();
            let mark = last.is_none().then_some(until);
            if self.store.roll(fence.clone(), step, rolled, mark).await? == Settling::Fenced {
                return Ok(Settling::Fenced);
            }
            match last {
                Some(monitor) => after = monitor,
                None => return Ok(Settling::Written { new: 0 }),
            }
        }
    }
}

/// Leaves out of a full page its last monitor, of which there may be more, and says which is the last that is whole; none
/// when the page is the last. A page that has only one monitor is whole: no stretch has that many rows of one.
fn cut<T>(rows: &mut Vec<T>, monitor: impl Fn(&T) -> MonitorKey) -> Option<MonitorKey> {
    if (rows.len() as u32) < PAGE_ROWS {
        return None;
    }
    let last = monitor(rows.last()?);
    if monitor(rows.first()?) != last {
        rows.retain(|row| monitor(row) != last);
    }
    rows.last().map(monitor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_page_ends_with_a_monitor_that_is_whole() {
        let page = |len: u32, of: fn(u32) -> u64| (0..len).map(|n| MonitorKey(of(n))).collect::<Vec<_>>();
        let mut short = page(PAGE_ROWS - 1, |n| u64::from(n / 7));
        assert_eq!((cut(&mut short, |key| *key), short.len() as u32), (None, PAGE_ROWS - 1));
        let mut full = page(PAGE_ROWS, |n| u64::from(n / 7));
        let last = u64::from((PAGE_ROWS - 1) / 7);
        assert_eq!(cut(&mut full, |key| *key), Some(MonitorKey(last - 1)));
        assert!(full.iter().all(|key| key.0 < last));
    }
}
