//! Which of the actions that a registration names are taken, and what is to be said of the others. One that is spelt wrongly costs
//! that action and no more; but a node of which nothing is understood would be registered and never asked for anything, so it is
//! refused.

use std::collections::BTreeSet;

use crate::names::{ActionName, Namespace, Offer};
use crate::wire::Register;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    pub taken: BTreeSet<Offer>,
    /// A line for each that cannot be read, or is another namespace's.
    pub not_understood: Vec<String>,
}

impl Offered {
    pub fn of(said: &Register, namespace: &Namespace) -> Self {
        let mut offered = Self::default();
        for text in &said.actions {
            match read(text, namespace) {
                Ok(offer) => drop(offered.taken.insert(offer)),
                Err(why) => offered.not_understood.push(why),
            }
        }
        offered
    }

    /// It has actions, and will be asked for none of them.
    pub fn is_nothing(&self) -> bool {
        self.taken.is_empty() && !self.not_understood.is_empty()
    }

    /// Why it is refused, if it is.
    pub fn complaint(&self) -> String {
        let first = self.not_understood.first().map_or("", String::as_str);
        match self.not_understood.len() {
            0 | 1 => first.to_owned(),
            many => format!("none of its {many} actions is understood; the first: {first}"),
        }
    }
}

fn read(text: &str, namespace: &Namespace) -> Result<Offer, String> {
    let why = match text.parse::<Offer>() {
        Ok(offer) if offer.action.namespace() == namespace.as_str() => return Ok(offer),
        Ok(offer) => {
            format!("{offer} is of the namespace {}, and this manager's is {namespace}", offer.action.namespace())
        }
        Err(bad) => bad.to_string(),
    };
    Err(match meant(text, namespace) {
        Some(offer) => format!("{why}; {offer} may have been meant"),
        None => why,
    })
}

/// The name behind whatever colons there are, with dots for what separates words elsewhere.
fn meant(text: &str, namespace: &Namespace) -> Option<Offer> {
    let (action, version) = text.trim().split_once('@').unwrap_or((text.trim(), ""));
    let name = action.rsplit(':').next()?.replace(['/', ' '], ".");
    let action = ActionName::within(namespace, name.trim_matches('.')).ok()?;
    let digits = version.trim_start_matches(['v', '0', '+']);
    Some(Offer { action, version: digits.parse().unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        read(text, &Namespace::default()).unwrap_err()
    }

    #[test]
    fn what_was_likely_meant_by_an_action_that_cannot_be_read_is_said() {
        for (text, meant) in [
            ("urn:mutirao:action:blink", "urn:mutirao:Action:blink"),
            ("blink", "urn:mutirao:Action:blink"),
            ("urn:mutirao:blink", "urn:mutirao:Action:blink"),
            ("urn:sapparchi:Action:blink@2", "urn:mutirao:Action:blink@2"),
            ("urn:mutirao:Action:lamp/blink", "urn:mutirao:Action:lamp.blink"),
            ("urn:mutirao:Action:blink@x", "urn:mutirao:Action:blink"),
            ("urn:mutirao:Action:blink@v02", "urn:mutirao:Action:blink@2"),
        ] {
            assert!(line(text).ends_with(&format!("; {meant} may have been meant")), "{text}: {}", line(text));
        }
        assert!(line("urn:sapparchi:Action:a").contains("namespace sapparchi, and this manager's is mutirao"));
        for hopeless in ["", "urn:mutirao:Action:", "#", "urn:mutirao:Action:é"] {
            assert!(line(hopeless).ends_with(", NAME of letters, digits, ., - and _"), "{}", line(hopeless));
        }
    }
}
