//! What is remembered of a monitor: outcomes, incidents, sums, how much of the time it was up.

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::auth::Principal;
use mutirao_core::{Problem, Timestamp};
use mutirao_store::refused;
use serde::{Deserialize, Serialize};

use super::{INCIDENTS_SHOWN, IncidentView, Monitors, OutcomeView, PAGE_MAX};
use crate::grid::{Grid, MonitorKey};
use crate::rollup::{Roll, Step};
use crate::spec::Subject;
use crate::store::MonitorRow;

const DAY: Duration = Duration::from_secs(86_400);
/// How long a check may wait, its own time not counted, before it counts as missed.
const UNDER_WAY: Duration = Duration::from_secs(60);

/// What is remembered of a monitor.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct History {
    /// The latest first.
    pub outcomes: Vec<OutcomeView>,
    /// The latest first; where sums were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sums: Vec<SumView>,
    /// The latest first.
    pub incidents: Vec<IncidentView>,
    #[serde(flatten)]
    pub uptime: Uptime,
}

/// How much of the time it was up, in percent of the outcomes that count; absent where there are none. What was bad in
/// maintenance does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Uptime {
    /// 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_day_percent: Option<f64>,
    /// 7 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_week_percent: Option<f64>,
    /// 30 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_month_percent: Option<f64>,
    /// 90 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_quarter_percent: Option<f64>,
}

/// What the outcomes of a minute, an hour or a day came to. Times are in microseconds and right to within 2 %.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SumView {
    /// When it begins; days are those of UTC.
    pub at: Timestamp,
    pub good: u64,
    pub bad: u64,
    /// Bad within a maintenance window.
    pub excused: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<u64>,
    pub longest_us: u64,
}

impl SumView {
    fn new(at: Timestamp, roll: &Roll) -> Self {
        Self {
            at,
            good: roll.good,
            bad: roll.bad,
            excused: roll.excused,
            uptime_percent: roll.uptime_percent(),
            p50_us: roll.times.quantile(0.5),
            p95_us: roll.times.quantile(0.95),
            p99_us: roll.times.quantile(0.99),
            longest_us: roll.longest_us,
        }
    }
}

impl Monitors {
    pub async fn history(
        &self,
        caller: &Principal,
        name: &str,
        before: Option<Timestamp>,
        rows: u32,
    ) -> Result<History, Problem> {
        let row = self.row(caller, name).await?;
        let before = before.unwrap_or(Timestamp(i64::MAX));
        let outcomes = self.0.store.outcomes(row.key, before, rows.min(PAGE_MAX)).await.map_err(refused)?;
        let outcomes = outcomes.into_iter().map(OutcomeView::from).collect();
        self.remembered(row.key, outcomes, vec![]).await
    }

    /// Sums instead of outcomes: the last so many minutes, hours or days.
    pub async fn sums(&self, caller: &Principal, name: &str, by: Step, rows: u32) -> Result<History, Problem> {
        let row = self.row(caller, name).await?;
        let rows = rows.clamp(1, PAGE_MAX);
        let since = before(self.0.clock.now(), by.length() * (rows - 1));
        let sums = self.0.roller.sums(row.key, by, since).await.map_err(refused)?;
        let sums = sums.iter().rev().map(|(at, roll)| SumView::new(*at, roll)).collect();
        self.remembered(row.key, vec![], sums).await
    }

    async fn remembered(
        &self,
        key: MonitorKey,
        outcomes: Vec<OutcomeView>,
        sums: Vec<SumView>,
    ) -> Result<History, Problem> {
        let incidents = self.0.store.incidents(key, INCIDENTS_SHOWN).await.map_err(refused)?;
        let incidents = incidents.into_iter().map(IncidentView::from).collect();
        let uptime = self.uptime(key, &self.last_day(key).await?).await?;
        Ok(History { outcomes, sums, incidents, uptime })
    }

    /// How a monitor did, and of how many instants there is no outcome: of the last day, but not before its last change.
    pub(super) async fn record(&self, row: &MonitorRow) -> Result<(Uptime, Option<u64>), Problem> {
        let now = self.0.clock.now();
        let minutes = self.last_day(row.key).await?;
        let uptime = self.uptime(row.key, &minutes).await?;
        if row.spec.paused {
            return Ok((uptime, None));
        }
        // Whole minutes; a check of the last ones may still be under way.
        // Whoever calls has some time for its first call.
        let first = match &row.spec.subject {
            Subject::Check(_) => row.changed_at,
            Subject::Push(push) => row.changed_at.plus(row.spec.every.0 + push.grace(row.spec.every.0)),
        };
        let from = Step::Minute.of(before(now, DAY).max(first)).plus(Step::Minute.length());
        let until = Step::Minute.of(before(now, UNDER_WAY + row.spec.timeout.0 * (row.spec.retries + 1)));
        if until <= from {
            return Ok((uptime, Some(0)));
        }
        let there: u64 = minutes.range(from..until).map(|(_, roll)| roll.good + roll.bad + roll.excused).sum();
        let due = Grid::new(&row.uuid, row.spec.every.0).count(from, until);
        Ok((uptime, Some(due.saturating_sub(there))))
    }

    async fn last_day(&self, key: MonitorKey) -> Result<BTreeMap<Timestamp, Roll>, Problem> {
        let since = before(self.0.clock.now(), DAY);
        self.0.roller.sums(key, Step::Minute, since).await.map_err(refused)
    }

    /// The day by the minute, the rest by the hour.
    async fn uptime(&self, key: MonitorKey, minutes: &BTreeMap<Timestamp, Roll>) -> Result<Uptime, Problem> {
        let now = self.0.clock.now();
        let hours = self.0.roller.sums(key, Step::Hour, before(now, DAY * 90)).await.map_err(refused)?;
        let last = |days: u32| hours.range(Step::Hour.of(before(now, DAY * days))..).map(|(_, roll)| roll);
        Ok(Uptime {
            uptime_day_percent: share(minutes.values()),
            uptime_week_percent: share(last(7)),
            uptime_month_percent: share(last(30)),
            uptime_quarter_percent: share(last(90)),
        })
    }
}

fn share<'a>(rolls: impl Iterator<Item = &'a Roll>) -> Option<f64> {
    let (good, bad) = rolls.fold((0, 0), |(good, bad), roll| (good + roll.good, bad + roll.bad));
    Roll { good, bad, ..Roll::default() }.uptime_percent()
}

fn before(now: Timestamp, span: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(span.as_millis() as i64))
}
