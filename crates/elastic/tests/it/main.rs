//! Whole worlds under a seed: policies against queues and workers that take their time, and a resource manager that dies.

mod arrebol;
mod checkers;
mod crashes;
mod queueing;
mod sentryweb;
mod wait_goal;
mod world;
