//! What the control group allows, of either version: the strictest of the group and those above it.

use super::root::Root;

const MOUNT: &str = "/sys/fs/cgroup";
/// Deeper than any hierarchy is.
const DEPTH_MAX: usize = 64;

/// The folders of a controller's groups, from this process's up.
fn folders(root: &Root, controller: &str) -> Vec<String> {
    let text = root.read("/proc/self/cgroup").unwrap_or_default();
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let mount = if controllers.is_empty() {
            MOUNT.to_owned()
        } else if controllers.split(',').any(|one| one == controller) {
            format!("{MOUNT}/{controller}")
        } else {
            continue;
        };
        let mut path = path.trim_end_matches('/');
        for _ in 0..DEPTH_MAX {
            folders.push(format!("{mount}{path}"));
            match path.rfind('/') {
                Some(end) => path = &path[..end],
                None => break,
            }
        }
    }
    folders
}

/// Cores' worth of time that this process may use; `None` for no limit.
pub(super) fn cores_limit(root: &Root) -> Option<f64> {
    let of = |folder: String| -> Option<f64> {
        let unified = root.read(&format!("{folder}/cpu.max"));
        let (quota, period) = if let Some(text) = unified {
            let mut words = text.split_whitespace().map(str::parse::<f64>);
            (words.next()?.ok()?, words.next()?.ok()?)
        } else {
            (
                root.number::<f64>(&format!("{folder}/cpu.cfs_quota_us"))?,
                root.number::<f64>(&format!("{folder}/cpu.cfs_period_us"))?,
            )
        };
        // Version 1 says -1 for no limit.
        let cores = quota / period;
        (cores.is_finite() && cores > 0.0).then_some(cores)
    };
    folders(root, "cpu")
        .into_iter()
        .filter_map(of)
        .min_by(f64::total_cmp)
}

/// Bytes that this process may use; `None` for no limit.
pub(super) fn memory_limit(root: &Root) -> Option<u64> {
    let of = |folder: String| {
        root.number(&format!("{folder}/memory.max"))
            .or_else(|| root.number(&format!("{folder}/memory.limit_in_bytes")))
    };
    folders(root, "memory").into_iter().filter_map(of).min()
}
