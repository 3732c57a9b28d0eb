//! What a user writes, checked whole.
