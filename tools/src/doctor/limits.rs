//! Checks the limits of this process: locked memory and open files.

use farcore::Size;

use super::finding::Finding;
use super::processor::allowed;
use farcore_tuning::Root;

/// Bytes that glommio locks for each executor.
const EXECUTOR_LOCKED_BYTES: u64 = 512 << 10;
/// Least limit for locking an arena of useful size.
const ARENA_LOCKED_BYTES: u64 = 1 << 30;
/// Files of each core: rings, eventfds, perf events and a few connections.
const FILES_OF_A_CORE: u64 = 64;
const FILES_OF_A_PROCESS: u64 = 256;

pub(super) fn check(root: &Root) -> Vec<Finding> {
    vec![locked_memory(root), open_files(root)]
}

/// The soft limit of this name in `/proc/self/limits`; `u64::MAX` if unlimited.
fn limit(root: &Root, name: &str) -> Option<u64> {
    let limits = root.read("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn locked_memory(root: &Root) -> Finding {
    let what = "locked memory";
    let Some(bytes) = limit(root, "Max locked memory") else {
        return Finding::unknown(what, "/proc/self/limits");
    };
    let mend = "ulimit -l unlimited (permanently: `* - memlock unlimited` in /etc/security/limits.conf, `LimitMEMLOCK=infinity` \
                in a unit, `--ulimit memlock=-1` for a container)";
    let seen = if bytes == u64::MAX {
        return Finding::fine(what, "unlimited");
    } else {
        Size(bytes).to_string()
    };
    if bytes < EXECUTOR_LOCKED_BYTES {
        return Finding::broken(what, seen)
            .because("each core's executor needs 512 KiB")
            .mend(mend);
    }
    if bytes < ARENA_LOCKED_BYTES {
        return Finding::weak(what, seen)
            .because("the arenas are not locked, and RDMA cannot register them")
            .mend(mend);
    }
    Finding::fine(what, seen)
}

fn open_files(root: &Root) -> Finding {
    let what = "open files";
    let Some(files) = limit(root, "Max open files") else {
        return Finding::unknown(what, "/proc/self/limits");
    };
    let cores = allowed(root).map_or(1, |cores| cores.0.len() as u64);
    let needed = FILES_OF_A_PROCESS + cores * FILES_OF_A_CORE;
    if files >= needed {
        return Finding::fine(what, format!("{files} a process"));
    }
    Finding::weak(what, format!("{files} a process"))
        .because(format!(
            "an engine on {cores} cores with memory nodes and clients may need {needed}"
        ))
        .mend(format!("ulimit -n {}", needed.next_power_of_two()))
}
