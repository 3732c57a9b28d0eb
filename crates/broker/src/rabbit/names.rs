//! What things are called inside RabbitMQ. Everything of one installation begins with its prefix, so that a vhost can be
//! shared with other programs, and so that a user's permissions can be given as a pattern.
//!
//! | ours | RabbitMQ's, with the default prefix |
//! |---|---|
//! | work queue `tasks.default` | quorum queue `mutirao.tasks.default` |
//! | its dead letters | quorum queue `mutirao.tasks.default.dead` |
//! | log `readings.0` | stream `mutirao.readings.0.log` |
//! | the way to every log `streams.…` | direct exchange `mutirao.streams` |
//! | topic `control.default` | routing key `control.default` of the topic exchange `mutirao.fanout` |
//! | a subscriber | exclusive queue `mutirao.ear.<random>` |
//! | the way of workers to every queue `results.…` | direct exchange `mutirao.results` |
//! | the way of checkers to every queue `results.monitors.…` | direct exchange `mutirao.outcomes` |
//! | the way of managers to the queue `checks.http` | routing key `check.http` of the topic exchange `mutirao.checks` |
//! | the mark of an installation | exchange `mutirao.installation`, its alternate exchange `mutirao.installation.<id>` |
//! | writes of keys `kv.3` | quorum queue `mutirao.kv.3`, taken from by one at a time |
//! | worker `w1` | user `mutirao.worker.w1` |

use mutirao_core::auth::STREAMS;
use mutirao_core::check::{CHECKS, OUTCOMES};
use mutirao_core::{Dice, InstallationId, WorkerId};

use crate::memory::{check_name, refused};
use crate::takers::Takers;
use crate::{BrokerError, Name};

pub const PREFIX_DEFAULT: &str = "mutirao.";
/// With a name of the longest kind it still fits RabbitMQ's 255 bytes.
const PREFIX_CHARS_MAX: usize = 40;
const DEAD: &str = ".dead";
const LOG: &str = ".log";
/// Work queues that workers put their reports in begin with this.
const REPORTS: &str = "results.";
/// What the routing keys of checks begin with, where their queues begin with [`CHECKS`].
const CHECK: &str = "check.";
const WORKER: &str = "worker.";

#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

/// A work queue and where its dead letters go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub queue: String,
    pub dead: String,
    /// The exchange by which workers reach it; `None` where they have no business.
    pub entrance: Option<String>,
    /// The topic exchange and the key by which managers reach it; `None` where they name it.
    pub topic: Option<(String, String)>,
    pub takers: Takers,
}

/// A log as its user and as RabbitMQ call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogName {
    pub ours: String,
    pub queue: String,
    /// The exchange by which whoever appends reaches it; `None` where it is named.
    pub entrance: Option<String>,
}

impl Names {
    pub fn new(prefix: &str) -> Result<Self, BrokerError> {
        let plain = prefix.strip_suffix('.').is_some_and(|name| check_name(name).is_ok());
        if plain && prefix.len() <= PREFIX_CHARS_MAX {
            return Ok(Self { prefix: prefix.into() });
        }
        Err(refused(prefix, format!("a prefix is a name and a dot, at most {PREFIX_CHARS_MAX} characters")))
    }

    pub fn work(&self, name: &Name) -> Result<Work, BrokerError> {
        check_name(name)?;
        // Otherwise two things of ours could be one of RabbitMQ's.
        if name.ends_with(DEAD)
            || name.ends_with(LOG)
            || matches!(name, "fanout" | "streams")
            || name.starts_with("ear.")
        {
            return Err(refused(
                name,
                format!("ear.…, fanout, streams, …{DEAD} and …{LOG} are taken: choose another name"),
            ));
        }
        let entrance = match name {
            _ if name.starts_with(OUTCOMES) => Some(self.entrance_of_checkers()),
            _ => name.starts_with(REPORTS).then(|| self.entrance()),
        };
        let topic = name.strip_prefix(CHECKS).map(|rest| (self.whole("checks"), format!("{CHECK}{rest}")));
        let (queue, dead) = (self.whole(name), format!("{}{name}{DEAD}", self.prefix));
        Ok(Work { queue, dead, entrance, topic, takers: Takers::of(name) })
    }

    /// Any name with the prefix before it.
    pub fn whole(&self, name: &Name) -> String {
        format!("{}{name}", self.prefix)
    }

    /// What workers publish to, and nothing else.
    pub fn entrance(&self) -> String {
        format!("{}results", self.prefix)
    }

    /// What checkers publish to, and nothing else: no worker speaks of checks, and no checker of tasks.
    pub fn entrance_of_checkers(&self) -> String {
        format!("{}outcomes", self.prefix)
    }

    pub fn user_of(&self, worker: &WorkerId) -> String {
        format!("{}{WORKER}{worker}", self.prefix)
    }

    /// The worker whose user this is.
    pub fn worker_of(&self, user: &str) -> Option<WorkerId> {
        let id = user.strip_prefix(&self.prefix)?.strip_prefix(WORKER)?;
        Some(WorkerId(id.into()))
    }

    /// The names of all ears, and of nothing else, as a pattern without anchors.
    pub fn ears_pattern(&self) -> String {
        format!("{}ear\\.[0-9a-f]{{16}}", escaped(&self.prefix))
    }

