//! Actions as a node runs them: real programs, a real folder, real requests.

mod agent;
mod amqp;
mod builtins;
mod copies;
mod devices;
mod folder;
mod http;
mod programs;
mod stage;
