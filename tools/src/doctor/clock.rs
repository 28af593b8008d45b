//! Checks the clock source: reading the time must be one instruction of a steady counter.

use super::finding::Finding;
use super::processor::flags;
use farcore_tuning::Root;

const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0";

pub(super) fn check(root: &Root) -> Vec<Finding> {
    let what = "clock source";
    let Some(current) = root.read(&format!("{SOURCE}/current_clocksource")) else {
        return vec![Finding::unknown(what, "/sys/devices/system/clocksource")];
    };
    let flags = flags(root).unwrap_or_default();
    let steady = ["constant_tsc", "nonstop_tsc"]
        .iter()
        .all(|flag| flags.iter().any(|one| one == flag));
    let other = matches!(current.as_str(), "arch_sys_counter");
    if (current == "tsc" && steady) || other {
        return vec![Finding::fine(what, current)];
    }
    if current == "tsc" {
        return vec![
            Finding::weak(what, "tsc, of changing rate")
                .because("the time is read by a call instead of one instruction, for every sampled request")
                .mend("in a virtual machine, pass an invariant TSC through (QEMU `-cpu host,invtsc=on`)"),
        ];
    }
    let available = root.read(&format!("{SOURCE}/available_clocksource"));
    let finding =
        Finding::weak(what, &current).because("reading it costs tens to thousands of nanoseconds");
    vec![
        if available.is_some_and(|all| all.split_whitespace().any(|one| one == "tsc")) {
            finding.mend(format!("echo tsc > {SOURCE}/current_clocksource"))
        } else {
            finding.mend("see `dmesg | grep -i tsc` for why the kernel rejected it; boot with tsc=reliable if it is sound")
        },
    ]
}
