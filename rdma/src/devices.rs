//! Lists this machine's RDMA devices, as the kernel reports them. Reads `/sys/class/infiniband` and
//! needs no library.
//!
//! Source: Documentation/ABI/stable/sysfs-class-infiniband of the kernel.

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/class/infiniband";
#[cfg(feature = "verbs")]
pub(crate) const LINK_LAYER_ETHERNET: u8 = 2;

/// An RDMA device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceFacts {
    /// The device's name: `mlx5_0`, `rxe0`.
    pub name: String,
    /// The firmware's version; empty if the kernel does not report it.
    pub firmware: String,
    /// The device's ports.
    pub ports: Vec<PortFacts>,
}

/// A port of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortFacts {
    /// The port's number, from 1.
    pub number: u8,
    /// The state as the kernel reports it: `4: ACTIVE`.
    pub state: String,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: String,
    /// The rate as the kernel reports it: `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// The network interface, if there is one.
    pub interface: Option<String>,
    /// The entries of the GID table that are set.
    pub gids: Vec<GidEntry>,
}

impl PortFacts {
    /// True if the port carries traffic.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state.contains("ACTIVE")
    }
}

/// An entry of a GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// The entry's index.
    pub index: u8,
    /// The GID.
    pub gid: [u8; 16],
    /// The packet format.
    pub kind: GidKind,
}

/// The packet format of a GID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidKind {
    /// InfiniBand, or RoCE v1: not routable.
    Link,
    /// RoCE of version 2: UDP over IP.
    RoceV2,
}

impl GidEntry {
    /// The default choice: RoCE v2 over IPv4, which most peers can reach; then RoCE v2 that is not
    /// link-local; then any RoCE v2; then the first entry.
    #[must_use]
    pub fn best(entries: &[Self]) -> Option<&Self> {
        let rank = |entry: &&Self| {
            let address = entry.address();
            match entry.kind {
                GidKind::RoceV2 if address.to_ipv4_mapped().is_some() => 0,
                GidKind::RoceV2 if !address.is_unicast_link_local() => 1,
                GidKind::RoceV2 => 2,
                GidKind::Link => 3,
            }
        };
        entries.iter().min_by_key(rank)
    }

    /// The GID as an IPv6 address.
    #[must_use]
    pub fn address(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.gid)
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

fn numbers(path: &Path) -> Vec<u8> {
    let names = fs::read_dir(path).into_iter().flatten().flatten();
    let mut all: Vec<u8> = names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    all.sort_unstable();
    all
}

/// All RDMA devices; empty if the kernel has no RDMA support.
#[must_use]
pub fn rdma_devices() -> Vec<DeviceFacts> {
    rdma_devices_under(Path::new(ROOT))
}

/// All devices in a folder laid out like `/sys/class/infiniband`, for example a copy from another
/// machine.
#[must_use]
pub fn rdma_devices_under(root: &Path) -> Vec<DeviceFacts> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut all: Vec<DeviceFacts> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.to_owned();
            Some(DeviceFacts {
                firmware: read(entry.path().join("fw_ver")),
                ports: ports_under(&entry.path()),
                name,
            })
        })
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// The ports of one device.
#[cfg(feature = "verbs")]
pub(crate) fn ports(device: &str) -> Vec<PortFacts> {
    ports_under(&Path::new(ROOT).join(device))
}

fn ports_under(device: &Path) -> Vec<PortFacts> {
    let root = device.join("ports");
    let port = |number: u8| {
        let path: PathBuf = root.join(number.to_string());
        let gids: Vec<GidEntry> = numbers(&path.join("gids"))
            .into_iter()
            .filter_map(|index| {
                let text = read(path.join("gids").join(index.to_string()));
                let address: Ipv6Addr = text.parse().ok()?;
                let kind = read(path.join("gid_attrs/types").join(index.to_string()));
                Some(GidEntry {
                    index,
                    gid: address.octets(),
                    kind: match kind.as_str() {
                        "RoCE v2" => GidKind::RoceV2,
                        _ => GidKind::Link,
                    },
                })
            })
            .filter(|entry| !entry.address().is_unspecified())
            .collect();
        let interface = gids
            .first()
            .map(|gid| read(path.join("gid_attrs/ndevs").join(gid.index.to_string())));
        PortFacts {
            number,
            state: read(path.join("state")),
            link_layer: read(path.join("link_layer")),
            rate: read(path.join("rate")),
            interface: interface.filter(|name| !name.is_empty()),
            gids,
        }
    };
    numbers(&root).into_iter().map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u8, address: &str, kind: GidKind) -> GidEntry {
        let address: Ipv6Addr = address.parse().expect("an address");
        GidEntry {
            index,
            gid: address.octets(),
            kind,
        }
    }

    #[test]
    fn the_most_reachable_gid_is_chosen() {
        let link = entry(0, "fe80::1", GidKind::Link);
        let local = entry(1, "fe80::1", GidKind::RoceV2);
        let six = entry(2, "2001:db8::1", GidKind::RoceV2);
        let four = entry(3, "::ffff:10.0.0.1", GidKind::RoceV2);
        let first = entry(4, "::ffff:10.0.0.1", GidKind::Link);
        assert_eq!(
            GidEntry::best(&[link, local, six, first, four]),
            Some(&four)
        );
        assert_eq!(GidEntry::best(&[link, local, six]), Some(&six));
        assert_eq!(GidEntry::best(&[link, local]), Some(&local));
        assert_eq!(GidEntry::best(&[link, first]), Some(&link));
        assert_eq!(GidEntry::best(&[]), None);
    }

    #[test]
    fn a_machine_without_rdma_has_no_devices() {
        assert_eq!(rdma_devices_under(Path::new("/nowhere")), []);
    }

    #[test]
    fn a_copy_of_the_kernels_tree_is_read() {
        let root = std::env::temp_dir().join(format!("farcore-devices-{}", std::process::id()));
        let port = root.join("rxe0/ports/1");
        for (file, text) in [
            ("state", "4: ACTIVE\n"),
            ("link_layer", "Ethernet\n"),
            ("rate", "2.5 Gb/sec (1X SDR)\n"),
            ("gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n"),
            ("gids/1", "0000:0000:0000:0000:0000:ffff:0a4d:0001\n"),
            ("gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            ("gid_attrs/types/0", "IB/RoCE v1\n"),
            ("gid_attrs/types/1", "RoCE v2\n"),
            ("gid_attrs/ndevs/0", "n0\n"),
        ] {
            let file = port.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let seen = rdma_devices_under(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(seen.len(), 1);
        let port = &seen[0].ports[0];
        assert!(port.is_active());
        assert_eq!((seen[0].name.as_str(), port.number), ("rxe0", 1));
        assert_eq!(port.interface.as_deref(), Some("n0"));
        assert_eq!(port.gids.len(), 2);
        assert_eq!(GidEntry::best(&port.gids).map(|gid| gid.index), Some(1));
    }
}
