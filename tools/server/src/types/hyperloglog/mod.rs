//! Estimates of how many elements were added, as Redis stores them in strings: HyperLogLog with
//! 16,384 registers of 6 bits.
//!
//! ```text
//! byte  0..4    4         5..8   8..16              16..
//!      "HYLL"  encoding  zeros  estimate, or none  registers, dense or sparse
//! ```
//!
//! The estimate is little-endian, and its highest bit says that it is not valid. Source: the
//! comments of Redis's `hyperloglog.c`, and Heule, Nunkesser, Hall: HyperLogLog in Practice (2013);
//! Ertl: New cardinality estimation algorithms (2017).
//!
//! - I1: values are those that Redis stores after the same commands, byte for byte.
//! - I2: bytes that are damaged are an error, whatever they are.

mod dense;
mod estimate;
mod hash;
pub(crate) mod layout;
mod sparse;
#[cfg(test)]
mod tests;
pub(crate) mod value;
