//! The requests to measure: operations and the sizes of their transfers, parsed from flags.

use std::fmt;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use farcore::Size;
use farcore_rdma::tcp::TRANSFER_BYTES_MAX;
use serde::Serialize;

use crate::text::size;

/// Length of the word that an atomic operation changes.
const WORD_BYTES: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Operation {
    /// Far memory to local memory.
    Read,
    /// Local memory to far memory.
    Write,
    /// Compare-and-swap of a far word.
    Cas,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Cas => "cas",
        })
    }
}

/// One kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) operation: Operation,
    pub(super) bytes: u32,
}

/// The operations and sizes of the flags, and their defaults.
#[derive(Debug)]
pub(super) struct Selection<'a> {
    pub(super) operations: &'a [Operation],
    pub(super) sizes: &'a [String],
    pub(super) operations_default: &'a [Operation],
    pub(super) sizes_default: &'a [u32],
}

fn bytes(text: &str) -> Result<u32> {
    let given = size("--bytes", text, "4KiB")?;
    let bytes = u32::try_from(given).unwrap_or(u32::MAX);
    ensure!(
        (1..=TRANSFER_BYTES_MAX).contains(&bytes),
        "--bytes {text}: must be 1 to {}",
        Size(TRANSFER_BYTES_MAX.into())
    );
    Ok(bytes)
}

impl Selection<'_> {
    /// A shape for each row. Compare-and-swap has one row at most, because it works on words; it is
    /// an error with other sizes only.
    pub(super) fn shapes(&self) -> Result<Vec<Shape>> {
        let sizes = self.sizes.iter().map(|text| bytes(text));
        let sizes = sizes.collect::<Result<Vec<u32>>>()?;
        let swap = sizes.is_empty() || sizes.contains(&WORD_BYTES);
        let is_named = self.operations.contains(&Operation::Cas);
        let is_alone = is_named && self.operations.iter().all(|one| *one == Operation::Cas);
        let has_others = sizes.iter().any(|&bytes| bytes != WORD_BYTES);
        ensure!(
            (swap || !is_named) && !(is_alone && has_others),
            "--operation cas --bytes {}: compare-and-swap works on words of {WORD_BYTES} bytes; write --bytes {WORD_BYTES}, or omit --bytes",
            self.sizes.join(",")
        );
        let sizes = match &sizes[..] {
            [] => self.sizes_default,
            some => some,
        };
        let operations = match self.operations {
            [] => self.operations_default,
            some => some,
        };
        let mut shapes = Vec::new();
        for &operation in operations {
            if operation != Operation::Cas {
                shapes.extend(sizes.iter().map(|&bytes| Shape { operation, bytes }));
            } else if swap {
                shapes.push(Shape {
                    operation,
                    bytes: WORD_BYTES,
                });
            }
        }
        Ok(shapes)
    }
}

/// The longest transfer among them.
pub(super) fn longest_bytes(shapes: &[Shape]) -> u32 {
    shapes.iter().map(|shape| shape.bytes).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(operations: &[Operation], sizes: &[&str]) -> Result<Vec<(Operation, u32)>> {
        let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        let selection = Selection {
            operations,
            sizes: &sizes,
            operations_default: &[Operation::Read, Operation::Cas],
            sizes_default: &[64, 4096],
        };
        let shapes = selection.shapes()?;
        let pair = |shape: &Shape| (shape.operation, shape.bytes);
        Ok(shapes.iter().map(pair).collect())
    }

    #[test]
    fn every_operation_has_every_size_except_compare_and_swap() {
        use Operation::{Cas, Read, Write};
        let seen = rows(&[], &[]).unwrap();
        assert_eq!(seen, [(Read, 64), (Read, 4096), (Cas, 8)]);
        assert_eq!(rows(&[], &["1KiB"]).unwrap(), [(Read, 1024)]);
        let seen = rows(&[Cas, Write], &["1KiB", "8"]).unwrap();
        assert_eq!(seen, [(Cas, 8), (Write, 1024), (Write, 8)]);
        assert_eq!(rows(&[Cas], &[]).unwrap(), [(Cas, 8)]);
    }

    #[test]
    fn bad_sizes_are_named_in_errors() {
        for (sizes, part) in [
            (&["4 parsecs"][..], "`4 parsecs` is not a size"),
            (&["0"], "--bytes 0: must be 1 to 16 MiB"),
            (&["8", "17MiB"], "--bytes 17MiB: must be"),
            (&["1TiB"], "must be 1 to 16 MiB"),
        ] {
            let error = rows(&[], sizes).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        for sizes in [&["64"][..], &["8", "64"]] {
            let error = rows(&[Operation::Cas], sizes).unwrap_err().to_string();
            assert!(error.contains("words of 8 bytes"), "{error}");
        }
    }
}
