//! The findings on made-up machines.

use std::fs;

use tempfile::TempDir;

use super::*;

/// A machine of these files.
fn machine(files: &[(&str, &str)]) -> (TempDir, Root) {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Root::new(folder.path());
    for (path, text) in files {
        let path = root.path(path);
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("folders");
        fs::write(path, text).expect("a file");
    }
    (folder, root)
}

fn seen(files: &[(&str, &str)]) -> Vec<Finding> {
    let (_folder, root) = machine(files);
    examine(&root)
}

fn one<'a>(findings: &'a [Finding], what: &str) -> &'a Finding {
    let mut named = findings.iter().filter(|finding| finding.what == what);
    named
        .next()
        .unwrap_or_else(|| panic!("no `{what}` in {findings:#?}"))
}

fn verdict(findings: &[Finding], what: &str) -> Verdict {
    one(findings, what).verdict
}

const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
    Max open files            1048576              1048576              files\n\
    Max locked memory         unlimited            unlimited            bytes\n";

/// A well configured server of one node.
const SERVER: &[(&str, &str)] = &[
    ("/proc/sys/kernel/osrelease", "6.8.0-41-generic\n"),
    ("/proc/sys/kernel/io_uring_disabled", "0\n"),
    (
        "/proc/self/status",
        "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t1-7\n",
    ),
    ("/proc/self/limits", LIMITS),
    ("/proc/self/cgroup", "0::/user.slice\n"),
    ("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"),
    ("/sys/devices/system/cpu/online", "1-7\n"),
    ("/sys/devices/system/cpu/isolated", "1-7\n"),
    ("/sys/devices/system/cpu/nohz_full", "1-7\n"),
    (
        "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        "performance\n",
    ),
    (
        "/proc/cpuinfo",
        "processor\t: 0\nflags\t\t: fpu aes avx2 constant_tsc nonstop_tsc\n",
    ),
    ("/proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\n"),
    ("/sys/devices/system/node/node0/cpulist", "0-7\n"),
    ("/sys/devices/system/node/node0/distance", "10\n"),
    (
        "/sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal:  67108864 kB\n",
    ),
    (
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        "tsc\n",
    ),
    (
        "/proc/meminfo",
        "MemTotal: 67108864 kB\nMemFree: 1 kB\nMemAvailable: 60000000 kB\n",
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "always defer defer+madvise [madvise] never\n",
    ),
    ("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n"),
    ("/proc/sys/vm/overcommit_memory", "0\n"),
    ("/proc/sys/vm/max_map_count", "65530\n"),
    ("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t33554432\n"),
    ("/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
    ("/proc/sys/net/core/rmem_max", "4194304\n"),
    ("/proc/sys/kernel/perf_event_paranoid", "1\n"),
    ("/sys/bus/event_source/devices/cpu/type", "4\n"),
];

/// The server with some files replaced or added.
fn changed<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let kept = |(path, _): &&(&str, &str)| changes.iter().all(|(other, _)| other != path);
    let mut files: Vec<_> = SERVER.iter().filter(kept).copied().collect();
    files.extend_from_slice(changes);
    files
}

#[test]
fn a_well_configured_server_has_no_remedies() {
    let findings = seen(SERVER);
    for finding in &findings {
        assert_eq!(finding.verdict, Verdict::Fine, "{finding:?}");
        assert_eq!(finding.mend, "", "{finding:?}");
    }
    assert!(findings.len() >= 20, "{}", findings.len());
    assert_eq!(one(&findings, "NUMA").seen, "node 0: cores 0-7, 64 GiB");
}

