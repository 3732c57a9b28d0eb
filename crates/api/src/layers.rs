//! What every request passes through, all in [`front`], from the outside in: [`access`] (trace, log, metrics, panics), [`host`] (is it for
//! us), [`bounds`] (how many, how long), [`bodies`] (how large), and, on all but the open routes, [`gate`] (who, how
//! often). [`streams`] ends event streams when the server goes down.

pub mod access;
pub mod bodies;
pub mod bounds;
pub mod front;
pub mod gate;
pub mod host;
pub mod streams;
pub mod tally;
