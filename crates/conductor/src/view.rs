//! How streams and hosts look to whoever asks.

use mutirao_core::Timestamp;
use mutirao_core::declared::Became;
use mutirao_streams::wire::{HostView, Measures, State, StreamId, Usage};
use serde::{Deserialize, Serialize};

use crate::store::{Event, StreamState};

/// What became of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StreamDeployed {
    pub name: String,
    #[schema(value_type = String)]
    pub id: StreamId,
    pub became: Became,
}

/// A stream in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StreamLine {
    pub name: String,
    #[schema(value_type = String)]
    pub id: StreamId,
    pub state: StreamState,
    pub owner: String,
    /// How it is, in a word: see [`Health`].
    pub health: Health,
    /// Parts that are to run, each replica for itself.
    pub wanted: u32,
    /// Those that some host runs.
    pub running: u32,
    #[schema(value_type = i64)]
    pub deployed_at: Timestamp,
    #[schema(value_type = i64)]
    pub changed_at: Timestamp,
    pub changed_by: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// All of it runs.
    Good,
    /// Some part has no host yet, starts, or catches up.
    Coming,
    /// Some part cannot go on by itself, and keeps trying; or a replica has no host while another of it runs.
    Waiting,
    /// Some part has failed, or nobody can run it.
    Bad,
    Paused,
    /// Its sources will say no more, and all is done.
    Ended,
}

impl Health {
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Good => "good",
            Health::Coming => "coming",
            Health::Waiting => "waiting",
            Health::Bad => "bad",
            Health::Paused => "paused",
            Health::Ended => "ended",
        }
    }
}

/// A stream, with each of its parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StreamView {
    #[serde(flatten)]
    pub line: StreamLine,
    /// As it was deployed.
    pub definition: String,
    pub parts: Vec<PartView>,
    /// Sources that are pushed to: `POST /v1/streams/{name}/sources/{source}`.
    pub pushes: Vec<String>,
    /// Ports that can be tapped.
    pub ports: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PartView {
    /// `source`, `stage` or `sink`.
    pub kind: String,
    /// That of its definition; of a stage, that of its last operator.
    pub name: String,
    pub replica: u32,
    /// The name of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub epoch: u64,
    /// Why it is there, or nowhere.
    pub why: String,
    #[schema(value_type = i64)]
    pub since: Timestamp,
    /// As its host says; none while it says nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub state: Option<State>,
    /// When its host was heard last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    pub heard_at: Option<Timestamp>,
    /// The offset of its log that it reads next.
    pub next: u64,
    /// Records of its log that it has not read.
    pub lag: u64,
    /// Up to where its newest snapshot is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<u64>,
    #[schema(value_type = Object)]
    pub measures: Measures,
    /// Where it is on its way to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<MoveView>,
}

/// A replica on its way to another host, which runs there too until it has caught up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MoveView {
    /// The name of that host.
    pub to: String,
    pub who: String,
    pub why: String,
    #[schema(value_type = i64)]
    pub since: Timestamp,
    /// The offset that the copy reads next.
    pub next: u64,
    /// Of the copy, as its host says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub state: Option<State>,
}

/// Which replica of a stage is to go where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Migrate {
    /// By its name, or that of an operator in it.
    pub stage: String,
    #[serde(default)]
    pub replica: u32,
    /// The name or id of a host.
    pub to: String,
}

/// It was asked for, and nothing is against it. Whether it came to be, `explain` and `show` tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Migrating {
    pub stage: String,
    pub replica: u32,
    pub to: String,
}

/// Where each part is, and why; what is in the way; and what happened last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Explained {
    pub name: String,
    #[schema(value_type = String)]
    pub id: StreamId,
    pub state: StreamState,
    pub health: Health,
    /// One line each, the worst first; nothing when all is well.
    pub troubles: Vec<String>,
    pub parts: Vec<PartView>,
    /// The newest first.
    pub events: Vec<Event>,
}

/// A host of streams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HostLine {
    #[serde(flatten)]
    pub host: HostView,
    /// Whether it was heard of lately, by whoever answers.
    pub alive: bool,
    #[schema(value_type = i64)]
    pub heard_at: Timestamp,
    pub parts: u32,
    #[schema(value_type = Object)]
    pub node: Usage,
}

/// What became of a push. All that was taken is in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Pushed {
    pub taken: u64,
    /// That did not fit the source's schema; they come out at `SOURCE.unfit`.
    pub unfit: u64,
}

/// Some events of a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Tapped {
    /// The record of the log that they were in.
    pub offset: u64,
    #[schema(value_type = Vec<Object>)]
    pub events: Vec<serde_json::Value>,
}
