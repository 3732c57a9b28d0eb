//! Hosts: processes that run parts of streams.

pub mod manager;

pub use manager::{Manager, ManagerError, Remote};
