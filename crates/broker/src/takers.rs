//! Who may take from a work queue at the same time.

use crate::Name;

/// Work queues whose messages are taken in their order begin with this.
const ORDERED: &str = "kv.";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Takers {
    #[default]
    Many,
    /// The next takes only once the one before it is gone and what it held is back in its place: so the order stays.
    OneAtATime,
}

impl Takers {
    pub fn of(queue: &Name) -> Self {
        if queue.starts_with(ORDERED) { Self::OneAtATime } else { Self::Many }
    }
}
