//! Operators with a schema on each edge.
