//! The engines a behaviour is tried on, each with a place of its own.

mutirao_testkit::engine!(mutirao_conductor);

pub(crate) use mutirao_testkit::on_both;
