//! Which events belong together.
