//! The provider whose nodes are machines that commands of the user's create, list and destroy: any cloud, virtual machines,
//! containers. docs/hooks.md is the contract.
//!
//! - [`spec`] is what people write about their hooks and the kinds of machines these make.
//! - [`words`] is what a hook is told, and what it answers.
//! - [`command`] runs one, within bounds.
//! - [`books`] is what is known of the machines and what is to be done about them, without I/O.
//! - [`way`] is how the agent on a machine is reached: over ssh as hosts of a pool are, or in a folder of this machine.
//! - [`provider`] is the side of the resource manager.
//!
//! **The list is the truth.** Nothing is kept here: what the list hook says is there, whoever created it. Names begin with a prefix
//! that is this installation's; whatever is called otherwise is never spoken of again.
//!
//! **Slow things are done beside.** A hook may take minutes, a call of a resource manager may not: hooks run beside the passes,
//! and a pass sees what came of them.

pub mod books;
pub mod command;
pub mod provider;
pub mod spec;
pub mod way;
pub mod words;

pub use provider::{Hooks, HooksParts, look};
pub use spec::HooksSpec;
