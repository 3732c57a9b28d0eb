//! How what an operator remembers is written down and read again.
