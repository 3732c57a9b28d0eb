//! Hosts with real logs, files and snapshots, and a manager that does what a test says.

mod chief;
mod cuts;
mod ends;
mod faults;
mod gaps;
mod mqtt;
mod plain;
mod rabbit;
mod reference;
mod remembering;
mod silence;
mod slow;
mod world;