#[test]
fn findings_of_a_virtual_machine_name_its_host() {
    let findings = seen(&changed(&[
        ("/proc/cpuinfo", "flags : fpu hypervisor avx2\n"),
        ("/proc/stat", "cpu  100 0 100 700 0 0 0 100 0 0\n"),
        (
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet\n",
        ),
        (
            "/sys/devices/system/clocksource/clocksource0/available_clocksource",
            "hpet tsc acpi_pm\n",
        ),
        ("/sys/bus/event_source/devices/cpu/type", ""),
    ]));
    let features = one(&findings, "processor features");
    assert!(features.seen.contains("virtual machine") && features.mend.contains("-cpu host"));
    assert_eq!(one(&findings, "stolen time").seen, "10.00 % since boot");
    assert_eq!(verdict(&findings, "stolen time"), Verdict::Weak);
    assert_eq!(
        one(&findings, "clock source").mend,
        "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"
    );

    let (_folder, root) = machine(&[
        ("/proc/sys/kernel/perf_event_paranoid", "2"),
        ("/sys/bus/event_source/devices/software/type", "1"),
    ]);
    let perf = &perf::check(&root)[0];
    assert!(perf.mend.contains("pmu=on"), "{perf:?}");
    let (_folder, root) = machine(&[("/proc/sys/kernel/perf_event_paranoid", "4")]);
    assert!(
        perf::check(&root)[0]
            .mend
            .ends_with("perf_event_paranoid=1")
    );
}

#[test]
fn findings_of_a_container_name_its_quota_and_limits() {
    let limits = LIMITS.replace("1048576", "256    ").replace(
        "unlimited            unlimited",
        "65536                65536",
    );
    let findings = seen(&changed(&[
        ("/proc/self/cgroup", "0::/pod/container\n"),
        ("/sys/fs/cgroup/pod/cpu.max", "250000 100000\n"),
        ("/sys/fs/cgroup/pod/container/cpu.max", "max 100000\n"),
        ("/sys/fs/cgroup/pod/container/memory.max", "536870912\n"),
        ("/proc/self/limits", &limits),
        ("/proc/sys/kernel/io_uring_disabled", "2\n"),
    ]));
    let quota = one(&findings, "control group quota");
    assert_eq!(
        (quota.verdict, &*quota.seen),
        (Verdict::Weak, "2.5 cores' time")
    );
    assert!(quota.mend.contains("on 2 cores"), "{quota:?}");
    assert!(
        one(&findings, "memory")
            .seen
            .contains("512 MiB for this control group")
    );
    let mend = &one(&findings, "memory").mend;
    assert!(
        mend.contains("raise the control group's memory.max"),
        "{mend}"
    );
    assert_eq!(verdict(&findings, "memory"), Verdict::Weak);
    assert_eq!(verdict(&findings, "locked memory"), Verdict::Broken);
    assert_eq!(one(&findings, "open files").mend, "ulimit -n 1024");
    assert_eq!(verdict(&findings, "io_uring"), Verdict::Broken);

    let older = seen(&changed(&[
        ("/proc/self/cgroup", "5:cpu,cpuacct:/box\n3:memory:/box\n"),
        ("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "150000\n"),
        ("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n"),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
        ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
    ]));
    assert_eq!(one(&older, "control group quota").seen, "1.5 cores' time");
}

#[test]
fn far_cores_of_an_rdma_device_are_named() {
    let findings = seen(&changed(&[
        ("/sys/devices/system/node/node0/cpulist", "0-3\n"),
        ("/sys/devices/system/node/node0/distance", "10 21\n"),
        ("/sys/devices/system/node/node1/cpulist", "4-7\n"),
        ("/sys/devices/system/node/node1/distance", "21 10\n"),
        (
            "/sys/devices/system/node/node1/meminfo",
            "Node 1 MemTotal:  33554432 kB\n",
        ),
        ("/proc/sys/kernel/numa_balancing", "1\n"),
        ("/sys/class/infiniband/mlx5_0/device/numa_node", "1\n"),
        ("/sys/class/infiniband/mlx5_0/fw_ver", "16.35.2000\n"),
        ("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n"),
        (
            "/sys/class/infiniband/mlx5_0/ports/1/link_layer",
            "InfiniBand\n",
        ),
        (
            "/sys/class/infiniband/mlx5_0/ports/1/rate",
            "100 Gb/sec (4X EDR)\n",
        ),
    ]));
    let numa = one(&findings, "NUMA");
    assert!(
        numa.seen
            .contains("node 1: cores 4-7, 32 GiB, distances 21 10"),
        "{numa:?}"
    );
    let node = one(&findings, "RDMA device's node");
    assert_eq!(node.seen, "mlx5_0 is on node 1, cores 4-7");
    assert!(node.why.contains("cores 1-3 reach mlx5_0"), "{node:?}");
    assert!(node.mend.ends_with("Config::cores: 4-7"), "{node:?}");
    assert!(
        one(&findings, "NUMA balancing")
            .mend
            .contains("numa_balancing=0")
    );
    let device = one(&findings, "RDMA device");
    assert!(device.seen.contains("mlx5_0 port 1 1: DOWN") && device.mend.contains("opensm"));
}

#[test]
fn siblings_isolation_governors_and_memory_settings_are_checked() {
    let mut files = changed(&[
        ("/proc/self/status", "Cpus_allowed_list:\t0-3\n"),
        ("/sys/devices/system/cpu/online", "0-7\n"),
        ("/sys/devices/system/cpu/isolated", "\n"),
        (
            "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
            "powersave\n",
        ),
        ("/proc/swaps", "Filename\n/dev/sda2 partition 1 0 -2\n"),
        (
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "always madvise [never]\n",
        ),
        (
            "/sys/kernel/mm/transparent_hugepage/defrag",
            "always [defer] never\n",
        ),
        (
            "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
            "512\n",
        ),
        ("/proc/sys/vm/overcommit_memory", "2\n"),
        ("/proc/sys/vm/max_map_count", "1000\n"),
        ("/proc/sys/net/ipv4/tcp_rmem", "4096 16384 212992\n"),
    ]);
    for (path, pair) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")].map(|(cpu, pair)| {
        (
            format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
            pair,
        )
    }) {
        files.push((path.leak(), pair));
    }
    let findings = seen(&files);
    assert!(one(&findings, "core siblings").mend.ends_with(": 0-1"));
    assert!(one(&findings, "cores").seen.contains("0-3 of 0-7"));
    assert!(
        one(&findings, "isolated cores")
            .mend
            .contains("isolcpus=1-3")
    );
    for (what, mend) in [
        ("frequency governor", "cpupower"),
        ("swap", "swapoff -a"),
        (
            "transparent huge pages",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        (
            "huge page defrag",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag",
        ),
        ("reserved huge pages", "vm.nr_hugepages=0"),
        ("overcommit", "overcommit_memory=0"),
        ("memory maps", "max_map_count=65530"),
        (
            "TCP receive buffers",
            "net.ipv4.tcp_rmem=\"4096 16384 4194304\"",
        ),
    ] {
        assert_eq!(verdict(&findings, what), Verdict::Weak, "{what}");
        assert!(
            one(&findings, what).mend.contains(mend),
            "{what}: {:?}",
            one(&findings, what)
        );
    }
}

