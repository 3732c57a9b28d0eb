//! What the foreman is told of the world when it is asked what to do.

use crate::desk::Now;

/// Whether the broker can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Near,
    Away,
}

/// What is so at this moment. To be read anew for each turn: between two of them we may have been frozen.
#[derive(Clone, Copy, Debug)]
pub struct Outside {
    pub now: Now,
    pub tenure: Tenure,
    pub way: Way,
    pub inbox: Inbox,
}

/// Whether the shard is ours to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenure {
    Holds,
    Lapsed,
}

/// Whether something sent now would leave without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Free,
    Full,
}

/// Whether reports have come that were not handled yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inbox {
    Empty,
    Waiting,
}
