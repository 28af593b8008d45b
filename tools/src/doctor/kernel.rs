//! Checks the kernel's version and whether it allows io_uring.

use super::finding::Finding;
use farcore_tuning::Root;

const VERSION_MIN: (u32, u32) = (5, 8);

pub(super) fn check(root: &Root) -> Vec<Finding> {
    vec![version(root), io_uring(root)]
}

fn version(root: &Root) -> Finding {
    let what = "kernel";
    let Some(seen) = root.read("/proc/sys/kernel/osrelease") else {
        return Finding::unknown(what, "/proc/sys/kernel/osrelease");
    };
    let mut numbers = seen
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= VERSION_MIN {
        return Finding::fine(what, seen);
    }
    Finding::broken(what, seen)
        .because("io_uring as glommio uses it needs Linux 5.8 or newer")
        .mend("install and boot a newer kernel of your distribution")
}

fn io_uring(root: &Root) -> Finding {
    let what = "io_uring";
    let disabled = "/proc/sys/kernel/io_uring_disabled";
    match root.read(disabled).as_deref() {
        Some("0") => Finding::fine(what, "allowed for all processes"),
        // The setting exists from Linux 6.6 on.
        None => Finding::fine(what, "no setting restricts it"),
        Some("1") => {
            let group = root.read("/proc/sys/kernel/io_uring_group");
            let group = group.as_deref().unwrap_or("-1").to_owned();
            Finding::weak(what, format!("allowed for group {group} and CAP_SYS_ADMIN"))
                .because("processes outside that group cannot open an engine")
                .mend("sysctl -w kernel.io_uring_disabled=0")
        }
        Some(other) => Finding::broken(what, format!("kernel.io_uring_disabled is {other}"))
            .because("each core's executor needs an io_uring")
            .mend("sysctl -w kernel.io_uring_disabled=0"),
    }
}
