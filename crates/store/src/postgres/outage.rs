//! A server that is away is one line in the log, and one more when it is back: everybody asks it all the time, and each would say
//! the same.

use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::{Client, PoolError};

#[derive(Default)]
pub(super) struct Outage {
    away: AtomicBool,
}

/// What the log should hear.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Nothing,
    Away,
    Back,
}

impl Outage {
    /// Takes in what came of an attempt to get a connection.
    pub fn see(&self, got: &Result<Client, PoolError>, address: &str) {
        let word = match got {
            Ok(_) => self.back(),
            // It answers; that it does not let us in is told by itself.
            Err(PoolError::Backend(error)) if super::errors::is_refusal(error) => Word::Nothing,
            Err(PoolError::Backend(_)) => self.away(),
            // All are lent, or nobody is let in any more: that says nothing about the server.
            Err(_) => Word::Nothing,
        };
        match (word, got) {
            (Word::Away, Err(PoolError::Backend(error))) => tracing::warn!(
                "{address} cannot be reached ({}); it is tried again, and told here when it is back",
                super::errors::with_cause(error)
            ),
            (Word::Back, _) => tracing::info!("{address} is reached again"),
            _ => {}
        }
    }

    fn away(&self) -> Word {
        if self.away.swap(true, Ordering::Relaxed) { Word::Nothing } else { Word::Away }
    }

    fn back(&self) -> Word {
        // Read first: this is where every call comes by.
        let was_away = self.away.load(Ordering::Relaxed) && self.away.swap(false, Ordering::Relaxed);
        if was_away { Word::Back } else { Word::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_once_when_it_begins_and_once_when_it_ends() {
        let outage = Outage::default();
        assert_eq!(outage.back(), Word::Nothing);
        assert_eq!([outage.away(), outage.away(), outage.away()], [Word::Away, Word::Nothing, Word::Nothing]);
        assert_eq!([outage.back(), outage.back()], [Word::Back, Word::Nothing]);
        assert_eq!(outage.away(), Word::Away, "the next is another");
    }
}
