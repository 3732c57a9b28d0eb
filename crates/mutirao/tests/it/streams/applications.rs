//! The applications of `examples/streams`, as they stand there but for addresses of this machine, against what is calculated
//! here by other means.

mod grid;
pub mod trades;

use std::path::Path;

/// An example's definition.
fn example(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// With a piece of it replaced, which must be there.
fn with(text: &str, piece: &str, by: &str) -> String {
    assert!(text.contains(piece), "the example has no \"{piece}\" any more");
    text.replacen(piece, by, 1)
}
