//! The limits of the process's control group, version 1 or 2.
//!
//! A limit is the strictest of the group's own and its ancestors'. Reads `/proc/self/cgroup`,
//! `/proc/meminfo` and the controllers' files through a [`Root`]; writes nothing.

use crate::measure::root::Root;
use crate::measure::size::Size;

const MOUNT: &str = "/sys/fs/cgroup";
/// Limit on the ancestors read; deeper than any real hierarchy.
const DEPTH_MAX: usize = 64;

/// The folders of a controller's groups, from this process's group up to the root.
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

/// The processor time that this process may use, in cores; `None` if unlimited.
#[must_use]
pub fn cores_limit(root: &Root) -> Option<f64> {
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
        // Version 1 writes -1 for no limit.
        let cores = quota / period;
        (cores.is_finite() && cores > 0.0).then_some(cores)
    };
    folders(root, "cpu")
        .into_iter()
        .filter_map(of)
        .min_by(f64::total_cmp)
}

/// The bytes of memory that this process may use, and the control group's file with that limit;
/// `None` if unlimited.
#[must_use]
pub fn memory_limit(root: &Root) -> Option<(u64, &'static str)> {
    let folders = folders(root, "memory").into_iter();
    let limits = folders.filter_map(|folder| limit_of_group(root, &folder));
    limits.min_by_key(|&(bytes, _)| bytes)
}

/// The memory that is still available, and its limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AvailableMemory {
    /// Bytes that are free, or that the kernel reclaims before it kills a process.
    pub bytes: u64,
    /// The limit that is reached first.
    pub end: MemoryEnd,
}

/// The limit that ends the available memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemoryEnd {
    /// The machine's memory and swap.
    Machine,
    /// The limit of a control group.
    ControlGroup {
        /// The folder of the group.
        folder: String,
        /// The file in it that holds the limit: `memory.max` or `memory.high`; in version 1,
        /// `memory.limit_in_bytes`.
        file: &'static str,
        /// The group's limit in bytes: the least of these.
        limit_bytes: u64,
        /// The group's use in bytes, without file pages that the kernel can drop.
        used_bytes: u64,
    },
}

impl MemoryEnd {
    /// The place of the limit, with the group's figures, worded for a message.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::Machine => "on this machine".to_owned(),
            Self::ControlGroup {
                folder,
                file,
                limit_bytes,
                used_bytes,
            } => format!(
                "to the control group {folder}, which may use {} (`{file}`) and uses {}",
                Size(*limit_bytes),
                Size(*used_bytes)
            ),
        }
    }

    /// The remedy that makes more memory available, worded for a message.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::Machine => "free memory".to_owned(),
            Self::ControlGroup { file, .. } => format!("raise the group's `{file}`"),
        }
    }
}

/// The memory that this process can still allocate, free swap included: the least of what the
/// machine and each of its control groups have left. `None` if no file reports it.
#[must_use]
pub fn available_memory(root: &Root) -> Option<AvailableMemory> {
    let facts = root.read("/proc/meminfo").unwrap_or_default();
    let swap_bytes = kibibytes(&facts, "SwapFree:").unwrap_or(0);
    available(root, &facts, swap_bytes)
}

/// The memory that this process can still allocate without swap, so that it stays resident. `None`
/// if no file reports it.
#[must_use]
pub fn available_resident_memory(root: &Root) -> Option<AvailableMemory> {
    let facts = root.read("/proc/meminfo").unwrap_or_default();
    available(root, &facts, 0)
}

fn available(root: &Root, facts: &str, swap_bytes: u64) -> Option<AvailableMemory> {
    let machine = kibibytes(facts, "MemAvailable:").map(|bytes| AvailableMemory {
        bytes: bytes.saturating_add(swap_bytes),
        end: MemoryEnd::Machine,
    });
    let groups = folders(root, "memory").into_iter();
    let groups = groups.filter_map(|folder| available_in_group(root, folder, swap_bytes));
    groups.chain(machine).min_by_key(|one| one.bytes)
}

fn available_in_group(root: &Root, folder: String, swap_bytes: u64) -> Option<AvailableMemory> {
    let number = |name: &str| root.number::<u64>(&format!("{folder}/{name}"));
    let (limit_bytes, file) = limit_of_group(root, &folder)?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let facts = root
        .read(&format!("{folder}/memory.stat"))
        .unwrap_or_default();
    // In version 1, the sums over descendants stand beside the group's own figures.
    let of = |name: &str| {
        let mut lines = facts.lines().filter_map(|line| line.split_once(' '));
        lines
            .find(|(key, _)| *key == name)?
            .1
            .trim()
            .parse::<u64>()
            .ok()
    };
    let files = of("total_inactive_file").or_else(|| of("inactive_file"));
    let used_bytes = used.saturating_sub(files.unwrap_or(0));
    // "max" does not parse: the group has no swap limit.
    let swap = number("memory.swap.current").map_or(0, |used| {
        let limit = number("memory.swap.max").unwrap_or(u64::MAX);
        limit.saturating_sub(used).min(swap_bytes)
    });
    Some(AvailableMemory {
        bytes: limit_bytes.saturating_sub(used_bytes).saturating_add(swap),
        end: MemoryEnd::ControlGroup {
            folder,
            file,
            limit_bytes,
            used_bytes,
        },
    })
}

