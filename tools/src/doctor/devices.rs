//! Checks the ports of all RDMA devices: state, address, and whether this build has verbs.

use farcore_rdma::{GidEntry, rdma_devices_under};

use super::finding::Finding;
use farcore_tuning::Root;

/// A finding for each port, with the GID that is the default.
pub(super) fn check(root: &Root) -> Vec<Finding> {
    let what = "RDMA device";
    let mut found = Vec::new();
    for device in rdma_devices_under(&root.path("/sys/class/infiniband")) {
        for port in &device.ports {
            let gid = GidEntry::best(&port.gids);
            let gid = gid.map_or_else(
                || "no GID".to_owned(),
                |gid| format!("GID {} {} {:?}", gid.index, gid.address(), gid.kind),
            );
            let interface = port.interface.as_deref();
            let seen = format!(
                "{} port {} {} {} {} {}, {gid}",
                device.name,
                port.number,
                port.state,
                port.link_layer,
                port.rate,
                interface.unwrap_or("no interface"),
            );
            found.push(if !port.is_active() {
                Finding::weak(what, seen)
                    .because("the port carries no traffic")
                    .mend(match interface {
                        Some(interface) => format!("ip link set {interface} up"),
                        None => {
                            "start a subnet manager (`systemctl start opensm`), and check the cable"
                                .to_owned()
                        }
                    })
            } else if port.gids.is_empty() {
                Finding::weak(what, seen)
                    .because("the port has no address")
                    .mend(format!(
                        "ip address add ADDRESS/24 dev {}",
                        interface.unwrap_or("INTERFACE")
                    ))
            } else if cfg!(feature = "verbs") {
                Finding::fine(what, seen)
            } else {
                Finding::weak(what, seen)
                    .because("this build has no verbs")
                    .mend("cargo build --release -p farcore-tools --features verbs")
            });
        }
    }
    if found.is_empty() {
        found.push(Finding::fine(what, "none; tcp:// works without"));
    }
    found
}
