//! What a server refuses us for want of a right is one line in the log for each reason, and one more when all of it is allowed
//! again: everybody asks it all the time, and each would say the same.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::StoreError;

/// Statements remembered. What is refused past them is not told.
const REFUSED_MAX: usize = 256;
/// In the place of a statement: being let in.
pub(super) const ENTRY: &str = "";

#[derive(Default)]
pub(super) struct Refusals {
    any: AtomicBool,
    /// Why, by statement. One of those that were refused must pass before it counts as allowed: others never were.
    refused: Mutex<HashMap<String, String>>,
}

/// What the log should hear.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Nothing,
    Refused,
    Allowed,
}

impl Refusals {
    /// Those of a server and user, shared by all who have connections there: each would meet the same.
    pub fn at(address: &str) -> Arc<Self> {
        static ALL: Mutex<BTreeMap<String, Weak<Refusals>>> = Mutex::new(BTreeMap::new());
        let mut all = ALL.lock();
        all.retain(|_, known| known.strong_count() > 0);
        if let Some(known) = all.get(address).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::<Self>::default();
        all.insert(address.into(), Arc::downgrade(&new));
        new
    }

    /// Takes in what came of a statement.
    pub fn see<T>(&self, statement: &str, answer: &Result<T, StoreError>, address: &str) {
        let word = match answer {
            Err(StoreError::Denied { why, .. }) => self.refused(statement, why),
            // A statement that failed for another reason says nothing about rights.
            Err(_) => Word::Nothing,
            Ok(_) => self.allowed(statement),
        };
        match (word, answer) {
            (Word::Refused, Err(error)) => {
                tracing::error!("{address}: {error}; it is tried again, and told here when it is allowed")
            }
            (Word::Allowed, _) => tracing::info!("{address} allows again what it had refused"),
            _ => {}
        }
    }

    fn refused(&self, statement: &str, why: &str) -> Word {
        let mut refused = self.refused.lock();
        let is_known = refused.values().any(|known| known == why);
        if refused.len() < REFUSED_MAX {
            refused.insert(statement.into(), why.into());
            self.any.store(true, Ordering::Relaxed);
        }
        if is_known { Word::Nothing } else { Word::Refused }
    }

    fn allowed(&self, statement: &str) -> Word {
        // Read first: this is where every statement comes by.
        if !self.any.load(Ordering::Relaxed) {
            return Word::Nothing;
        }
        let mut refused = self.refused.lock();
        let Some(why) = refused.remove(statement) else { return Word::Nothing };
        // What is granted is seldom granted to one statement alone; one that is still refused says so again.
        refused.retain(|_, other| *other != why);
        if !refused.is_empty() {
            return Word::Nothing;
        }
        self.any.store(false, Ordering::Relaxed);
        Word::Allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_once_and_that_everything_is_allowed_again_once() {
        let refusals = Refusals::default();
        assert_eq!(refusals.allowed("a"), Word::Nothing);
        assert_eq!(refusals.refused("a", "no right to jobs"), Word::Refused);
        assert_eq!(
            [refusals.refused("a", "no right to jobs"), refusals.refused("b", "no right to jobs")],
            [Word::Nothing, Word::Nothing]
        );
        assert_eq!(refusals.refused("c", "no right to tasks"), Word::Refused);
        assert_eq!(refusals.allowed("d"), Word::Nothing, "that was never refused");
        assert_eq!(refusals.allowed("a"), Word::Nothing, "the other reason is still there");
        assert_eq!([refusals.allowed("c"), refusals.allowed("c")], [Word::Allowed, Word::Nothing]);
        assert_eq!(refusals.refused("a", "no right to jobs"), Word::Refused, "the next is another");
    }
}
