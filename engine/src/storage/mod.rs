//! The files of a store that survives a restart: bases and logs of bytes, written by cores without
//! blocking and read back at the start, and the directory that they lie in.
//!
//! ```text
//! DIR/LOCK  MANIFEST  MANIFEST.old  base-GENERATION-SHARD  log-GENERATION-SHARD
//! file:  | super block | block | block | .. | end block, once it is finished |
//! ```
//!
//! What the bytes mean is not known here. The formats: docs/internals/storage.md.

mod block;
mod directory;
mod manifest;
mod medium;
mod reader;
#[cfg(feature = "simulation")]
pub(crate) mod simulated;
mod super_block;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use self::block::Chain;
pub(crate) use self::directory::{Directory, Stored};
pub(crate) use self::manifest::{BaseFile, Manifest};
#[cfg(feature = "simulation")]
pub(crate) use self::medium::Medium;
pub(crate) use self::reader::{FileReader, ReadOutcome};
pub(crate) use self::super_block::{FREE_BYTES, FileKind, SuperBlock};
pub(crate) use self::writer::FileWriter;

/// The bytes at a place; zeros where there are none.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.first_chunk().copied().unwrap_or([0; N])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}