/// One group's limit in bytes, and the file that holds it. "max" does not parse: no limit.
fn limit_of_group(root: &Root, folder: &str) -> Option<(u64, &'static str)> {
    let limit = |file| Some((root.number::<u64>(&format!("{folder}/{file}"))?, file));
    let unified = ["memory.max", "memory.high"].into_iter().filter_map(limit);
    let least = unified.min_by_key(|&(bytes, _)| bytes);
    least.or_else(|| limit("memory.limit_in_bytes"))
}

/// A line of `/proc/meminfo`, or of a NUMA node's `meminfo`, in bytes.
#[must_use]
pub fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(name))?;
    let value = line.rsplit(name).next()?.split_whitespace().next()?;
    value.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MEMINFO: &str = "MemTotal: 4000 kB\nMemAvailable: 2000 kB\nSwapFree: 100 kB\n";

    fn with_root<T>(files: &[(&str, &str)], read: impl FnOnce(&Root) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for (path, text) in files {
            let path = root.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        read(&root)
    }

    fn available(files: &[(&str, &str)]) -> Option<AvailableMemory> {
        with_root(files, available_memory)
    }

    fn group(folder: &str, file: &'static str, limit_bytes: u64, used_bytes: u64) -> MemoryEnd {
        MemoryEnd::ControlGroup {
            folder: folder.to_owned(),
            file,
            limit_bytes,
            used_bytes,
        }
    }

    #[test]
    fn without_a_group_limit_the_machine_is_the_limit() {
        let machine = AvailableMemory {
            bytes: 2100 << 10,
            end: MemoryEnd::Machine,
        };
        assert_eq!(
            available(&[("/proc/meminfo", MEMINFO)]),
            Some(machine.clone())
        );
        let unlimited = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/box\n"),
            ("/sys/fs/cgroup/box/memory.max", "max\n"),
            ("/sys/fs/cgroup/box/memory.current", "5000\n"),
        ];
        assert_eq!(available(&unlimited), Some(machine));
        assert_eq!(available(&[]), None);
    }

    #[test]
    fn the_strictest_ancestor_group_is_the_limit() {
        let files = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/pod/box\n"),
            ("/sys/fs/cgroup/pod/memory.max", "900000\n"),
            ("/sys/fs/cgroup/pod/memory.high", "800000\n"),
            ("/sys/fs/cgroup/pod/memory.current", "500000\n"),
            (
                "/sys/fs/cgroup/pod/memory.stat",
                "file 90000\ninactive_file 60000\n",
            ),
            ("/sys/fs/cgroup/pod/memory.swap.max", "50000\n"),
            ("/sys/fs/cgroup/pod/memory.swap.current", "20000\n"),
            ("/sys/fs/cgroup/pod/box/memory.max", "700000\n"),
            ("/sys/fs/cgroup/pod/box/memory.current", "100000\n"),
        ];
        let found = available(&files).unwrap();
        let end = group("/sys/fs/cgroup/pod", "memory.high", 800_000, 440_000);
        assert_eq!(end.remedy(), "raise the group's `memory.high`");
        let place = end.place();
        assert!(
            place.contains("may use 781.2 KiB (`memory.high`)"),
            "{place}"
        );
        assert_eq!((found.bytes, found.end), (360_000 + 30_000, end.clone()));
        let resident = with_root(&files, available_resident_memory).unwrap();
        assert_eq!((resident.bytes, resident.end), (360_000, end));
        let limit = with_root(&files, memory_limit);
        assert_eq!(limit, Some((700_000, "memory.max")));
    }

    #[test]
    fn version_1_groups_limit_too() {
        let files = [
            ("/proc/self/cgroup", "4:memory:/box\n0::/\n"),
            (
                "/sys/fs/cgroup/memory/box/memory.limit_in_bytes",
                "629145600\n",
            ),
            (
                "/sys/fs/cgroup/memory/box/memory.usage_in_bytes",
                "30000000\n",
            ),
            (
                "/sys/fs/cgroup/memory/box/memory.stat",
                "inactive_file 1\ntotal_inactive_file 10000000\n",
            ),
        ];
        let found = available(&files).unwrap();
        let file = "memory.limit_in_bytes";
        let end = group("/sys/fs/cgroup/memory/box", file, 629_145_600, 20_000_000);
        assert_eq!((found.bytes, found.end), (609_145_600, end));
    }
}
