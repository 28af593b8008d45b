//! Redis's RDB format, without I/O: values, payloads of `DUMP`, and whole files.
//!
//! [`Decoder`] reads one value of versions 1 to 12, an element at a time, from bytes that may come
//! in pieces. [`payload`] is the footer of what `DUMP` replies. [`FileReader`] reads a file, and
//! [`FileWriter`] writes one. [`write`] has values as Redis 7.0 writes them, version 10.
//!
//! - R1: no bytes cause a panic: what is no value is an error.
//! - R2: memory is taken for bytes that are there: a length that is declared takes none. Of packed
//!   bytes, up to [`Decoder::allow`].
//! - R3: what [`Decoder`] accepts is whole: lengths, ends, and orders agree. Elements that occur
//!   twice in a set, a hash or a sorted set are left to the caller.
//!
//! Source: `rdb.c`, `listpack.c`, `ziplist.c` and `t_stream.c` of Redis 7.0 describe the format.

mod crc64;
mod error;
mod file;
#[cfg(test)]
mod fuzzed;
mod intset;
mod listpack;
mod lzf;
pub mod payload;
mod text;
mod value;
mod window;
pub mod write;
mod ziplist;
mod zipmap;

pub use self::crc64::Crc64;
pub use self::error::{Error, Problem};
pub use self::file::{FileEvent, FileReader, FileStep, FileWriter, KeyHead};
pub use self::lzf::Packer;
pub use self::text::Text;
pub use self::value::{Decoder, Fields, Id, Item, Step, StreamHead, ValueKind};
pub use self::window::Window;

/// The newest version that is read.
pub const VERSION_MAX: u16 = 12;
/// The version that is written: that of Redis 7.0.
pub const VERSION_WRITTEN: u16 = 10;
/// Bytes of a string that are unpacked without [`Decoder::allow`].
pub const UNPACKED_BYTES: usize = 64 << 10;
