//! Hosts: processes that run parts of streams.
