//! The real binary, driven through its command line against a real installation: what a user types is what is tested.

mod answers;
mod attending;
mod backup;
mod batch;
mod checkers;
mod database;
mod docs;
mod elastic;
mod faults;
mod growing;
mod kv;
mod letting_in;
mod merging;
mod metrics;
mod monitors;
mod neighbours;
mod pushes;
mod queues;
mod rabbit;
mod refusals;
mod said;
mod secrets;
mod stopping;
mod tls;
mod traces;
mod workers;
