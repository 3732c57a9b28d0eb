//! What people ask about alerts: channels, who is told what, be quiet, I know.

use std::collections::{BTreeSet, HashMap};

use mutirao_core::auth::Principal;
use mutirao_core::declared::Wrong;
use mutirao_core::quantity::Span;
use mutirao_core::{Problem, Timestamp};
use mutirao_store::refused;
use serde::{Deserialize, Serialize};

use super::{Monitors, Programs};
use crate::alerts::channel::{ChannelSpec, Way};
use crate::alerts::message::{About, Answer, Message};
use crate::alerts::rule::Rule;
use crate::alerts::{Acknowledged, AlertEvent, Attention, Raised, Silence};
use crate::grid::MonitorKey;
use crate::store::alerts::{AlertRow, ChannelRow, Delivery};

/// Channels of one namespace.
pub const CHANNELS_MAX: usize = 1_000;
/// Alerts shown.
pub const ALERTS_SHOWN_MAX: u32 = 1_000;
/// The longest silence.
const SILENCE_MAX: std::time::Duration = std::time::Duration::from_secs(366 * 86_400);
const WHY_CHARS_MAX: usize = 300;

/// A channel as people see it: what is secret is not shown.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ChannelView {
    #[schema(value_type = Object)]
    pub definition: ChannelSpec,
    pub changed_at: Timestamp,
    pub changed_by: String,
}

/// An alert, and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AlertView {
    /// opened, closed, reminder, flapping, calm, no_data or heard.
    #[schema(value_type = String)]
    pub event: AlertEvent,
    /// The channel.
    pub to: String,
    pub raised_at: Timestamp,
    /// When the incident opened, or the flapping or the silence began or ended.
    pub about: Timestamp,
    /// Which of the reminders.
    #[serde(default)]
    pub reminder: u32,
    /// sent, dropped (there was a reason not to tell) or given_up; absent while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub delivery: Option<Delivery>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// When it is tried next, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    pub tries: u32,
    /// What the channel said last, or why it was not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// For how long nobody is to be told anything.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SilenceSpec {
    /// As 2h.
    #[serde(rename = "for")]
    #[schema(value_type = String)]
    pub length: Span,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What becomes of a channel that monitors still tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    IfUnused,
    /// Their alerts are given up.
    Anyway,
}

impl Monitors {
    pub async fn put_channel(&self, caller: &Principal, spec: ChannelSpec) -> Result<ChannelView, Problem> {
        let there = self.0.alerts.channels(caller.namespace.clone()).await.map_err(refused)?;
        let same = there.iter().find(|row| row.spec.name == spec.name);
        if same.is_none() && there.len() >= CHANNELS_MAX {
            return Err(too_many());
        }
        let spec = self.sound_channel(spec, same)?;
        // What is there already is not changed, and nobody is said to have changed it.
        if let Some(same) = same.filter(|row| row.spec == spec) {
            return Ok(same.clone().into());
        }
        let by = self.by(caller);
        let row = ChannelRow { spec: spec.clone(), changed_at: by.at, changed_by: by.who.clone() };
        self.0.alerts.put_channel(spec, by).await.map_err(refused)?;
        Ok(row.into())
    }

    /// As it would be written, over what is there. One that is the same as that is left alone.
    fn sound_channel(&self, spec: ChannelSpec, same: Option<&ChannelRow>) -> Result<ChannelSpec, Problem> {
        let spec = spec.keeping(same.map(|row| &row.spec))?;
        if same.is_some_and(|row| row.spec == spec) {
            return Ok(spec);
        }
        spec.check()?;
        if matches!(spec.way, Way::Exec(_)) && self.0.programs == Programs::Refused {
            let detail = "programs would run as the manager's user and could read its secrets";
            return Err(
                Problem::invalid("exec", detail).remedy("whoever runs the manager can allow it: monitors.exec=allowed")
            );
        }
        Ok(spec)
    }

