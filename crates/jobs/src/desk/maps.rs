//! Maps of the desk. A task passes through a dozen of them, and their keys are ours, not a stranger's: so they hash quickly,
//! and in the same way in every run, where the standard library's guard against chosen keys.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;

pub type Map<K, V> = HashMap<K, V, FixedState>;
pub type Set<K> = HashSet<K, FixedState>;
