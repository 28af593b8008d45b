//! The flags of the memory that a node lends, checked together.

use anyhow::{Result, ensure};
use farcore_rdma::node::{MemoryOptions, REGIONS_MAX};

use crate::text::{grouped, size};

/// The least and the most length of an extent.
const EXTENT_BYTES: (u64, u64) = (64 << 10, 1 << 30);
/// A region is shorter than this.
const REGION_BYTES_END: u64 = 2 << 30;

/// The sizes as they were typed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lent<'a> {
    pub(super) memory: &'a str,
    pub(super) region: &'a str,
    pub(super) extent: &'a str,
}

impl Lent<'_> {
    /// The lengths, with defaults for all else.
    ///
    /// # Errors
    /// A size cannot be parsed, or is out of range.
    pub(super) fn options(self) -> Result<MemoryOptions> {
        let Self {
            memory,
            region,
            extent,
        } = self;
        let memory_bytes = size("--memory", memory, "32GiB")?;
        let region_bytes = size("--region", region, "1GiB")?;
        let extent_bytes = size("--extent", extent, "1MiB")?;
        let (least, most) = EXTENT_BYTES;
        ensure!(
            extent_bytes.is_power_of_two() && (least..=most).contains(&extent_bytes),
            "--extent {extent}: must be a power of two from 64KiB to 1GiB"
        );
        ensure!(
            region_bytes < REGION_BYTES_END,
            "--region {region}: must be under 2GiB"
        );
        for (flag, typed, bytes) in [
            ("--memory", memory, memory_bytes),
            ("--region", region, region_bytes),
        ] {
            ensure!(
                bytes > 0 && bytes.is_multiple_of(extent_bytes),
                "{flag} {typed}: must be a multiple of --extent, which is {extent}, and not 0"
            );
        }
        // Memory shorter than a region is one shorter region.
        let region_bytes = region_bytes.min(memory_bytes);
        let regions = memory_bytes.div_ceil(region_bytes);
        ensure!(
            regions <= REGIONS_MAX as u64,
            "--memory {memory} has {} regions of --region {region}: at most {}; give longer regions, or lend less",
            grouped(regions),
            grouped(REGIONS_MAX as u64)
        );
        Ok(MemoryOptions {
            region_bytes,
            extent_bytes,
            ..MemoryOptions::new(memory_bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(memory: &str, region: &str, extent: &str) -> Result<MemoryOptions> {
        let lent = Lent {
            memory,
            region,
            extent,
        };
        lent.options()
    }

    #[test]
    fn memory_shorter_than_a_region_is_one_region() {
        let options = checked("3MiB", "1GiB", "1MiB").unwrap();
        assert_eq!(
            (options.memory_bytes, options.region_bytes),
            (3 << 20, 3 << 20)
        );
        let options = checked("4GiB", "1GiB", "64KiB").unwrap();
        assert_eq!(
            (options.region_bytes, options.extent_bytes),
            (1 << 30, 64 << 10)
        );
    }

    #[test]
    fn errors_name_flag_value_and_limit() {
        for (sizes, message) in [
            (["12x", "1GiB", "1MiB"], "--memory `12x`"),
            (
                ["0", "1GiB", "1MiB"],
                "--memory 0: must be a multiple of --extent",
            ),
            (
                ["3MiB", "1GiB", "2MiB"],
                "--memory 3MiB: must be a multiple",
            ),
            (
                ["9MiB", "3MiB", "1GiB"],
                "--memory 9MiB: must be a multiple",
            ),
            (
                ["8MiB", "3MiB", "2MiB"],
                "--region 3MiB: must be a multiple",
            ),
            (["1MiB", "1GiB", "3"], "--extent 3: must be a power of two"),
            (
                ["1MiB", "1GiB", "2GiB"],
                "--extent 2GiB: must be a power of two",
            ),
            (
                ["3GiB", "2GiB", "1MiB"],
                "--region 2GiB: must be under 2GiB",
            ),
            (
                ["3TiB", "1GiB", "1MiB"],
                "3,072 regions of --region 1GiB: at most 2,048",
            ),
        ] {
            let [memory, region, extent] = sizes;
            let error = checked(memory, region, extent).unwrap_err().to_string();
            assert!(error.contains(message), "{sizes:?}: {error}");
        }
    }
}