#[test]
fn an_old_kernel_is_broken() {
    let findings = seen(&changed(&[("/proc/sys/kernel/osrelease", "5.4.0\n")]));
    assert_eq!(verdict(&findings, "kernel"), Verdict::Broken);
}

#[test]
fn missing_or_malformed_files_are_no_errors() {
    for finding in seen(&[]) {
        assert!(
            matches!(finding.verdict, Verdict::Unknown | Verdict::Fine),
            "{finding:?}"
        );
    }
    let nonsense = "\u{0}\u{fffd}-,:[]0-99999999999 nan inf -1 \n[[:::";
    let hostile: Vec<(&str, &str)> = SERVER.iter().map(|(path, _)| (*path, nonsense)).collect();
    let mut hostile_and_upward = hostile.clone();
    hostile_and_upward.retain(|(path, _)| *path != "/proc/self/cgroup");
    hostile_and_upward.push(("/proc/self/cgroup", "0::/../../../../../../etc\n:\n0::\n"));
    for finding in seen(&hostile).into_iter().chain(seen(&hostile_and_upward)) {
        assert!(!finding.text().is_empty());
    }
}

#[test]
fn findings_are_formatted_as_lines_and_json() {
    let finding = Finding::weak("swap", "1 areas")
        .because("slow")
        .mend("swapoff -a");
    let text = finding.text();
    assert!(
        text.starts_with("weak    swap") && text.ends_with("fix: swapoff -a"),
        "{text}"
    );
    let json = serde_json::to_value(&finding).unwrap();
    assert_eq!(
        (&json["verdict"], &json["mend"]),
        (&"weak".into(), &"swapoff -a".into())
    );
}
