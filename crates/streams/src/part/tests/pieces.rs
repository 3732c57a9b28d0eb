//! Single rules of parts, one by one.