    pub fn log(&self, name: &Name) -> Result<LogName, BrokerError> {
        check_name(name)?;
        let entrance = name.starts_with(STREAMS).then(|| self.entrance_of_streams());
        Ok(LogName { ours: name.into(), queue: format!("{}{name}{LOG}", self.prefix), entrance })
    }

    /// What hosts of streams publish to, and nothing else.
    pub fn entrance_of_streams(&self) -> String {
        format!("{}streams", self.prefix)
    }

    /// The names of all logs of streams, and of nothing else, as a pattern without anchors.
    pub fn streams_pattern(&self) -> String {
        format!("{}[A-Za-z0-9_.-]+{}", escaped(&self.whole(STREAMS)), escaped(LOG))
    }

    pub fn exchange(&self) -> String {
        format!("{}fanout", self.prefix)
    }

    /// By this exchange a vhost is an installation's.
    pub fn mark(&self) -> String {
        format!("{}installation", self.prefix)
    }

    /// What it says. No exchange of this name is ever made.
    pub fn mark_of(&self, installation: &InstallationId) -> String {
        format!("{}.{installation}", self.mark())
    }

    /// Never the same again: the last one may still be there when its connection was cut.
    pub fn ear(&self, dice: &Dice) -> String {
        format!("{}ear.{:016x}", self.prefix, dice.u64())
    }
}

/// A name as a pattern that matches it alone. Names are letters, digits, `-`, `_` and dots.
pub(super) fn escaped(name: &str) -> String {
    name.replace('.', "\\.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_names_its_worker_and_strangers_name_none() {
        let names = Names::new(PREFIX_DEFAULT).unwrap();
        let worker = WorkerId("w1".into());
        assert_eq!(names.worker_of(&names.user_of(&worker)), Some(worker));
        for stranger in ["", "guest", "w1", "worker.w1", "mutirao.w1", "other.worker.w1"] {
            assert_eq!(names.worker_of(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn workers_reach_reports_and_nothing_else() {
        let names = Names::new(PREFIX_DEFAULT).unwrap();
        assert_eq!(names.work("results.jobs.0").unwrap().entrance.as_deref(), Some("mutirao.results"));
        assert_eq!(names.work("results.monitors.0").unwrap().entrance.as_deref(), Some("mutirao.outcomes"));
        for others in ["tasks.a", "results", "resultsx.0", "checks.http"] {
            assert_eq!(names.work(others).unwrap().entrance, None, "{others}");
        }
    }

    #[test]
    fn hosts_of_streams_reach_their_logs_and_nothing_else() {
        let names = Names::new(PREFIX_DEFAULT).unwrap();
        assert_eq!(names.log("streams.s1.stage.0").unwrap().entrance.as_deref(), Some("mutirao.streams"));
        for others in ["readings.0", "streamsx.0", "streams"] {
            assert_eq!(names.log(others).unwrap().entrance, None, "{others}");
        }
        assert_eq!(names.streams_pattern(), r"mutirao\.streams\.[A-Za-z0-9_.-]+\.log");
    }

    #[test]
    fn checks_are_routed_by_their_kind_and_nothing_else_is() {
        let names = Names::new(PREFIX_DEFAULT).unwrap();
        let topic = |name: &str| names.work(name).unwrap().topic;
        assert_eq!(topic("checks.http"), Some(("mutirao.checks".into(), "check.http".into())));
        assert_eq!(topic("checks.http.00ff").unwrap().1, "check.http.00ff");
        assert_eq!((topic("tasks.checks"), topic("results.monitors.0")), (None, None));
    }

    #[test]
    fn writes_of_keys_are_taken_in_their_order_and_nothing_else_has_to_be() {
        let names = Names::new(PREFIX_DEFAULT).unwrap();
        assert_eq!(names.work("kv.3").unwrap().takers, Takers::OneAtATime);
        for others in ["tasks.kv", "kvx.0", "results.jobs.0"] {
            assert_eq!(names.work(others).unwrap().takers, Takers::Many, "{others}");
        }
    }

    #[test]
    fn no_two_things_share_a_name() {
        let names = Names::new(PREFIX_DEFAULT).unwrap();
        let work = names.work("tasks.a").unwrap();
        assert_eq!((work.queue.as_str(), work.dead.as_str()), ("mutirao.tasks.a", "mutirao.tasks.a.dead"));
        for taken in ["tasks.a.dead", "tasks.a.log", "fanout", "ear.00", "", "a b"] {
            assert!(names.work(taken).is_err(), "{taken}");
        }
        assert_eq!(names.log("tasks.a").unwrap().queue, "mutirao.tasks.a.log");
    }

    #[test]
    fn a_prefix_ends_with_a_dot_and_leaves_room_for_the_longest_name() {
        assert!(Names::new("team-1.").is_ok());
        for bad in ["", ".", "mutirao", "a/b.", &format!("{}.", "x".repeat(PREFIX_CHARS_MAX))] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
        let longest = "x".repeat(mutirao_core::limits::NAME_CHARS_MAX);
        let prefix = format!("{}.", "x".repeat(PREFIX_CHARS_MAX - 1));
        assert!(Names::new(&prefix).unwrap().work(&longest).unwrap().dead.len() <= 255);
    }
}
