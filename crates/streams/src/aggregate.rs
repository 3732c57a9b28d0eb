//! One figure of many events.
