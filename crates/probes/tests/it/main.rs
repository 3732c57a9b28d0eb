//! Probes against servers of our own on the loopback, well-behaved and not.

mod http;
mod others;
mod server;
mod tls;
