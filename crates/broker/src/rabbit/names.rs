//! What things are called inside RabbitMQ. Everything of one installation begins with its prefix, so that a vhost can be
//! shared, and so that a user's permissions can be given as a pattern.
//!
//! | ours | RabbitMQ's, with the default prefix |
//! |---|---|
//! | work queue `tasks.default` | quorum queue `mutirao.tasks.default` |
//! | its dead letters | quorum queue `mutirao.tasks.default.dead` |
//! | log `readings.0` | stream `mutirao.readings.0.log` |
//! | topic `control.default` | routing key `control.default` of the topic exchange `mutirao.fanout` |
//! | a subscriber | exclusive queue `mutirao.ear.<random>` |

use mutirao_core::Dice;

use crate::memory::{check_name, refused};
use crate::{BrokerError, Name};

pub const PREFIX_DEFAULT: &str = "mutirao.";
/// With a name of the longest kind it still fits RabbitMQ's 255 bytes.
const PREFIX_CHARS_MAX: usize = 40;
const DEAD: &str = ".dead";
const LOG: &str = ".log";

#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

/// A work queue and where its dead letters go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub queue: String,
    pub dead: String,
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
        if name.ends_with(DEAD) || name.ends_with(LOG) || name == "fanout" || name.starts_with("ear.") {
            return Err(refused(name, format!("ear.…, fanout, …{DEAD} and …{LOG} are taken: choose another name")));
        }
        Ok(Work { queue: format!("{}{name}", self.prefix), dead: format!("{}{name}{DEAD}", self.prefix) })
    }

    pub fn log(&self, name: &Name) -> Result<String, BrokerError> {
        check_name(name)?;
        Ok(format!("{}{name}{LOG}", self.prefix))
    }

    pub fn exchange(&self) -> String {
        format!("{}fanout", self.prefix)
    }

    /// Never the same again: the last one may still be there when its connection was cut.
    pub fn ear(&self, dice: &Dice) -> String {
        format!("{}ear.{:016x}", self.prefix, dice.u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_things_share_a_name() {
        let names = Names::new(PREFIX_DEFAULT).unwrap();
        let work = names.work("tasks.a").unwrap();
        assert_eq!((work.queue.as_str(), work.dead.as_str()), ("mutirao.tasks.a", "mutirao.tasks.a.dead"));
        for taken in ["tasks.a.dead", "tasks.a.log", "fanout", "ear.00", "", "a b"] {
            assert!(names.work(taken).is_err(), "{taken}");
        }
        assert_eq!(names.log("tasks.a").unwrap(), "mutirao.tasks.a.log");
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
