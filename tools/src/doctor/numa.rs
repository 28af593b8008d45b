//! Checks NUMA: the layout, automatic balancing, and the node of each RDMA device. On a machine of
//! one node only the layout is reported.

use std::collections::BTreeMap;

use farcore::Size;

use super::finding::Finding;
use super::processor::allowed;
use farcore_tuning::CpuList;
use farcore_tuning::Root;
use farcore_tuning::kibibytes;

const NODES: &str = "/sys/devices/system/node";
const DEVICES: &str = "/sys/class/infiniband";

pub(super) fn check(root: &Root) -> Vec<Finding> {
    let nodes = nodes(root);
    let mut findings = vec![layout(root, &nodes)];
    if nodes.len() > 1 {
        findings.push(balancing(root));
        findings.extend(devices(root, &nodes));
    }
    findings
}

/// The nodes with their processors.
fn nodes(root: &Root) -> BTreeMap<u32, CpuList> {
    let mut nodes = BTreeMap::new();
    for name in root.names(NODES) {
        let number = name
            .strip_prefix("node")
            .and_then(|number| number.parse().ok());
        let cpus = root.read(&format!("{NODES}/{name}/cpulist"));
        if let (Some(number), Some(cpus)) = (number, cpus) {
            nodes.insert(number, cpus.parse().unwrap_or_default());
        }
    }
    nodes
}

fn layout(root: &Root, nodes: &BTreeMap<u32, CpuList>) -> Finding {
    let what = "NUMA";
    if nodes.is_empty() {
        return Finding::unknown(what, NODES);
    }
    let one = |(number, cpus): (&u32, &CpuList)| {
        let facts = root.read(&format!("{NODES}/node{number}/meminfo"));
        let memory = facts.and_then(|facts| kibibytes(&facts, "MemTotal:"));
        let memory = memory.map_or_else(
            || "memory unknown".to_owned(),
            |bytes| Size(bytes).to_string(),
        );
        let distances = root.read(&format!("{NODES}/node{number}/distance"));
        let distances = match distances {
            Some(distances) if nodes.len() > 1 => format!(", distances {distances}"),
            _ => String::new(),
        };
        let cores = if cpus.0.is_empty() {
            "no cores".to_owned()
        } else {
            format!("cores {cpus}")
        };
        format!("node {number}: {cores}, {memory}{distances}")
    };
    let lines: Vec<String> = nodes.iter().map(one).collect();
    let seen = lines.join("; ");
    let used = allowed(root).unwrap_or_default();
    let spread = nodes
        .values()
        .filter(|cpus| !cpus.0.is_disjoint(&used.0))
        .count();
    if spread <= 1 {
        return Finding::fine(what, seen);
    }
    // Arenas are touched first by their cores, so they are on the cores' nodes.
    Finding::fine(what, seen).because(
        "each shard's memory is near its core; requests between cores of different nodes cost about twice as much",
    )
}

fn balancing(root: &Root) -> Finding {
    let what = "NUMA balancing";
    match root.read("/proc/sys/kernel/numa_balancing").as_deref() {
        None | Some("0") => Finding::fine(what, "off"),
        Some(_) => Finding::weak(what, "on")
            .because("pinned shards gain nothing from it, and pay for the page faults by which the kernel samples accesses")
            .mend("sysctl -w kernel.numa_balancing=0"),
    }
}

/// A finding for each RDMA device: which cores are far from it.
fn devices(root: &Root, nodes: &BTreeMap<u32, CpuList>) -> Vec<Finding> {
    let what = "RDMA device's node";
    let used = allowed(root).unwrap_or_default();
    let mut findings = Vec::new();
    for device in root.names(DEVICES) {
        let node = root.number::<i64>(&format!("{DEVICES}/{device}/device/numa_node"));
        let near = node.and_then(|node| {
            let node = u32::try_from(node).ok()?;
            Some((node, nodes.get(&node)?))
        });
        let Some((node, near)) = near else {
            // Software devices have no node.
            continue;
        };
        let seen = format!("{device} is on node {node}, cores {near}");
        let far = CpuList(&used.0 - &near.0);
        if far.0.is_empty() {
            findings.push(Finding::fine(what, seen));
            continue;
        }
        let both = CpuList(&used.0 & &near.0);
        findings.push(
            Finding::weak(what, seen)
                .because(format!(
                    "cores {far} reach {device} through another node, some 100 ns later"
                ))
                .mend(if both.0.is_empty() {
                    format!("let the process run on cores {near}")
                } else {
                    format!("name only near cores in Config::cores: {both}")
                }),
        );
    }
    findings
}