    /// Those that would be refused, and why. Nothing is written.
    pub async fn wrong_channels(&self, caller: &Principal, all: Vec<ChannelSpec>) -> Result<Vec<Wrong>, Problem> {
        let there: HashMap<String, ChannelRow> =
            self.channels_there(caller).await?.into_iter().map(|row| (row.spec.name.clone(), row)).collect();
        let (mut wrong, mut names, mut total) = (Vec::new(), BTreeSet::new(), there.len());
        for (at, spec) in all.into_iter().enumerate() {
            let same = there.get(&spec.name);
            if !names.insert(spec.name.clone()) {
                wrong.push(Wrong::twice(at));
            } else if same.is_none() {
                total += 1;
            }
            if same.is_none() && total > CHANNELS_MAX {
                wrong.push(Wrong { at, problem: too_many() });
            }
            wrong.extend(self.sound_channel(spec, same).err().map(|problem| Wrong { at, problem }));
        }
        Ok(wrong)
    }

    /// One that monitors tell stays, unless it is wanted gone all the same.
    pub async fn remove_channel(&self, caller: &Principal, name: &str, whether: Removal) -> Result<(), Problem> {
        let told_by = self.0.alerts.told_by(caller.namespace.clone(), name.into()).await.map_err(refused)?;
        if told_by > 0 && whether == Removal::IfUnused {
            let who = if told_by == 1 { "a monitor tells".into() } else { format!("{told_by} monitors tell") };
            return Err(Problem::conflict(format!("{who} channel {name}, and would tell nobody"))
                .remedy("let them tell another first, or say --force"));
        }
        match self.0.alerts.remove_channel(name.into(), self.by(caller)).await.map_err(refused)? {
            true => Ok(()),
            false => Err(missing(name)),
        }
    }

    /// By name.
    pub async fn channels(&self, caller: &Principal) -> Result<Vec<ChannelView>, Problem> {
        let rows = self.0.alerts.channels(caller.namespace.clone()).await.map_err(refused)?;
        Ok(rows.into_iter().map(ChannelView::from).collect())
    }

    pub async fn channel(&self, caller: &Principal, name: &str) -> Result<ChannelView, Problem> {
        self.channel_row(caller, name).await.map(ChannelView::from)
    }

    /// Sends something harmless, now, and says how that ended.
    pub async fn test_channel(&self, caller: &Principal, name: &str) -> Result<(), Problem> {
        let channel = self.channel_row(caller, name).await?.spec;
        let now = self.0.clock.now();
        let raised = Raised {
            monitor: MonitorKey(0),
            about: now,
            event: AlertEvent::Opened,
            turn: 0,
            to: name.into(),
            at: now,
            detail: Some(format!("nothing is wrong, {} tries this channel", caller.name)),
        };
        let labels = Default::default();
        let about = About {
            uuid: "test",
            monitor: "test",
            namespace: &caller.namespace,
            labels: &labels,
            since: None,
            closed_at: None,
            evidence: None,
        };
        match self.0.courier.send(&channel, &Message::new(&raised, &about)).await {
            Answer::Taken => Ok(()),
            Answer::NotNow(why) | Answer::Refused(why) => {
                Err(Problem::new(502, "not-taken", "the channel did not take it").detail(why))
            }
        }
    }

    /// The latest first.
    pub async fn alerts(&self, caller: &Principal, name: &str, rows: u32) -> Result<Vec<AlertView>, Problem> {
        let row = self.row(caller, name).await?;
        let rows = self.0.alerts.alerts(row.key, rows.min(ALERTS_SHOWN_MAX)).await.map_err(refused)?;
        Ok(rows.into_iter().map(AlertView::from).collect())
    }

    /// Somebody takes care: nobody is reminded of the incident that is open.
    pub async fn acknowledge(&self, caller: &Principal, name: &str) -> Result<Acknowledged, Problem> {
        let row = self.row(caller, name).await?;
        let health = self.0.store.health(vec![row.key]).await.map_err(refused)?;
        let opened = health.into_iter().find_map(|(_, health)| health.opened);
        let incident = opened.ok_or_else(|| Problem::conflict(format!("no incident of {name} is open")))?;
        let mut attention = self.attention(row.key).await?;
        let by = self.by(caller);
        let acknowledged = Acknowledged { incident, at: by.at, by: by.who.clone() };
        attention.acknowledged = Some(acknowledged.clone());
        self.0.alerts.attend(row.key, attention, by).await.map_err(refused)?;
        Ok(acknowledged)
    }

