//! What a foreman keeps to.

use std::time::Duration;

use crate::plan::Pace;

#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub runs_max: usize,
    /// Memory that runs may take, about.
    pub bytes_max: usize,
    pub out_max: usize,
    /// Outcomes that wait to be written; past this, reports are left lying.
    pub pending_max: usize,
    /// And what they hold together: what is written at once has to fit into one statement.
    pub pending_bytes_max: usize,
    /// After the first try in vain; twice as long after each further one.
    pub pause: Duration,
    pub pause_max: Duration,
    /// A task that a node has had for so long is written down as being there.
    pub note_after: Duration,
    /// A node that had a task of the owner before is waited for so long.
    pub resume_within: Duration,
    /// Losses of one task before one of them counts as a try in vain.
    pub losses_max: u32,
    /// What is worked out at once; the rest is, beside.
    pub pace: Pace,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            runs_max: 10_000,
            bytes_max: 32 << 20,
            out_max: 2_000,
            pending_max: 5_000,
            pending_bytes_max: 16 << 20,
            pause: Duration::from_millis(100),
            pause_max: Duration::from_secs(10),
            note_after: Duration::from_millis(25),
            resume_within: Duration::from_secs(15),
            losses_max: 5,
            pace: Pace::LIGHT,
        }
    }
}

impl Rules {
    /// For each of so many shards that share this much memory.
    pub fn sharing(memory_bytes: u64, shards: u32) -> Self {
        let bytes_max = usize::try_from(memory_bytes / u64::from(shards.max(1))).unwrap_or(usize::MAX);
        Self { bytes_max, ..Self::default() }
    }
}

/// Tasks out while runs take too much memory.
pub const FEW: usize = 16;
