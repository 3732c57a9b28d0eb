//! The resource manager's passes against a manager and a provider in memory that fail, lose answers and lie.

mod dying;
mod nodes;
mod times;
mod world;
