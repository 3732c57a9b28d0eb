//! The test kit itself, against real services and real processes; and the simulation.

mod disk;
mod installation;
mod services;
mod sim;
