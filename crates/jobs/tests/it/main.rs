//! Jobs against a real SQLite file and a real broker, with a worker played by the test.

mod service;
mod store;
