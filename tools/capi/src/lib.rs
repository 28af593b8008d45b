//! The C interface of Farcore's native client, and of pools of remote memory.
//!
//! `include/farcore.h` declares what this crate exports: cbindgen writes it from these sources, and
//! `tests/header.rs` compares both. `include/farcore.hpp` is a C++ interface on top of the header.
//! `docs/c.md` is the guide.
//!
//! ```text
//! error.rs      codes, and the text of the last error of each thread
//! boundary.rs   what every exported function does with pointers, errors and panics
//! process.rs    which process a handle is of: none survives a fork
//! options.rs    what a client is made with
//! client.rs     a client's handle: connect, close, free
//! conditions.rs what a change depends on, and when a key expires
//! value.rs      values and metadata, in the caller's memory
//! requests.rs   each operation once: what is sent, and how its reply becomes an outcome
//! outcome.rs    how an operation ended, and what it returned
//! blocking.rs   the operations, for callers that wait
//! submit.rs     the operations, for callers that poll
//! operation.rs  an operation under way: poll, wait, results, free
//! batch.rs      the outcomes of an operation on many keys
//! pool/         pools of remote memory, with a map of their own
//! ```
//!
//! - I1: no panic leaves an exported function: [`boundary`] catches it, and the caller gets a
//!   code.
//! - I2: a pointer is checked for null before it is used, and a length before a slice is made.
//! - I3: a result is written only if the function returns `FARCORE_OK`, with the exceptions that
//!   the function names. What the caller has to free is null, or all zeros, otherwise.
//! - I4: memory that this crate has allocated is freed by this crate.

mod boundary;
mod error;
mod process;

mod conditions;
mod value;

mod options;

mod client;

mod outcome;
mod requests;

mod blocking;

mod operation;
mod submit;

mod batch;

mod pool;

pub use self::batch::*;
pub use self::blocking::*;
pub use self::client::*;
pub use self::conditions::*;
pub use self::error::*;
pub use self::operation::*;
pub use self::options::*;
pub use self::pool::*;
pub use self::submit::*;
pub use self::value::*;
