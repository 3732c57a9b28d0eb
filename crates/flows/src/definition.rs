//! A flow's definition. Reading one only gives it its shape; [`FlowSpec::plan`] says whether it could work, and if not where.
//!
//! ```yaml
//! kind: Flow
//! name: power-factor
//! timeout: 10m
//! steps:
//!   - name: fetch
//!     action: actions.fetch_data
//!     input: { url: input.url }
//!     on: { layer: edge }
//!   - name: factor
//!     action: actions.power_factor
//!     each: steps.fetch.output.rows
//!     at_most: 500
//!     input: { row: item, place: index }
//!     when: size(steps.fetch.output.rows) > 0
//!     retries: 5
//!     timeout: 10s
//!   - name: store
//!     action: actions.store
//!     after: [ factor ]
//! output: steps.factor.output
//! ```
//!
//! What stands under `input`, `when`, `each` and `output` is CEL. It may speak of `input` (the run's), of `steps.NAME.output`
//! and `steps.NAME.skipped`, and within `each` of `item` and `index`. A step that speaks of another comes after it; `after` is
//! for those that do not.

pub mod check;
pub mod declared;
mod mapping;
#[cfg(test)]
mod tests;

pub use mapping::Mapping;
use mutirao_core::quantity::Span;
use mutirao_nodes::routing::Place;
use serde::{Deserialize, Serialize};

pub const STEPS_MAX: usize = 500;
pub const RETRIES_MAX: u32 = 100;
pub const FIELDS_MAX: usize = 64;
pub const ITEMS_MAX: u32 = 10_000;
pub const AT_ONCE_MAX: u32 = 1_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowSpec {
    pub name: String,
    /// For a run as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    pub steps: Vec<StepSpec>,
    /// What a run gives back; with none, the outputs of the steps that no other comes after, by name, or the one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    pub name: String,
    /// Its URN, or what of it comes after `urn:NAMESPACE:Action:`.
    pub action: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// With none: what the step before it gave; of several, by name; of none, the run's input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Mapping>,
    /// Without this it is skipped, and so is what comes after it and has no `when` of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// A list: the step is done for each item, and gives a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<String>,
    /// A longer list fails the run.
    #[serde(default = "StepSpec::at_most", skip_serializing_if = "StepSpec::is_at_most")]
    pub at_most: u32,
    #[serde(default = "StepSpec::at_once", skip_serializing_if = "StepSpec::is_at_once")]
    pub at_once: u32,
    /// After the first try. With none: as many as the action declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// For one try. With none: what the action declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    #[serde(default, skip_serializing_if = "StepSpec::is_anywhere")]
    pub on: Place,
}

impl StepSpec {
    fn at_most() -> u32 {
        100
    }

    fn is_at_most(at_most: &u32) -> bool {
        *at_most == Self::at_most()
    }

    fn at_once() -> u32 {
        16
    }

    fn is_at_once(at_once: &u32) -> bool {
        *at_once == Self::at_once()
    }

    fn is_anywhere(on: &Place) -> bool {
        *on == Place::default()
    }

    /// One that leaves everything as it is.
    pub fn new(name: impl Into<String>, action: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            action: action.into(),
            after: Vec::new(),
            input: None,
            when: None,
            each: None,
            at_most: Self::at_most(),
            at_once: Self::at_once(),
            retries: None,
            timeout: None,
            on: Place::default(),
        }
    }
}
