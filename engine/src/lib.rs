//! A lock-free, thread-per-core key-value storage engine for machines whose memory is mostly elsewhere.

mod cipher;
pub mod constants;
mod error;
mod index;
mod log;
mod operation;
mod routing;
mod shard;

pub use cipher::EncryptionKey;
pub use error::{Error, Result};
pub use operation::{Answer, Operation, Version};
