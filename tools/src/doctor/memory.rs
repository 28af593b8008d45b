//! Checks memory: its size, huge pages, swap, overcommit and the limit of mappings. Within a
//! control group its memory limit counts.

use farcore::Size;

use super::finding::Finding;
use farcore_tuning::Root;
use farcore_tuning::{self, kibibytes};

const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage";
const EXPLICIT: &str = "/sys/kernel/mm/hugepages";
const MAP_COUNT_MIN: u64 = 65_530;
/// Least available memory of a useful engine.
const MEMORY_MIN: u64 = 1 << 30;

pub(super) fn check(root: &Root) -> Vec<Finding> {
    vec![
        memory(root),
        transparent(root),
        defragmentation(root),
        explicit(root),
        swap(root),
        overcommit(root),
        map_count(root),
    ]
}

fn memory(root: &Root) -> Finding {
    let what = "memory";
    let facts = root.read("/proc/meminfo").unwrap_or_default();
    let (Some(total), Some(available)) = (
        kibibytes(&facts, "MemTotal:"),
        kibibytes(&facts, "MemAvailable:"),
    ) else {
        return Finding::unknown(what, "/proc/meminfo");
    };
    let mut seen = format!("{} of {} available", Size(available), Size(total));
    let limit = farcore_tuning::memory_limit(root).filter(|limit| limit.0 < total);
    let mut group = String::new();
    if let Some((limit, file)) = limit {
        group = format!("raise the control group's {file}, ");
        seen = format!("{seen}, {} for this control group", Size(limit));
    }
    if available.min(limit.map_or(u64::MAX, |limit| limit.0)) >= MEMORY_MIN {
        return Finding::fine(what, seen);
    }
    Finding::weak(what, seen)
        .because("local memory and embedded far memory must both fit")
        .mend(format!(
            "stop other programs, {group}or lower Config::local_bytes and far_bytes"
        ))
}

fn transparent(root: &Root) -> Finding {
    let what = "transparent huge pages";
    let Some(mode) = root.chosen(&format!("{TRANSPARENT}/enabled")) else {
        return Finding::unknown(what, "/sys/kernel/mm/transparent_hugepage/enabled");
    };
    if matches!(mode.as_str(), "always" | "madvise") {
        return Finding::fine(what, mode);
    }
    Finding::weak(what, mode)
        .because("random reads of large arenas are several times slower on 4 KiB pages")
        .mend(format!("echo madvise > {TRANSPARENT}/enabled"))
}

fn defragmentation(root: &Root) -> Finding {
    let what = "huge page defrag";
    let Some(mode) = root.chosen(&format!("{TRANSPARENT}/defrag")) else {
        return Finding::unknown(what, "/sys/kernel/mm/transparent_hugepage/defrag");
    };
    if matches!(mode.as_str(), "always" | "madvise" | "defer+madvise") {
        return Finding::fine(what, mode);
    }
    Finding::weak(what, mode)
        .because("on a machine that has run for long, arenas get 4 KiB pages although the kernel could make huge ones")
        .mend(format!("echo madvise > {TRANSPARENT}/defrag"))
}

fn explicit(root: &Root) -> Finding {
    let what = "reserved huge pages";
    let mut reserved = 0_u64;
    for name in root.names(EXPLICIT) {
        let page = name
            .strip_prefix("hugepages-")
            .and_then(|rest| rest.strip_suffix("kB")?.parse::<u64>().ok());
        let free = root.number::<u64>(&format!("{EXPLICIT}/{name}/free_hugepages"));
        let bytes = page.unwrap_or(0).saturating_mul(1024);
        reserved = reserved.saturating_add(bytes.saturating_mul(free.unwrap_or(0)));
    }
    if reserved == 0 {
        return Finding::fine(what, "none; Farcore uses transparent huge pages");
    }
    Finding::weak(what, format!("{} unused", Size(reserved)))
        .because("Farcore uses transparent huge pages and cannot use reserved ones, so this memory is lost to it")
        .mend("sysctl -w vm.nr_hugepages=0, if no other program here needs them")
}

fn swap(root: &Root) -> Finding {
    let what = "swap";
    let Some(list) = root.read("/proc/swaps") else {
        return Finding::unknown(what, "/proc/swaps");
    };
    let areas = list.lines().skip(1).count();
    if areas == 0 {
        return Finding::fine(what, "none");
    }
    Finding::weak(what, format!("{areas} areas"))
        .because(
            "memory that is not locked may be swapped out, and a request that needs it waits for a disk",
        )
        .mend("swapoff -a, or lock local memory (raise `ulimit -l`)")
}

fn overcommit(root: &Root) -> Finding {
    let what = "overcommit";
    match root.read("/proc/sys/vm/overcommit_memory").as_deref() {
        None => Finding::unknown(what, "/proc/sys/vm/overcommit_memory"),
        Some("2") => Finding::weak(what, "strict")
            .because("arenas count in full against the commit limit before they are used, so mapping them may fail")
            .mend("sysctl -w vm.overcommit_memory=0"),
        Some("1") => Finding::fine(what, "always"),
        Some(_) => Finding::fine(what, "heuristic"),
    }
}

fn map_count(root: &Root) -> Finding {
    let what = "memory maps";
    match root.number::<u64>("/proc/sys/vm/max_map_count") {
        None => Finding::unknown(what, "/proc/sys/vm/max_map_count"),
        Some(count) if count >= MAP_COUNT_MIN => Finding::fine(what, format!("{count} a process")),
        Some(count) => Finding::weak(what, format!("{count} a process"))
            .because("regions of far memory, rings and threads each need mappings")
            .mend(format!("sysctl -w vm.max_map_count={MAP_COUNT_MIN}")),
    }
}
