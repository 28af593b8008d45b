//! Feeds bytes to what reads untrusted input: corpora, mutations of them, and a search by coverage.
//!
//! A target is a test beside its decoder. `cargo test` gives it its seeds, which code makes, its
//! corpus, which is `corpus/NAME.txt`, and a fixed number of inputs that are drawn from them, the
//! same in every run. `cargo xtask fuzz NAME --minutes T` builds the decoder so that it counts what
//! it reaches, and searches from there.
//!
//! ```
//! farcore_fuzz::Target::new("example")
//!     .seed(b"12")
//!     .run(|bytes| assert!(bytes.len() < usize::MAX));
//! ```
//!
//! - Z1: without an argument of the environment, a run depends on nothing but code and corpus.
//! - Z2: an input that fails is made smaller, and printed so that a line replays it.
//! - Z3: what a target allocates while it reads an input has a bound that the input's length gives.
//!
//! It names no other crate of the workspace, so that each of them can have targets.

#![allow(clippy::print_stdout, reason = "a search reports what it finds")]

mod corpus;
mod coverage;
mod input;
mod memory;
mod mutator;
mod search;
mod target;
mod trial;

pub use corpus::{escape, unescape};
pub use input::Input;
pub use target::Target;
