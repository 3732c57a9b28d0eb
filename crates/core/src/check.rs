//! Kinds of checks, and where checks of each kind wait for somebody who makes them. What a check asks is `probes`' to say,
//! when it is due `monitors`'; brokers and gatekeepers only need to know which kinds somebody makes.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::QueueName;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckKind {
    Http,
    Tcp,
    Tls,
    Dns,
    Icmp,
    Exec,
}

impl CheckKind {
    pub const ALL: [Self; 6] = [Self::Http, Self::Tcp, Self::Tls, Self::Dns, Self::Icmp, Self::Exec];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Dns => "dns",
            Self::Icmp => "icmp",
            Self::Exec => "exec",
        }
    }
}

impl fmt::Display for CheckKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CheckKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let said: String = text.chars().take(40).collect();
            format!("\"{said}\" is no kind of check: choose from http, tcp, tls, dns, icmp and exec")
        })
    }
}

/// Some kinds, at least one. Written as `http,tcp`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeSet<CheckKind>", into = "BTreeSet<CheckKind>")]
pub struct Kinds(BTreeSet<CheckKind>);

impl Kinds {
    pub fn iter(&self) -> impl Iterator<Item = CheckKind> {
        self.0.iter().copied()
    }

    pub fn contains(&self, kind: CheckKind) -> bool {
        self.0.contains(&kind)
    }

    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl TryFrom<BTreeSet<CheckKind>> for Kinds {
    type Error = String;

    fn try_from(kinds: BTreeSet<CheckKind>) -> Result<Self, String> {
        if kinds.is_empty() { Err("there must be at least one kind of check".into()) } else { Ok(Self(kinds)) }
    }
}

impl From<Kinds> for BTreeSet<CheckKind> {
    fn from(kinds: Kinds) -> Self {
        kinds.0
    }
}

impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds: BTreeSet<CheckKind> = text.split(',').map(|kind| kind.trim().parse()).collect::<Result<_, _>>()?;
        kinds.try_into()
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(CheckKind::as_str).collect();
        f.write_str(&words.join(","))
    }
}

/// The name under which checkers come and go by a resource manager, as the workers of a queue do. No queue can have it.
pub const POOL: &str = "_checkers";

pub fn pool() -> QueueName {
    POOL.parse().expect("it has the form of a queue's name")
}

/// The same of schedulers: processes that own monitors and do nothing else.
pub const SCHEDULERS: &str = "_schedulers";

pub fn schedulers() -> QueueName {
    SCHEDULERS.parse().expect("it has the form of a queue's name")
}

/// The same of managers: processes that do what the others do, on the same machine and at the same address.
pub const MANAGERS: &str = "_managers";

pub fn managers() -> QueueName {
    MANAGERS.parse().expect("it has the form of a queue's name")
}

/// What the work queues of checks begin with.
pub const CHECKS: &str = "checks.";
/// Where whoever makes checks hears in which places some are wanted.
pub const PLACES: &str = "places.checks";
/// What the work queues begin with in which owners of monitors hear how checks ended.
pub const OUTCOMES: &str = "results.monitors.";

/// Where checks of a kind wait that anybody may make.
///
/// ```
/// use mutirao_core::check::{CheckKind, checks_at, checks_of};
/// assert_eq!(checks_of(CheckKind::Http), "checks.http");
/// assert_eq!(checks_at(CheckKind::Http, "00ff00ff00ff00ff"), "checks.http.00ff00ff00ff00ff");
/// ```
pub fn checks_of(kind: CheckKind) -> String {
    format!("{CHECKS}{kind}")
}

/// Where checks of a kind wait that are to be made in a certain place. `place`: sixteen digits in base 16.
pub fn checks_at(kind: CheckKind, place: &str) -> String {
    format!("{CHECKS}{kind}.{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_read_back_as_they_are_written_and_a_slip_names_all_that_there_are() {
        let kinds: Kinds = "tcp, http".parse().unwrap();
        assert_eq!(kinds.to_string(), "http,tcp");
        assert_eq!(serde_json::from_str::<Kinds>(&serde_json::to_string(&kinds).unwrap()).unwrap(), kinds);
        assert!("http,ftp".parse::<Kinds>().unwrap_err().contains("icmp and exec"));
        assert!("".parse::<Kinds>().is_err() && serde_json::from_str::<Kinds>("[]").is_err());
    }
}
