//! Farcore.
fn main() {}
