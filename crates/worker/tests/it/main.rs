//! The worker with real processes, the in-process broker, and a manager played by the test.
#![allow(clippy::disallowed_methods, reason = "real processes are waited for in real time")]

mod cancelling;
mod commands;
mod faults;
mod keeping;
mod limiting;
mod output;
mod parcels;
mod resting;
mod stage;
