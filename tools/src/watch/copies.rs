//! How far an engine is in making copies of far pages again, as `farcore top` shows it.

use farcore::ShardSnapshot;
use serde::Serialize;

/// Copies of far pages. Rates are those of all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct CopiesState {
    /// Cores whose pages lack copies, or may lack some.
    pub(crate) cores_copying: u64,
    pub(crate) pages_copied_per_second: f64,
    /// READs that were repeated at another copy.
    pub(crate) reads_elsewhere_per_second: f64,
    /// Since the engine was opened, counted by each core.
    pub(crate) nodes_lost: u64,
    /// Damaged pieces that were written over from another copy, since the engine was opened.
    pub(crate) copies_mended: u64,
}

impl CopiesState {
    /// The state of all cores: what changed between two reports, and the later one.
    pub(super) fn of(between: &ShardSnapshot, later: &ShardSnapshot, seconds: f64) -> Self {
        let rate = |count: u64| count as f64 / seconds;
        Self {
            cores_copying: later.copying,
            pages_copied_per_second: rate(between.pages_copied),
            reads_elsewhere_per_second: rate(between.far_reads_elsewhere),
            nodes_lost: later.nodes_lost,
            copies_mended: later.copies_mended,
        }
    }

    /// True if there is something to show.
    pub(crate) fn is_active(&self) -> bool {
        self.cores_copying > 0
            || self.pages_copied_per_second > 0.0
            || self.reads_elsewhere_per_second > 0.0
    }
}
