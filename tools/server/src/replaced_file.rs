//! Files that are replaced as a whole: a reader, and a server that is started after a crash, finds
//! the old one or the new one.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces a file, whose rights stay; a new one gets those of `mode`.
///
/// # Errors
/// Of the system. The old file stays then.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut beside = path.as_os_str().to_owned();
    // ORDERING: relaxed; numbers only differ.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    beside.push(format!(".tmp-{}-{number}", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = write(path, &beside, (bytes, mode));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn write(path: &Path, beside: &Path, (bytes, mode): (&[u8], u32)) -> io::Result<()> {
    // It may hold secrets: others may read it only if they may read the present one.
    let present = fs::metadata(path).map(|found| found.permissions().mode());
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut file = options.mode(present.unwrap_or(mode)).open(beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = fs::File::open(folder.unwrap_or(Path::new(".")))?;
    fs::rename(beside, path)?;
    // The name lasts only once its folder does. The file counts by now, whatever comes of that.
    if let Err(error) = folder.sync_all() {
        let path = path.display();
        tracing::error!(%path, %error, "a file is replaced, and may be the old one after a crash");
    }
    Ok(())
}
