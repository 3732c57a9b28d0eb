//! What a node may say of itself, as whoever let it in wrote down: which actions it may offer, in which layer, with which labels,
//! and how many tasks it may have at once. What was not said is not bounded.

use std::collections::BTreeMap;

use mutirao_core::node::Allowance as Spec;
use serde::{Deserialize, Serialize};

use crate::Layer;
use crate::names::{Namespace, Offer};
use crate::wire::Register;

const PATTERNS_MAX: usize = 64;
const PATTERN_CHARS_MAX: usize = 110;
/// Each makes a name be looked at once more from every place in it.
const STARS_MAX: usize = 3;
const LABELS_MAX: usize = 32;
const LABEL_CHARS_MAX: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    /// Names without what all of a namespace begin with; `*` stands for anything, `@2` behind one for that version only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    actions: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layer: Option<Layer>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
}

/// What whoever let a node in answers for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warrant {
    /// It came in by a key of its own.
    pub by_key: bool,
    pub allowance: Allowance,
}

impl Warrant {
    /// For what it offers, and not only for who it is.
    pub fn covers_actions(&self) -> bool {
        self.by_key || self.allowance.names_actions()
    }
}

/// Which field says what cannot be, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAllowance {
    pub field: &'static str,
    pub why: String,
}

impl Allowance {
    pub fn checked(spec: Spec, namespace: &Namespace) -> Result<Self, BadAllowance> {
        let bad = |field: &'static str| move |why: String| BadAllowance { field, why };
        let Spec { actions, layer, labels, slots } = spec;
        if actions.len() > PATTERNS_MAX {
            return Err(bad("actions")(format!("there are {} patterns, the most is {PATTERNS_MAX}", actions.len())));
        }
        let actions: Result<_, _> = actions.iter().map(|one| pattern(one, namespace)).collect();
        let in_bounds = |(key, value): (&String, &String)| key.len().max(value.len()) <= LABEL_CHARS_MAX;
        if labels.len() > LABELS_MAX || !labels.iter().all(in_bounds) {
            let why = format!("at most {LABELS_MAX} labels, of {LABEL_CHARS_MAX} bytes at most");
            return Err(bad("labels")(why));
        }
        let layer = layer.map(|text| match text.to_ascii_lowercase().as_str() {
            "edge" => Ok(Layer::Edge),
            "fog" => Ok(Layer::Fog),
            "cloud" => Ok(Layer::Cloud),
            _ => Err("write edge, fog or cloud".to_owned()),
        });
        if slots == Some(0) {
            return Err(bad("slots")("a node without slots is given nothing: write 1 or more".into()));
        }
        let (actions, layer) = (actions.map_err(bad("actions"))?, layer.transpose().map_err(bad("layer"))?);
        Ok(Self { actions, layer, labels, slots })
    }

    /// As it is kept.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What cannot be read permits nothing.
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| Self { actions: vec![String::new()], ..Self::default() })
    }

    pub fn names_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// Why not, in a line.
    pub fn forbids(&self, offer: &Offer) -> Option<String> {
        let fits = |pattern: &String| {
            let (name, version) = pattern.split_once('@').unwrap_or((pattern, ""));
            matches(name, offer.action.short()) && (version.is_empty() || version == offer.version.to_string())
        };
        let allowed = self.actions.is_empty() || self.actions.iter().any(fits);
        (!allowed).then(|| format!("{offer} is not among the actions that it may offer: {}", self.actions.join(", ")))
    }

    /// Why it may not come in like this at all.
    pub fn bars(&self, said: &Register) -> Option<String> {
        let named = |layer: Layer| format!("{layer:?}").to_lowercase();
        if let Some(layer) = self.layer.filter(|layer| *layer != said.layer) {
            return Some(format!("it may be in the layer {} only, and says {}", named(layer), named(said.layer)));
        }
        if self.labels.is_empty() {
            return None;
        }
        let outside = said.labels.iter().find(|(key, value)| self.labels.get(*key) != Some(value));
        outside.map(|(key, value)| {
            let its: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("{key}={value} is not among the labels that it may have: {}", its.join(", "))
        })
    }

    pub fn slots(&self, said: u32) -> u32 {
        self.slots.map_or(said, |most| said.min(most))
    }
}

impl From<Allowance> for Spec {
    fn from(allowance: Allowance) -> Self {
        let Allowance { actions, layer, labels, slots } = allowance;
        Self { actions, layer: layer.map(|layer| format!("{layer:?}").to_lowercase()), labels, slots }
    }
}

fn pattern(text: &str, namespace: &Namespace) -> Result<String, String> {
    let short = text.strip_prefix(&format!("urn:{namespace}:Action:")).unwrap_or(text);
    let (name, version) = short.split_once('@').unwrap_or((short, "1"));
    let spelt = |c: char| c.is_ascii_alphanumeric() || ".-_*".contains(c);
    let good = !name.is_empty() && name.len() <= PATTERN_CHARS_MAX && name.chars().all(spelt);
    let counted = version.parse::<u32>().is_ok_and(|number| number.to_string() == version);
    if good && counted && name.matches('*').count() <= STARS_MAX {
        return Ok(short.to_owned());
    }
    let shown: String = text.chars().take(60).collect();
    Err(format!("\"{shown}\" names no actions: write blink, meter.*, or blink@2 for one version"))
}

/// Both are ASCII.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => {
            text.strip_prefix(head).is_some_and(|left| (0..=left.len()).any(|at| matches(rest, &left[at..])))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowing(actions: &[&str]) -> Result<Allowance, BadAllowance> {
        let actions = actions.iter().map(|one| one.to_string()).collect();
        Allowance::checked(Spec { actions, ..Spec::default() }, &Namespace::default())
    }

    #[test]
    fn patterns_name_actions_and_versions() {
        let allowance = allowing(&["blink", "meter.*", "urn:mutirao:Action:sum@2", "*-log.*"]).unwrap();
        for (offer, allowed) in [
            ("blink", true),
            ("blink@7", true),
            ("blinker", false),
            ("meter.read", true),
            ("meter", false),
            ("sum@2", true),
            ("sum@3", false),
            ("sum", false),
            ("door-log.write", true),
        ] {
            let offer: Offer = format!("urn:mutirao:Action:{offer}").parse().unwrap();
            assert_eq!(allowance.forbids(&offer).is_none(), allowed, "{offer}");
        }
        assert_eq!(Allowance::read(&allowance.text()), allowance);
        for bad in ["", "a b", "urn:other:Action:x", "a@0x", "a@", "a*b*c*d*e", "#"] {
            assert_eq!(allowing(&[bad]).unwrap_err().field, "actions", "{bad}");
        }
    }

    #[test]
    fn what_was_not_said_is_not_bounded_and_what_cannot_be_read_permits_nothing() {
        let offer: Offer = "urn:mutirao:Action:x@9".parse().unwrap();
        let free = allowing(&[]).unwrap();
        assert!(free.forbids(&offer).is_none() && !free.names_actions() && free.slots(16) == 16);
        assert_eq!(Allowance::read("{}"), free);
        assert!(Allowance::read("?").forbids(&offer).is_some() && Allowance::read(r#"{"layer":7}"#).names_actions());
        let bad = |spec: Spec| Allowance::checked(spec, &Namespace::default()).unwrap_err().field;
        assert_eq!(bad(Spec { layer: Some("sky".into()), ..Spec::default() }), "layer");
        assert_eq!(bad(Spec { slots: Some(0), ..Spec::default() }), "slots");
    }
}
