//! Alerts: who is told of what is believed of a service, and when.
//!
//! - [`rule`] is what a monitor says about it, and what is raised by it: a function of events and time.
//! - [`channel`] is where an alert goes, as people write it; what is secret in it is never shown.
//! - [`fate`] decides of an alert that waits: told now, later or never. Also how often a channel is tried.
//! - [`message`] is what is said; [`template`] lets people say it their way.
//! - [`courier`] sends, and is the only part that is not pure.
//!
//! An alert is written in the transaction that opens or closes the incident it is about, under a key that the event alone
//! decides. So it is raised once, whoever raises it and however often; it is sent at least once, under an id that is the same
//! each time.

pub mod channel;
pub mod courier;
pub mod fate;
pub mod message;
pub mod rule;
pub mod template;

use std::fmt;

use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::grid::MonitorKey;

/// What an alert is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertEvent {
    Opened,
    Closed,
    /// It is still open.
    Reminder,
    Flapping,
    /// It flaps no more.
    Calm,
    NoData,
    /// It is checked again.
    Heard,
}

impl AlertEvent {
    pub const ALL: [AlertEvent; 7] =
        [Self::Opened, Self::Closed, Self::Reminder, Self::Flapping, Self::Calm, Self::NoData, Self::Heard];

    pub fn word(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Closed => "closed",
            Self::Reminder => "reminder",
            Self::Flapping => "flapping",
            Self::Calm => "calm",
            Self::NoData => "no_data",
            Self::Heard => "heard",
        }
    }

    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.word() == word)
    }

    /// Whether it belongs to an incident.
    pub fn of_incident(self) -> bool {
        matches!(self, Self::Opened | Self::Closed | Self::Reminder)
    }
}

impl fmt::Display for AlertEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// An alert that is to be told to one channel. Monitor, `about`, event, turn and channel are its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    pub monitor: MonitorKey,
    /// When the incident opened, or the flapping or the silence began or ended.
    pub about: Timestamp,
    pub event: AlertEvent,
    /// Which of the reminders; zero of everything else.
    pub turn: u32,
    /// The name of the channel.
    pub to: String,
    pub at: Timestamp,
    pub detail: Option<String>,
}

/// Whom somebody has told to be quiet, and what somebody takes care of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Attention {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence: Option<Silence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledged>,
}

/// A time in which nobody is told anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Silence {
    pub from: Timestamp,
    pub until: Timestamp,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Silence {
    pub fn covers(&self, at: Timestamp) -> bool {
        at >= self.from && at < self.until
    }
}

/// Somebody knows of this incident: nobody is reminded of it any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Acknowledged {
    /// When the incident opened.
    pub incident: Timestamp,
    pub at: Timestamp,
    pub by: String,
}
