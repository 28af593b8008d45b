//! Where the parts of a value lie, and how many registers it has.

/// Registers of a value.
pub(crate) const REGISTERS: usize = 1 << REGISTER_BITS;
/// Bits of a hash that choose the register.
pub(super) const REGISTER_BITS: u32 = 14;
/// Bits of a register of the dense encoding.
pub(super) const DENSE_BITS: usize = 6;
pub(super) const MAGIC: &[u8; 4] = b"HYLL";
pub(crate) const HEADER_BYTES: usize = 16;
pub(super) const ENCODING_AT: usize = 4;
pub(super) const ESTIMATE_AT: usize = 8;
/// Set in the last byte of the estimate if that is not valid.
pub(super) const STALE: u8 = 0x80;
pub(super) const DENSE: u8 = 0;
pub(super) const SPARSE: u8 = 1;
/// Bytes of a value of the dense encoding.
pub(crate) const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * DENSE_BITS / 8;
/// Bytes that are read of a value at most: those of any sparse one that is not damaged are fewer.
pub(crate) const BYTES_MAX: usize = 64 << 10;
