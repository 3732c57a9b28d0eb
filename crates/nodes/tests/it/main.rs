//! What is kept of nodes on both engines, and nodes played by the tests around the switchboard.

mod aio;
mod believed;
mod devices;
mod engines;
mod faults;
mod house;
mod http;
mod keyed;
mod managers;
mod rabbit;
mod slow;
mod store;
