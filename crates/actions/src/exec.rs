//! Actions that are programs. All that a process started is killed with it when its task is over or its time
//! is up, wherever it went; it has limits if asked for, and an environment of which only a few variables are the node's: what those are, [`Surroundings`]
//! says.

mod lines;
mod once;
mod process;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use mutirao_core::{Clock, Dice};
use mutirao_worker::Confinement;

use crate::Action;
use crate::definition::{Definition, Mode};
use crate::table::Entry;

/// What programs find themselves in.
#[derive(Clone)]
pub struct Surroundings {
    /// Where they run, and are looked for first.
    pub dir: PathBuf,
    /// All that they see besides what their definitions say. Never the node's own environment, which has secrets.
    pub environment: BTreeMap<String, OsString>,
    /// What holds each to its limits, where the kernel can, and together with all that it starts.
    pub confinement: Arc<Confinement>,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
}

/// What a definition comes to. A program that stays is started when it is first needed; it must be called within a runtime.
pub fn entry(definition: &Definition, around: &Surroundings) -> Entry {
    let program = process::Program::new(definition, around);
    let action: Arc<dyn Action> = match definition.mode {
        Mode::Once => Arc::new(once::Once { program, output: definition.output }),
        Mode::Lines => Arc::new(lines::Lines::new(program, definition.at_once, around)),
    };
    Entry {
        offer: definition.offer.clone(),
        timeout: definition.timeout,
        declared: definition.declared,
        output_bytes_max: definition.output_bytes_max,
        action,
    }
}
