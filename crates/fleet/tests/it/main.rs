//! The fleet on both engines, and its routes with others played by the test.

mod engines;
mod house;
mod routes;
mod suite;
