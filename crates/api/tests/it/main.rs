//! The API over real HTTP on loopback: what it refuses and how, who may do what, and that the document tells the truth.

mod bounds;
mod capability;
mod document;
mod elastic;
mod enrolment;
mod link;
mod problems;
mod registry;
mod roles;
mod server;
mod signed;
mod tokens;
mod upkeep;
