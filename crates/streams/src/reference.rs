//! The same, one event at a time: what the rest is compared with.
