//! Whole files: `REDIS` and a version of four digits, records, an end, and a checksum from version
//! 5 on.

mod reader;
mod writer;

pub use self::reader::{FileEvent, FileReader, FileStep, KeyHead};
pub use self::writer::FileWriter;

const MAGIC: &[u8; 5] = b"REDIS";
const HEAD_BYTES: usize = 9;
/// The first version that has a checksum.
const SUMMED_FROM: u32 = 5;

/// Kinds of records that are no values.
mod records {
    pub(super) const FUNCTION: u8 = 245;
    pub(super) const FUNCTION_EARLY: u8 = 246;
    pub(super) const MODULE: u8 = 247;
    pub(super) const IDLE: u8 = 248;
    pub(super) const FREQUENCY: u8 = 249;
    pub(super) const NOTE: u8 = 250;
    pub(super) const SIZES: u8 = 251;
    pub(super) const EXPIRY_MS: u8 = 252;
    pub(super) const EXPIRY_S: u8 = 253;
    pub(super) const DATABASE: u8 = 254;
    pub(super) const END: u8 = 255;
    pub(super) const SLOT: u8 = 244;
}
