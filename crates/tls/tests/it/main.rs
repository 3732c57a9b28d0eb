//! Real handshakes, with an authority of our own.

mod files;
mod handshakes;
