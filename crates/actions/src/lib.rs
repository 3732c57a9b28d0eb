//! What a node can do: the actions it has, run with JSON going in and JSON coming out.
//!
//! | module | what it is |
//! |---|---|
//! | [`table`] | the actions of one node, by name; a new version takes new tasks, running ones finish on the old |
//! | [`builtin`] | actions that every node can have: HTTP, CEL, aggregate, kv, publish |
//! | [`definition`] | an action of one's own as people write it: a program, and how it is spoken to |
//! | [`exec`] | running such programs: one process a task, or one that stays and is given a line for each |
//! | [`folder`] | a folder of definitions, looked at again and again |
//! | [`agent`] | a node as a process of its own: registers, takes messages, runs them, sends results; over MQTT, AMQP or HTTP |
//! | [`answers`] | what was answered lately, so that a message that comes twice is run once |
//!
//! Not here: the manager's side (`nodes`), when something is tried again, and what formats
//! definitions are written in, which whoever opens a folder says.

pub mod agent;
pub mod answers;
pub mod builtin;
pub mod definition;
pub mod exec;
pub mod folder;
pub mod table;

use async_trait::async_trait;

pub use table::{Entry, Table};

/// Bytes that an action gives back, unless it says otherwise; and the most that may be said, so that the result still fits a
/// message when it is quoted in it.
pub const OUTPUT_BYTES: usize = 64 << 10;
pub const OUTPUT_BYTES_MAX: usize = 120 << 10;
/// Of why something failed.
const REASON_CHARS_MAX: usize = 300;

/// Something that can be done. It is dropped at its deadline: whatever it began must end with it.
#[async_trait]
pub trait Action: Send + Sync {
    /// `data` is JSON as a text, and so is what comes back; or why it failed, in a line.
    async fn run(&self, data: &str) -> Result<String, String>;
}

/// A reason as one line of bounded length.
fn line(why: &str) -> String {
    let words = why.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(REASON_CHARS_MAX).collect()
}
