//! What each place says about the settings, and which one wins. Pure: texts in, values out.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::ConfigError;
use super::kinds::Kind;
use super::table::{Setting, TABLE};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Env(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Origin::Env(name) => f.write_str(name),
            Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// What one place says about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub key: String,
    pub value: String,
    pub origin: Origin,
}

impl Given {
    pub fn flag(flag: &'static str, key: &str, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into(), origin: Origin::Flag(flag) }
    }

    /// The argument of a `--set`.
    pub fn pair(text: &str) -> Result<Self, ConfigError> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => Ok(Self::flag("--set", key.trim(), value.trim())),
            _ => Err(ConfigError::NotAPair { text: text.into() }),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub text: String,
    pub origin: Origin,
}

/// A value for every setting in the table.
#[derive(Clone, Debug)]
pub struct Values(BTreeMap<&'static str, Value>);

impl Values {
    /// Lays the places over each other, the later over the earlier, on top of the defaults. Every value that was given
    /// must be good, also one that loses: it would be a surprise on the day the winner goes.
    pub fn resolve<const N: usize>(layers: [Vec<Given>; N]) -> Result<Self, ConfigError> {
        let default = |setting: &Setting| Value { text: setting.default.into(), origin: Origin::Default };
        let mut values: BTreeMap<_, _> = TABLE.iter().map(|setting| (setting.key, default(setting))).collect();
        for Given { key, value, origin } in layers.into_iter().flatten() {
            let Some(setting) = Setting::find(&key) else {
                let hint = nearest(&key).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
                return Err(ConfigError::Unknown { key, origin, hint });
            };
            (setting.check)(&value).map_err(|why| ConfigError::Bad { key, origin: origin.clone(), why })?;
            values.insert(setting.key, Value { text: value, origin });
        }
        Ok(Self(values))
    }

    pub fn get(&self, setting: &Setting) -> &Value {
        &self.0[setting.key]
    }

    /// The key must be in the table.
    pub fn text(&self, key: &str) -> &str {
        &self.0[key].text
    }

    pub fn origin(&self, key: &str) -> &Origin {
        &self.0[key].origin
    }

    pub fn parse<T: Kind>(&self, key: &str) -> Result<T, ConfigError> {
        let Value { text, origin } = &self.0[key];
        let bad = |why: T::Err| ConfigError::Bad { key: key.into(), origin: origin.clone(), why: why.to_string() };
        text.parse().map_err(bad)
    }
}

fn nearest(key: &str) -> Option<&'static str> {
    let far = key.len() / 2;
    let by_distance = TABLE.iter().map(|setting| (strsim::damerau_levenshtein(key, setting.key), setting.key));
    by_distance.min().filter(|(distance, _)| *distance <= far).map(|(_, key)| key)
}

/// The short name that design and habit give to `log.level`.
const LOG_ALIAS: &str = "MUTIRAO_LOG";

/// What the environment says, and which variables of ours say nothing.
pub fn from_env(env: impl IntoIterator<Item = (String, String)>) -> (Vec<Given>, Vec<String>) {
    let (mut given, mut strange) = (Vec::new(), Vec::new());
    for (name, value) in env {
        if !name.starts_with("MUTIRAO_") {
            continue;
        }
        let setting = TABLE.iter().find(|setting| setting.env() == name);
        let key = if name == LOG_ALIAS { Some("log.level") } else { setting.map(|setting| setting.key) };
        match key {
            // An empty variable is one that was taken away.
            Some(_) if value.is_empty() => {}
            Some(key) => given.push(Given { key: key.into(), value, origin: Origin::Env(name) }),
            None if is_ours_but_no_setting(&name) => {}
            None => strange.push(name),
        }
    }
    strange.sort();
    (given, strange)
}

/// Variables that tasks, workers and tests find in their environment.
fn is_ours_but_no_setting(name: &str) -> bool {
    const NAMES: [&str; 8] = ["SESSION", "JOB_ID", "TASK_ID", "TASK_INDEX", "ENTRY", "ATTEMPT", "ENROL_TOKEN", "BIN"];
    const NODES: [&str; 2] = ["NODE_SERVER", "NODE_PASSWORD"];
    name.strip_prefix("MUTIRAO_")
        .is_some_and(|rest| NAMES.contains(&rest) || NODES.contains(&rest) || rest.starts_with("TEST_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_names_its_place_and_a_near_one() {
        let error = Values::resolve([vec![Given::pair("worker.cuont=3").unwrap()]]).unwrap_err().to_string();
        assert_eq!(
            error,
            "worker.cuont (--set) is not a setting; did you mean worker.count? `mutirao config list` shows them all"
        );
        let error = Values::resolve([vec![Given::pair("xyzzy=3").unwrap()]]).unwrap_err().to_string();
        assert!(error.contains("is not a setting; `mutirao"), "{error}");
    }

    #[test]
    fn a_bad_value_is_refused_even_where_it_loses() {
        let low =
            vec![Given { key: "drain".into(), value: "soon".into(), origin: Origin::Env("MUTIRAO_DRAIN".into()) }];
        let error = Values::resolve([low, vec![Given::pair("drain=5s").unwrap()]]).unwrap_err().to_string();
        assert_eq!(error, "drain (MUTIRAO_DRAIN): \"soon\" is not a duration: write it like 200ms, 30s, 5m or 1h 30m");
    }

    #[test]
    fn a_pair_needs_a_key_and_an_equals_sign() {
        assert!(Given::pair("novalue").is_err() && Given::pair("=x").is_err());
        assert_eq!(Given::pair("url=http://h?a=b").unwrap().value, "http://h?a=b");
    }
}
