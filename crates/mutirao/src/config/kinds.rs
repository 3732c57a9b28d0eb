//! The types a setting can have. Each reads from text and says, when it cannot, how to write it.

mod masked;
mod nodes;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use mutirao_core::QueueName;
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_nodes::Namespace;

use super::table::Secrecy;
pub use masked::{BrokerUrl, CacheUrl, DatabaseUrl, ManagementUrl, Secret};
pub use nodes::{InLayer, Labels, Routing};

pub trait Kind: FromStr<Err: fmt::Display> {
    const NAME: &'static str;
    const SECRECY: Secrecy = Secrecy::Open;

    /// What to say to a text that cannot be read as one.
    fn refusal(_text: &str, why: Self::Err) -> String {
        why.to_string()
    }
}

impl Kind for SocketAddr {
    const NAME: &'static str = "address:port";

    fn refusal(text: &str, _: Self::Err) -> String {
        format!("\"{text}\" is not an address and a port: write it like 127.0.0.1:7070, or 0.0.0.0:7070 for everybody")
    }
}

macro_rules! kind {
    ($($kind:ty = $name:literal),+ $(,)?) => { $( impl Kind for $kind { const NAME: &'static str = $name; } )+ };
}
kind! {
    Folder = "folder", File = "file", Count = "count", Many = "count", Level = "level",
    Names = "names", LogFormat = "format", LogSize = "size", WorkerWay = "way", QueueName = "queue", Span = "duration", Lease = "duration", Cpus = "cpus", Bytes = "size", ServerUrl = "url", Share = "share",
    Labels = "labels", InLayer = "layer", Leave = "leave", OwnChecker = "inside|none", OwnHost = "inside|none", StreamFiles = "folder|anywhere", StreamMover = "none|random|adaptive|mutirao", Crew = "least..most", Switch = "on|off", Port = "own|shared",
    Namespace = "namespace", Routing = "learned|round-robin",
}

/// A path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(pub PathBuf);

impl FromStr for Folder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("is empty; give the path of a folder".into()) } else { Ok(Self(text.into())) }
    }
}

/// The path of a file. Whoever needs the file looks whether it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File(pub PathBuf);

impl FromStr for File {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("is empty; give the path of a file".into()) } else { Ok(Self(text.into())) }
    }
}

/// How many processes: a few hundred at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u32);

const COUNT_MAX: u32 = 256;

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(n) if n <= COUNT_MAX => Ok(Self(n)),
            _ => Err(format!("\"{text}\" is not a count: write a number from 0 to {COUNT_MAX}")),
        }
    }
}

/// How long a silent worker is believed to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease(pub Duration);

/// A worker speaks every two seconds; a lease below that would be lost by workers in the best of health.
const LEASE_MIN: Span = Span::secs(3);

impl FromStr for Lease {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<Span>() {
            Ok(span) if span >= LEASE_MIN => Ok(Self(span.0)),
            Ok(span) => Err(format!("{span} is too short, since workers speak every 2s; write {LEASE_MIN} or more")),
            Err(why) => Err(why.to_string()),
        }
    }
}

/// What a log keeps at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSize(pub u64);

/// Below it a log would hold too few records for its readers to fall behind at all.
const LOG_BYTES_MIN: Bytes = Bytes(4 << 20);

impl FromStr for LogSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<Bytes>() {
            Ok(size) if size >= LOG_BYTES_MIN => Ok(Self(size.0)),
            Ok(size) => Err(format!("{size} is too little for a log; write {LOG_BYTES_MIN} or more")),
            Err(why) => Err(why.to_string()),
        }
    }
}

/// How many of something that is counted in millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Many(pub u64);

impl FromStr for Many {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.replace('_', "").parse() {
            Ok(n) if n > 0 => Ok(Self(n)),
            _ => Err(format!("\"{text}\" is not a count: write a number from 1 on")),
        }
    }
}

/// Host names; `none` for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

impl FromStr for Names {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let good =
            |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        match names.iter().find(|name| !good(name)) {
            Some(bad) => Err(format!("\"{bad}\" is not a host name: write them like jobs.example.org,jobs2")),
            None => Ok(Self(names)),
        }
    }
}

/// What is logged: a level, or a filter by module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level(pub String);

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = ["off", "error", "warn", "info", "debug", "trace"];
        let parts_good = text.split(',').all(|part| known.contains(&part.rsplit('=').next().unwrap_or(part).trim()));
        match text.parse::<tracing_subscriber::filter::Targets>() {
            Ok(_) if parts_good => Ok(Self(text.into())),
            _ => Err(format!("\"{text}\" is not a level: choose error, warn, info, debug or trace")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Auto,
    Human,
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            _ => Err(format!("\"{text}\" is not a format: choose human, json or auto")),
        }
    }
}

/// How a worker reaches the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerWay {
    Auto,
    Link,
}

impl WorkerWay {
    pub fn as_str(self) -> &'static str {
        match self {
            WorkerWay::Auto => "auto",
            WorkerWay::Link => "link",
        }
    }
}

impl FromStr for WorkerWay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "link" => Ok(Self::Link),
            _ => Err(format!("\"{text}\" is not a way: choose auto or link")),
        }
    }
}

/// Whether something dangerous may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    Refused,
    Allowed,
}

