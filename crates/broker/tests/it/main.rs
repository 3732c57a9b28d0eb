//! Every broker against the one behaviour suite, and what only one of them has.

mod files;
mod link;
mod memory;
mod proxy;
mod rabbit;
