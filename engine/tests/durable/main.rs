//! What is stored survives: engines that are opened again on their data directories, on copies of
//! them that were made amid the work, and after their processes were killed.

mod checked;
mod contents;
mod copies;
mod figures;
mod reopened;
mod repaired;
mod salvaged;
mod work;

use std::path::Path;

use farcore::{Config, LogPolicy};

/// A small engine over a data directory.
fn config(dir: &Path, cores: usize, log: LogPolicy) -> Config {
    Config {
        cores: (0..cores).collect(),
        local_bytes: 24 << 20,
        far_bytes: 128 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 10_000,
        hash_tags: true,
        prefault: false,
        data_dir: Some(dir.to_owned()),
        log,
        ..Config::default()
    }
}
