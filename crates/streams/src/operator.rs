//! What windows and stateless steps have in common.
