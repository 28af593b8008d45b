//! Random bytes of the kernel: the one place that draws them.

use std::io;

/// Fills a buffer with random bytes.
///
/// # Errors
/// The kernel provides none.
pub fn entropy(bytes: &mut [u8]) -> io::Result<()> {
    #[cfg(feature = "simulation")]
    if crate::simulated::entropy(bytes) {
        return Ok(());
    }
    getrandom::fill(bytes).map_err(io::Error::other)
}

/// A random word.
///
/// # Errors
/// As [`entropy`].
pub fn entropy_u32() -> io::Result<u32> {
    let mut bytes = [0; 4];
    entropy(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// A random double word.
///
/// # Errors
/// As [`entropy`].
pub fn entropy_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    entropy(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
