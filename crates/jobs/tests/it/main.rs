//! Jobs against real databases and a real broker, with a worker played by the test.

mod batch;
mod brokers;
mod dead;
mod dispatch;
mod engine;
mod house;
mod managers;
mod outage;
mod queues;
mod service;
mod store;
mod unreadable;
mod upgrade;
