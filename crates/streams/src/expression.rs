//! A small typed language over columns.
