//! Where checks are to be made: `on: {layer: edge, labels: {zone: a}}`. A checker stands somewhere; it takes what is to be
//! made there, and what may be made anywhere.
//!
//! Checks of one place wait together, in a queue that is named by the [mark](Place::mark) of the place. Owners say now and
//! then which places they have checks for ([`Places`](crate::envelope::Places)), so checkers need to know of no monitor.

use std::collections::BTreeMap;
use std::fmt;

use mutirao_core::Problem;
use mutirao_elastic::packing::Layer;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const LABELS_MAX: usize = 8;
const LABEL_CHARS_MAX: usize = 60;

/// What a checker must be like for a check. All of it must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<Layer>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// What a checker is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub layer: Layer,
    pub labels: BTreeMap<String, String>,
}

impl Place {
    pub fn fits(&self, standing: &Standing) -> bool {
        self.layer.is_none_or(|layer| layer == standing.layer)
            && self.labels.iter().all(|(key, value)| standing.labels.get(key) == Some(value))
    }

    /// The same for the same place, whoever asks: sixteen digits in base 16.
    pub fn mark(&self) -> String {
        let mut digest = Sha256::new();
        let mut word = |text: &str| {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text);
        };
        word(self.layer.map_or("", word_of));
        for (key, value) in &self.labels {
            word(key);
            word(value);
        }
        digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn check(&self) -> Result<(), Problem> {
        if self.layer.is_none() && self.labels.is_empty() {
            return Err(Problem::invalid("on", "it names neither a layer nor labels").remedy("leave it out: anywhere"));
        }
        if self.labels.len() > LABELS_MAX {
            let detail = format!("{} are too many, the most is {LABELS_MAX}", self.labels.len());
            return Err(Problem::invalid("on.labels", detail));
        }
        let wrong = |text: &str| text.is_empty() || text.chars().count() > LABEL_CHARS_MAX;
        match self.labels.iter().find(|(key, value)| wrong(key) || wrong(value)) {
            None => Ok(()),
            Some((key, _)) => {
                let field = format!("on.labels.{}", key.chars().take(40).collect::<String>());
                let detail = format!("a label and its value have 1 to {LABEL_CHARS_MAX} characters");
                Err(Problem::invalid(&field, detail))
            }
        }
    }
}

fn word_of(layer: Layer) -> &'static str {
    match layer {
        Layer::Edge => "edge",
        Layer::Fog => "fog",
        Layer::Cloud => "cloud",
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layer = self.layer.map(|layer| format!("layer {}", word_of(layer)));
        let labels = self.labels.iter().map(|(key, value)| format!("{key}={value}"));
        f.write_str(&layer.into_iter().chain(labels).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(json: &str) -> Place {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn all_that_a_place_asks_for_must_be_there() {
        let labels = BTreeMap::from([("zone".into(), "a".into()), ("net".into(), "lab".into())]);
        let here = Standing { layer: Layer::Edge, labels };
        for (json, fits) in [
            (r#"{"layer": "edge"}"#, true),
            (r#"{"labels": {"zone": "a"}}"#, true),
            (r#"{"layer": "edge", "labels": {"zone": "a", "net": "lab"}}"#, true),
            (r#"{"layer": "fog", "labels": {"zone": "a"}}"#, false),
            (r#"{"labels": {"zone": "b"}}"#, false),
            (r#"{"labels": {"disk": "a"}}"#, false),
        ] {
            assert_eq!(place(json).fits(&here), fits, "{json}");
        }
    }

    #[test]
    fn a_mark_is_of_one_place_only() {
        let marks: std::collections::BTreeSet<String> = [
            r#"{"layer": "edge"}"#,
            r#"{"labels": {"edge": "a"}}"#,
            r#"{"labels": {"a": "bc"}}"#,
            r#"{"labels": {"ab": "c"}}"#,
            r#"{"labels": {"a": "b", "c": "d"}}"#,
        ]
        .map(|json| place(json).mark())
        .into();
        assert_eq!(marks.len(), 5);
        assert!(marks.iter().all(|mark| mark.len() == 16 && mark.chars().all(|c| c.is_ascii_hexdigit())));
    }

    #[test]
    fn one_that_asks_for_nothing_is_refused_and_one_that_asks_is_said_in_words() {
        assert!(place("{}").check().unwrap_err().line().starts_with("on: it names neither"));
        assert!(place(r#"{"labels": {"": "x"}}"#).check().is_err());
        let both = place(r#"{"layer": "fog", "labels": {"zone": "a"}}"#);
        assert!(both.check().is_ok());
        assert_eq!(both.to_string(), "layer fog, zone=a");
    }
}
