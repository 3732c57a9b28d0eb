//! The experiments with streams.

mod apart;
pub mod bytewax;
pub mod five;
pub mod four;
pub mod load;
pub mod moving;
pub mod one;
mod simulated;
pub mod three;
pub mod timely;
pub mod two;
