//! Which of the actions that a registration names are taken, and what is to be said of the others. One that is spelt wrongly costs
//! that action and no more; but a node of which nothing is understood would be registered and never asked for anything, so it is
//! refused.

use std::collections::BTreeSet;

use super::Refused;
use crate::allowance::Allowance;
use crate::names::{ActionName, Namespace, Offer};
use crate::wire::Register;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    pub taken: BTreeSet<Offer>,
    /// A line for each that cannot be read, or is another namespace's.
    pub not_understood: Vec<String>,
    /// A line for each that it may not offer.
    pub not_allowed: Vec<String>,
    /// Why it may not come in like this at all.
    pub barred: Option<String>,
}

impl Offered {
    pub fn of(said: &Register, namespace: &Namespace, allowance: &Allowance) -> Self {
        let mut offered = Self { barred: allowance.bars(said), ..Self::default() };
        for text in &said.actions {
            match read(text, namespace).map(|offer| (allowance.forbids(&offer), offer)) {
                Ok((None, offer)) => drop(offered.taken.insert(offer)),
                Ok((Some(why), _)) => offered.not_allowed.push(why),
                Err(why) => offered.not_understood.push(why),
            }
        }
        offered
    }

    /// Whether the whole of it is refused: it may not come in like this, or has actions and would be asked for none of them.
    pub fn refusal(&self) -> Option<Refused> {
        match (&self.barred, self.taken.is_empty()) {
            (Some(_), _) => Some(Refused::NotAllowed),
            (None, true) if !self.not_allowed.is_empty() => Some(Refused::NotAllowed),
            (None, true) if !self.not_understood.is_empty() => Some(Refused::BadAction),
            _ => None,
        }
    }

    /// Why, in a line.
    pub fn complaint(&self) -> String {
        if let Some(why) = &self.barred {
            return why.clone();
        }
        let (what, lines) = match self.not_allowed.is_empty() {
            true => ("understood", &self.not_understood),
            false => ("allowed", &self.not_allowed),
        };
        let first = lines.first().map_or("", String::as_str);
        match lines.len() {
            0 | 1 => first.to_owned(),
            many => format!("none of its {many} actions is {what}; the first: {first}"),
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
