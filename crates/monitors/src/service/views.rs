//! Monitors, and what is remembered of them, as people see it.

use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::history::Uptime;
use crate::alerts::{Acknowledged, Attention, Silence};
use crate::health::{Health, State, Verdict};
use crate::maintenance;
use crate::spec::MonitorSpec;
use crate::store::{Incident, MonitorRow, Outcome};

/// A monitor as people see it.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MonitorView {
    /// As it was written; see docs/monitors.md.
    #[schema(value_type = Object)]
    pub definition: MonitorSpec,
    /// Grows with every change of any monitor.
    pub revision: u64,
    pub owner: String,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    pub changed_by: String,
    /// new, up, down or no_data.
    #[schema(value_type = String)]
    pub state: State,
    /// Whether an incident is open.
    pub incident: bool,
    pub flapping: bool,
    /// The instant of the last outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
    /// Whether it may be away now.
    #[serde(default)]
    pub in_maintenance: bool,
    /// While nobody is told anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence: Option<Silence>,
    /// Who takes care of the incident that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledged>,
    /// Why nothing is heard of it, where that is known. Looked up for one monitor, not for a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it called last, if it is one that calls; where one monitor was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_at: Option<Timestamp>,
    /// What its address ends in, `/v1/push/{token}`: in the answer to whoever has it made, and never again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_token: Option<String>,
    /// Where one monitor was asked for.
    #[serde(flatten)]
    pub uptime: Uptime,
    /// Instants of the last day, since its last change, of which there is no outcome; where one monitor was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_day: Option<u64>,
}

/// The outcome of one instant.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OutcomeView {
    pub at: Timestamp,
    /// good or bad.
    #[schema(value_type = String)]
    pub verdict: Verdict,
    /// Microseconds; absent when there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Bad within a maintenance window: it counts neither way.
    #[serde(default)]
    pub excused: bool,
}

/// A time during which it was down.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct IncidentView {
    pub opened_at: Timestamp,
    /// The first of the bad outcomes.
    pub since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
    pub evidence: String,
}

/// One check that was made just now, and not written anywhere.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Tried {
    #[schema(value_type = String)]
    pub verdict: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How it ended, the time of each phase, and what was seen.
    #[schema(value_type = Object)]
    pub seen: mutirao_probes::Observation,
}

pub(super) fn view(health: Option<Health>, attention: Attention, row: MonitorRow, now: Timestamp) -> MonitorView {
    let health = health.unwrap_or_default();
    let in_maintenance = maintenance::covered(&row.spec.maintenance, now);
    MonitorView {
        definition: row.spec,
        revision: row.revision,
        owner: row.owner,
        created_at: row.created_at,
        changed_at: row.changed_at,
        changed_by: row.changed_by,
        state: health.state,
        incident: health.incident,
        flapping: health.flapping,
        last_at: health.last,
        in_maintenance,
        silence: attention.silence.filter(|silence| silence.covers(now)),
        acknowledged: attention.acknowledged.filter(|known| health.opened == Some(known.incident)),
        note: None,
        called_at: None,
        push_token: None,
        uptime: Uptime::default(),
        missed_day: None,
    }
}

impl From<Outcome> for OutcomeView {
    fn from(Outcome { at, verdict, took_us, detail, excused, .. }: Outcome) -> Self {
        Self { at, verdict, took_us, detail, excused }
    }
}

impl From<Incident> for IncidentView {
    fn from(Incident { opened_at, since, closed_at, evidence, .. }: Incident) -> Self {
        Self { opened_at, since, closed_at, evidence }
    }
}
