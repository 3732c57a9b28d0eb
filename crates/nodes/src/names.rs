//! What things may be called that become part of exchanges, routing keys, queues and topics. A dot separates words of a
//! routing key, a slash those of a topic; `*`, `#` and `+` are wildcards. None of them gets into a name that stands
//! between separators, or a message would reach somebody else: with a dot allowed, the queue of node `a.python` would be
//! the one that node `a` declares for its Python worker.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const NAMESPACE_CHARS_MAX: usize = 32;
const NODE_CHARS_MAX: usize = 64;
const ACTION_CHARS_MAX: usize = 100;

/// A name that cannot be used, and what one looks like.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not {what}: write {form}")]
pub struct BadName {
    text: String,
    what: &'static str,
    form: &'static str,
}

fn bad(text: &str, what: &'static str, form: &'static str) -> BadName {
    BadName { text: text.chars().take(64).collect(), what, form }
}

fn fits(text: &str, chars_max: usize, besides: &str) -> bool {
    (1..=chars_max).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || besides.contains(c))
}

/// What all names of an installation begin with.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Arc<str>);

impl Default for Namespace {
    fn default() -> Self {
        Self("mutirao".into())
    }
}

impl FromStr for Namespace {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        match fits(text, NAMESPACE_CHARS_MAX, "-_") {
            true => Ok(Self(text.into())),
            false => Err(bad(text, "a namespace", "1 to 32 letters, digits, - and _")),
        }
    }
}

/// A node. Colons are let in, because many devices are called after their network address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Arc<str>);

impl FromStr for NodeId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        match fits(text, NODE_CHARS_MAX, "-_:") {
            true => Ok(Self(text.into())),
            false => Err(bad(text, "a node's id", "1 to 64 letters, digits, -, _ and :, without dots and slashes")),
        }
    }
}

/// An action, by its URN: `urn:mutirao:Action:actions.power_factor`.
///
/// ```
/// use mutirao_nodes::{ActionName, Namespace};
/// let namespace = Namespace::default();
/// let short = ActionName::within(&namespace, "actions.power_factor").unwrap();
/// assert_eq!(short, "urn:mutirao:Action:actions.power_factor".parse().unwrap());
/// assert!(ActionName::within(&namespace, "actions/#").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionName(Arc<str>);

impl ActionName {
    /// As people write it: whole, or without what all of a namespace begin with.
    pub fn within(namespace: &Namespace, text: &str) -> Result<Self, BadName> {
        if text.starts_with("urn:") { text.parse() } else { format!("urn:{namespace}:Action:{text}").parse() }
    }

    pub fn namespace(&self) -> &str {
        self.0.split(':').nth(1).unwrap_or_default()
    }

    /// Without what all of a namespace begin with.
    pub fn short(&self) -> &str {
        self.0.rsplit(':').next().unwrap_or_default()
    }
}

impl FromStr for ActionName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let wrong = || bad(text, "an action", "urn:NAMESPACE:Action:NAME, NAME of letters, digits, ., - and _");
        let parts: Vec<&str> = text.split(':').collect();
        let [urn, namespace, kind, name] = parts[..] else { return Err(wrong()) };
        let words = name.split('.').all(|word| !word.is_empty());
        let good = urn == "urn" && kind == "Action" && namespace.parse::<Namespace>().is_ok();
        if good && words && fits(name, ACTION_CHARS_MAX, ".-_") { Ok(Self(text.into())) } else { Err(wrong()) }
    }
}

/// An action that a node has, in some version: `urn:mutirao:Action:actions.power_factor@2`. Nodes that know of no versions
/// have version 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offer {
    pub action: ActionName,
    pub version: u32,
}

impl FromStr for Offer {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let Some((action, version)) = text.split_once('@') else {
            return Ok(Self { action: text.parse()?, version: 0 });
        };
        // One spelling for each: `@02`, `@+2` and `@0` are nobody's.
        let wrong = || bad(text, "an action and its version", "urn:NAMESPACE:Action:NAME@2");
        let number = version.parse().ok().filter(|number: &u32| *number > 0 && number.to_string() == version);
        Ok(Self { action: action.parse()?, version: number.ok_or_else(wrong)? })
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            0 => write!(f, "{}", self.action),
            version => write!(f, "{}@{version}", self.action),
        }
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! plain_text {
    ($($name:ty),*) => { $(
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )* };
}
plain_text!(Namespace, NodeId, ActionName);

macro_rules! as_text {
    ($($name:ty),*) => { $(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )* };
}
as_text!(Namespace, NodeId, ActionName, Offer);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_name_holds_what_would_misroute_it(text in "[a-zA-Z0-9:._/+#* @-]{0,70}") {
            if let Ok(node) = text.parse::<NodeId>() {
                prop_assert!(!node.as_str().contains(['.', '/', '+', '#', '*', ' ', '@']));
            }
            if let Ok(namespace) = text.parse::<Namespace>() {
                prop_assert!(!namespace.as_str().contains(['.', '/', '+', '#', '*', ':', '@']));
            }
            if let Ok(offer) = format!("urn:n:Action:{text}").parse::<Offer>() {
                prop_assert!(!offer.action.as_str().contains(['/', '+', '#', '*', ' ', '@']));
                prop_assert_eq!(offer.to_string(), format!("urn:n:Action:{text}"));
            }
        }
    }

    #[test]
    fn names_that_people_give_are_read_and_the_rest_says_what_to_write() {
        for good in ["python-worker-01", "24:6F:28:AA:01:02", "esp32_7"] {
            assert_eq!(good.parse::<NodeId>().unwrap().as_str(), good);
        }
        for bad in ["", "a.b", "a/b", "+", "#", "a b", &"x".repeat(65), "nó"] {
            let line = bad.parse::<NodeId>().unwrap_err().to_string();
            assert!(line.contains("is not a node's id: write 1 to 64"), "{line}");
        }
        for bad in ["urn:x:Action:", "urn:x:Task:a", "urn::Action:a", "urn:x:Action:a..b", "urn:x:Action:a:b", "a"] {
            assert!(bad.parse::<ActionName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_version_has_one_spelling() {
        let offer: Offer = "urn:x:Action:a@2".parse().unwrap();
        assert_eq!((offer.version, offer.action.short()), (2, "a"));
        assert_eq!("urn:x:Action:a".parse::<Offer>().unwrap().version, 0);
        for bad in ["urn:x:Action:a@", "urn:x:Action:a@0", "urn:x:Action:a@02", "urn:x:Action:a@+2", "urn:x:Action:a@x"]
        {
            assert!(bad.parse::<Offer>().is_err(), "{bad}");
        }
    }
}
