//! How much memory an engine takes where its configuration does not say: what a machine can give
//! beside its other programs.

use farcore_tuning::{Root, available_memory};

/// Local memory at most.
const LOCAL_BYTES_MAX: u64 = 1 << 30;
/// Far memory at most.
const FAR_BYTES_MAX: u64 = 4 << 30;
/// The memory that is assumed available where the machine does not report it.
const AVAILABLE_BYTES: u64 = 4 << 30;
/// Sizes are multiples of this.
const GRAIN_BYTES: u64 = 16 << 20;

/// Sizes that fit a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MemoryPlan {
    pub(super) local_bytes: u64,
    pub(super) far_bytes: u64,
}

impl MemoryPlan {
    /// Those of this machine and its control group.
    pub(super) fn of_machine() -> Self {
        let available = available_memory(&Root::new("/"));
        Self::of(available.map_or(AVAILABLE_BYTES, |memory| memory.bytes))
    }

    fn of(available: u64) -> Self {
        let part = |share: u64, most: u64| {
            let bytes = (available / share).min(most);
            (bytes / GRAIN_BYTES * GRAIN_BYTES).max(GRAIN_BYTES)
        };
        Self {
            local_bytes: part(8, LOCAL_BYTES_MAX),
            far_bytes: part(4, FAR_BYTES_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fit_the_machine() {
        let sizes = |available| {
            let sizes = MemoryPlan::of(available);
            (sizes.local_bytes >> 20, sizes.far_bytes >> 20)
        };
        assert_eq!(sizes(64 << 30), (1024, 4096));
        assert_eq!(sizes(2 << 30), (256, 512));
        assert_eq!(sizes(0), (16, 16));
    }
}
