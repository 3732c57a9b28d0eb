//! The listener over real sockets: with the real mosquitto clients, with sockets that break every rule, and with our own
//! client over lines that are cut. Time is the server's own manual clock wherever a test is about time.

mod client;
mod expelled;
mod heavy;
mod house;
mod kept;
mod mosquitto;
mod program;
mod raw;
mod rules;
