//! How much memory a server takes where its flags do not say.

use farcore_tuning::{Root, available_memory};

/// Local memory at most, by default.
const LOCAL_BYTES_MAX: u64 = 1 << 30;
/// Far memory at most, by default.
const FAR_BYTES_MAX: u64 = 4 << 30;
/// The memory that is assumed available where the machine does not tell.
const AVAILABLE_BYTES: u64 = 4 << 30;
/// Sizes are multiples of this.
const GRAIN_BYTES: u64 = 16 << 20;

/// The sizes of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) local_bytes: u64,
    pub(super) far_bytes: u64,
}

impl Sizes {
    /// The sizes that were given; others fit this machine.
    pub(super) fn choose(local: Option<u64>, far: Option<u64>, is_remote: bool) -> Self {
        let available = available_memory(&Root::new("/"));
        let available = available.map_or(AVAILABLE_BYTES, |memory| memory.bytes);
        Self::of(available, local, far, is_remote)
    }

    fn of(available: u64, local: Option<u64>, far: Option<u64>, is_remote: bool) -> Self {
        let part = |share: u64, most: u64| {
            let bytes = (available / share).min(most);
            (bytes / GRAIN_BYTES * GRAIN_BYTES).max(GRAIN_BYTES)
        };
        let own_far = if is_remote {
            FAR_BYTES_MAX
        } else {
            part(4, FAR_BYTES_MAX)
        };
        Self {
            local_bytes: local.unwrap_or_else(|| part(8, LOCAL_BYTES_MAX)),
            far_bytes: far.unwrap_or(own_far),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fit_the_machine_and_follow_the_flags() {
        let sizes = |available, local, far, is_remote| {
            let sizes = Sizes::of(available, local, far, is_remote);
            (sizes.local_bytes >> 20, sizes.far_bytes >> 20)
        };
        assert_eq!(sizes(64 << 30, None, None, false), (1024, 4096));
        assert_eq!(sizes(2 << 30, None, None, false), (256, 512));
        assert_eq!(sizes(2 << 30, None, None, true), (256, 4096));
        assert_eq!(sizes(0, None, None, false), (16, 16));
        assert_eq!(sizes(0, Some(5 << 20), Some(7 << 20), false), (5, 7));
    }
}