impl FromStr for Leave {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "refused" => Ok(Self::Refused),
            "allowed" => Ok(Self::Allowed),
            _ => Err(format!("\"{text}\" is neither: choose refused or allowed")),
        }
    }
}

/// Whether something is there at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    On,
    Off,
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(format!("\"{text}\" is neither: choose on or off")),
        }
    }
}

/// Whose the address is at which a manager listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// This manager's alone.
    Own,
    /// Also that of other managers of its installation on this machine.
    Shared,
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "own" => Ok(Self::Own),
            "shared" => Ok(Self::Shared),
            _ => Err(format!("\"{text}\" is neither: choose own or shared")),
        }
    }
}

/// Who makes the checks of monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnChecker {
    /// The manager itself, too.
    Inside,
    /// Checkers of their own, and nobody else.
    None,
}

impl FromStr for OwnChecker {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "inside" => Ok(Self::Inside),
            "none" => Ok(Self::None),
            _ => Err(format!("\"{text}\" is neither: choose inside or none")),
        }
    }
}

/// Who runs the parts of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnHost {
    /// The manager itself, too.
    Inside,
    /// Hosts of their own, and nobody else.
    None,
}

impl FromStr for OwnHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "inside" => Ok(Self::Inside),
            "none" => Ok(Self::None),
            _ => Err(format!("\"{text}\" is neither: choose inside or none")),
        }
    }
}

/// Whether replicas of stages move to other hosts by what is measured, and by which rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamMover {
    None,
    Random,
    Adaptive,
    Mutirao,
}

impl FromStr for StreamMover {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "random" => Ok(Self::Random),
            "adaptive" => Ok(Self::Adaptive),
            "mutirao" => Ok(Self::Mutirao),
            _ => Err(format!("\"{text}\" is no strategy: choose none, random, adaptive or mutirao")),
        }
    }
}

/// Which files streams may read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFiles {
    /// Those of one folder.
    Folder,
    Anywhere,
}

impl FromStr for StreamFiles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "folder" => Ok(Self::Folder),
            "anywhere" => Ok(Self::Anywhere),
            _ => Err(format!("\"{text}\" is neither: choose folder or anywhere")),
        }
    }
}

/// From the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    pub min: u32,
    pub max: u32,
}

/// How many there may be of what comes and goes, if anything does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew(pub Option<Between>);

impl FromStr for Crew {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let both = text.split_once("..").and_then(|(min, max)| Some((min.parse().ok()?, max.parse().ok()?)));
        match both {
            Some((min, max)) if min <= max && (1..=COUNT_MAX).contains(&max) => Ok(Self(Some(Between { min, max }))),
            _ => Err(format!(
                "\"{text}\" is not it: write the least and the most, like 1..10 (up to {COUNT_MAX}), or none"
            )),
        }
    }
}

/// A share of a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Self(share)),
            _ => Err(format!("\"{text}\" is not a share: write a number from 0 to 1, like 0.01 for one in a hundred")),
        }
    }
}

/// The address of a server; the client looks at it more closely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl(pub String);

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("http://") || text.starts_with("https://") {
            Ok(Self(text.into()))
        } else {
            Err(format!("\"{text}\" is not an address: write it like http://127.0.0.1:7070"))
        }
    }
}

/// A value, or `auto`: worked out when it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auto<T> {
    Auto,
    Set(T),
}

impl<T> Auto<T> {
    pub fn set(&self) -> Option<&T> {
        match self {
            Auto::Auto => None,
            Auto::Set(value) => Some(value),
        }
    }
}

impl<T: FromStr> FromStr for Auto<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::Set) }
    }
}

impl<T: Kind> Kind for Auto<T> {
    const NAME: &'static str = T::NAME;
    const SECRECY: Secrecy = T::SECRECY;
}

/// A value, or `none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maybe<T>(Option<T>);

impl<T> Maybe<T> {
    pub fn given(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T: FromStr> FromStr for Maybe<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(Some).map(Self) }
    }
}

impl<T: Kind> Kind for Maybe<T> {
    const NAME: &'static str = T::NAME;
    const SECRECY: Secrecy = T::SECRECY;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_word_or_a_filter_and_nothing_else() {
        for good in ["info", "debug", "info,mutirao_jobs=debug"] {
            assert!(good.parse::<Level>().is_ok(), "{good}");
        }
        for bad in ["", "loud", "info,mutirao=loud", "=,="] {
            assert!(bad.parse::<Level>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_lease_that_healthy_workers_would_lose_is_refused() {
        assert_eq!("3s".parse(), Ok(Lease(Duration::from_secs(3))));
        for short in ["0s", "2s", "2999ms"] {
            assert!(short.parse::<Lease>().unwrap_err().contains("3s or more"), "{short}");
        }
        assert!("never".parse::<Lease>().unwrap_err().contains("write it like"));
    }

    #[test]
    fn auto_is_told_from_a_value_and_a_bad_value_says_how_to_write_it() {
        assert_eq!("auto".parse(), Ok(Auto::<Cpus>::Auto));
        assert_eq!("500m".parse(), Ok(Auto::Set(Cpus { milli: 500 })));
        assert!("lots".parse::<Auto<Cpus>>().unwrap_err().to_string().contains("2, 0.5 or 250m"));
    }
}