    pub async fn silence(&self, caller: &Principal, name: &str, spec: SilenceSpec) -> Result<Silence, Problem> {
        let SilenceSpec { length, why } = spec;
        if length.0.is_zero() || length.0 > SILENCE_MAX {
            return Err(Problem::invalid("for", format!("{length} is no time, or longer than a year")));
        }
        if why.as_ref().is_some_and(|why| why.chars().count() > WHY_CHARS_MAX) {
            return Err(Problem::invalid("why", format!("a reason has up to {WHY_CHARS_MAX} characters")));
        }
        let row = self.row(caller, name).await?;
        let mut attention = self.attention(row.key).await?;
        let by = self.by(caller);
        let silence = Silence { from: by.at, until: by.at.plus(length.0), by: by.who.clone(), why };
        attention.silence = Some(silence.clone());
        self.0.alerts.attend(row.key, attention, by).await.map_err(refused)?;
        Ok(silence)
    }

    /// Ends a silence; what waited for its end is told now.
    pub async fn unsilence(&self, caller: &Principal, name: &str) -> Result<(), Problem> {
        let row = self.row(caller, name).await?;
        let mut attention = self.attention(row.key).await?;
        let by = self.by(caller);
        if let Some(silence) = &mut attention.silence {
            silence.until = silence.until.min(by.at);
        }
        self.0.alerts.attend(row.key, attention, by).await.map_err(refused)
    }

    /// Whom a monitor wants to tell must be there.
    pub(super) async fn know_channels(&self, caller: &Principal, rules: &[Rule]) -> Result<(), Problem> {
        if rules.is_empty() {
            return Ok(());
        }
        let there = self.channels_there(caller).await?.into_iter().map(|row| row.spec.name).collect();
        Self::unknown_channel(&there, rules).map_or(Ok(()), Err)
    }

    pub(super) async fn channels_there(&self, caller: &Principal) -> Result<Vec<ChannelRow>, Problem> {
        self.0.alerts.channels(caller.namespace.clone()).await.map_err(refused)
    }

    /// What is wrong with the first rule that names a channel that is not there.
    pub(super) fn unknown_channel(there: &BTreeSet<String>, rules: &[Rule]) -> Option<Problem> {
        let (n, rule) = rules.iter().enumerate().find(|(_, rule)| !there.contains(&rule.to))?;
        let to: String = rule.to.chars().take(100).collect();
        let wrong = Problem::invalid(&format!("alerts[{n}].to"), format!("there is no channel \"{to}\""));
        Some(wrong.remedy("`mutirao monitor channel list` shows those that are there"))
    }

    pub(super) async fn attentions(&self, keys: Vec<MonitorKey>) -> Result<HashMap<MonitorKey, Attention>, Problem> {
        Ok(self.0.alerts.attention(keys).await.map_err(refused)?.into_iter().collect())
    }

    async fn attention(&self, key: MonitorKey) -> Result<Attention, Problem> {
        Ok(self.attentions(vec![key]).await?.remove(&key).unwrap_or_default())
    }

    async fn channel_row(&self, caller: &Principal, name: &str) -> Result<ChannelRow, Problem> {
        let found = self.0.alerts.channel(caller.namespace.clone(), name.into()).await.map_err(refused)?;
        found.ok_or_else(|| missing(name))
    }
}

impl From<ChannelRow> for ChannelView {
    fn from(ChannelRow { spec, changed_at, changed_by }: ChannelRow) -> Self {
        Self { definition: spec.shown(), changed_at, changed_by }
    }
}

impl From<AlertRow> for AlertView {
    fn from(AlertRow { raised, tries, next_at, ended, note }: AlertRow) -> Self {
        Self {
            event: raised.event,
            to: raised.to,
            raised_at: raised.at,
            about: raised.about,
            reminder: raised.turn,
            delivery: ended.map(|(delivery, _)| delivery),
            ended_at: ended.map(|(_, at)| at),
            next_at: ended.is_none().then_some(next_at),
            tries,
            note,
        }
    }
}

fn too_many() -> Problem {
    Problem::conflict(format!("there are {CHANNELS_MAX} channels already"))
}

fn missing(name: &str) -> Problem {
    let name: String = name.chars().take(100).collect();
    Problem::not_found(format!("there is no channel \"{name}\""))
        .remedy("`mutirao monitor channel list` shows those that are there")
}
