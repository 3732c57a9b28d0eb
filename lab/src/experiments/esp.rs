//! The experiments with streams.

pub mod bytewax;
pub mod five;
pub mod four;
pub mod load;
pub mod timely;
