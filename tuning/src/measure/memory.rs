//! The resident memory of this process, read from `/proc/self/statm`.

/// Resident bytes of this process as the kernel counts them; 0 if the kernel does not report it.
#[must_use]
pub fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    pages * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_holds_some_memory() {
        assert!(super::resident_bytes() > 100_000);
    }
}
