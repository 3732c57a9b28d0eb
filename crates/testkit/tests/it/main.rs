//! The test kit itself, against real services and real processes.

mod disk;
mod installation;
mod services;
