//! The resource manager's passes against a manager and a provider in memory that fail, lose answers and lie.

mod consolidating;
mod dying;
mod hooked;
mod nodes;
mod sharing;
mod times;
mod wait_goal;
mod world;
