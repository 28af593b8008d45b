//! A lock-free, thread-per-core key-value storage engine for machines whose memory is mostly elsewhere.

pub mod constants;
mod error;
mod operation;

pub use error::{Error, Result};
pub use operation::{Answer, Operation, Version};
