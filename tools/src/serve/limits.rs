//! Limits of values that the server itself takes as they are.

use std::time::Duration;

use anyhow::{Result, ensure};
use farcore_bench::words::size;

/// The shortest and the longest time limit.
const TIME: (Duration, Duration) = (Duration::from_millis(1), Duration::from_hours(24 * 365));
/// The longest distance of far memory in this process, as in the benchmark.
const LATENCY_MAX: Duration = Duration::from_secs(1);
/// The least memory of clients: the buffers of a few of them.
const MEMORY_MIN: u64 = 1 << 20;

/// Checks a time limit.
///
/// # Errors
/// It is out of range.
pub(super) fn time(flag: &str, value: Duration) -> Result<()> {
    ensure!(
        (TIME.0..=TIME.1).contains(&value),
        "{flag} is {}: it must be 1ms to 365days",
        humantime::format_duration(value)
    );
    Ok(())
}

/// Checks the distance of far memory in this process.
///
/// # Errors
/// It is too long.
pub(super) fn latency(flag: &str, value: Duration) -> Result<()> {
    ensure!(
        value <= LATENCY_MAX,
        "{flag} is {}: it must be at most 1s",
        humantime::format_duration(value)
    );
    Ok(())
}

/// Checks the memory of clients.
///
/// # Errors
/// It is too little for one.
pub(super) fn memory(flag: &str, bytes: u64) -> Result<()> {
    ensure!(
        bytes >= MEMORY_MIN,
        "{flag} is {}: no client could be served; write {} or more",
        size(bytes),
        size(MEMORY_MIN)
    );
    Ok(())
}
