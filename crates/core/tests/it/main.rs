//! What the crate promises to programs of other versions.

mod envelopes;
