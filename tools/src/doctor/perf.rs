//! Checks which processor events may be counted.

use super::finding::Finding;
use farcore_tuning::Root;

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
const SOURCES: &str = "/sys/bus/event_source/devices";
/// Largest level at which user space may be counted; the kernel's part, up to one less.
const PARANOID_MAX: i32 = 2;

pub(super) fn check(root: &Root) -> Vec<Finding> {
    let what = "perf events";
    let Some(paranoid) = root.number::<i32>(PARANOID) else {
        return vec![Finding::unknown(what, PARANOID)];
    };
    let units = root.names(SOURCES);
    // Hybrid processors have a unit for each kind of core.
    let has_unit = units
        .iter()
        .any(|name| name.starts_with("cpu") || name.starts_with("armv"));
    let seen = format!("kernel.perf_event_paranoid is {paranoid}");
    let finding = if paranoid > PARANOID_MAX {
        Finding::weak(what, seen)
            .because("only programs with CAP_PERFMON may count cycles and cache misses")
            .mend("sysctl -w kernel.perf_event_paranoid=1")
    } else if !has_unit {
        Finding::weak(what, format!("{seen}; no counters of the processor"))
            .because("cycles, instructions, branch and cache misses are not shown")
            .mend("in a virtual machine, pass a PMU through (QEMU `-cpu host,pmu=on`)")
    } else {
        Finding::fine(what, seen)
    };
    vec![finding]
}
