//! The client against a server of the test's own, over real sockets.

mod blobs;
mod requests;
mod server;
mod streams;
