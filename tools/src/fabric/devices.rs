//! `farcore fabric devices`: lists the RDMA devices of this machine from /sys/class/infiniband,
//! with ports and GIDs, and marks the default GID of each port. It opens no device, so it needs no
//! verbs.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use farcore_command::origin::Origin;
use farcore_command::outputs::{OutputFile, print};
use farcore_rdma::{DeviceFacts, GidEntry, GidKind, PortFacts, rdma_devices};
use serde::Serialize;

use crate::text::table;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Also write the list to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Gid {
    index: u8,
    gid: String,
    kind: &'static str,
    /// Whether it is the default.
    chosen: bool,
}

#[derive(Debug, Serialize)]
struct Port {
    number: u8,
    state: String,
    active: bool,
    link_layer: String,
    rate: String,
    interface: Option<String>,
    gids: Vec<Gid>,
}

#[derive(Debug, Serialize)]
struct Device {
    name: String,
    firmware: String,
    ports: Vec<Port>,
}

#[derive(Debug, Serialize)]
struct Report {
    origin: Origin,
    devices: Vec<Device>,
}

impl From<PortFacts> for Port {
    fn from(facts: PortFacts) -> Self {
        let chosen = GidEntry::best(&facts.gids).map(|gid| gid.index);
        let gid = |entry: &GidEntry| Gid {
            index: entry.index,
            gid: entry.address().to_string(),
            kind: match (entry.kind, facts.link_layer.as_str()) {
                (GidKind::RoceV2, _) => "RoCE v2",
                (GidKind::Link, "Ethernet") => "RoCE v1",
                (GidKind::Link, _) => "InfiniBand",
            },
            chosen: Some(entry.index) == chosen,
        };
        Self {
            number: facts.number,
            active: facts.is_active(),
            gids: facts.gids.iter().map(gid).collect(),
            state: facts.state,
            link_layer: facts.link_layer,
            rate: facts.rate,
            interface: facts.interface,
        }
    }
}

impl From<DeviceFacts> for Device {
    fn from(facts: DeviceFacts) -> Self {
        Self {
            name: facts.name,
            firmware: facts.firmware,
            ports: facts.ports.into_iter().map(Port::from).collect(),
        }
    }
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

fn render(devices: &[Device]) -> String {
    if devices.is_empty() {
        return "no RDMA device in /sys/class/infiniband; tcp:// works without".to_owned();
    }
    let columns = [
        "device",
        "firmware",
        "port",
        "state",
        "link",
        "rate",
        "interface",
        "index",
        "GID",
        "kind",
        "chosen",
    ];
    let mut rows = Vec::new();
    for device in devices {
        let name = [device.name.clone(), dash(&device.firmware)];
        if device.ports.is_empty() {
            rows.push([&name[..], &["-".to_owned()]].concat());
        }
        for port in &device.ports {
            let facts = [
                port.number.to_string(),
                dash(&port.state),
                dash(&port.link_layer),
                dash(&port.rate),
                dash(port.interface.as_deref().unwrap_or("")),
            ];
            if port.gids.is_empty() {
                rows.push([&name[..], &facts, &["-".to_owned()]].concat());
            }
            for gid in &port.gids {
                let gid = [
                    gid.index.to_string(),
                    gid.gid.clone(),
                    gid.kind.to_owned(),
                    if gid.chosen { "*" } else { "" }.to_owned(),
                ];
                rows.push([&name[..], &facts, &gid].concat());
            }
        }
    }
    let table = table(&columns, columns.len(), rows);
    format!("{table}\n* the default without --gid-index")
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let json = OutputFile::open_if("--json", arguments.json.as_deref())?;
    let devices = rdma_devices().into_iter().map(Device::from).collect();
    let origin = Origin::here();
    let report = Report { origin, devices };
    if let Some(json) = json {
        json.write_json(&report)?;
    }
    print(render(&report.devices))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn gid(index: u8, address: &str, kind: GidKind) -> GidEntry {
        let address: Ipv6Addr = address.parse().expect("an address");
        GidEntry {
            index,
            gid: address.octets(),
            kind,
        }
    }

    fn device() -> Device {
        let port = |number, gids| PortFacts {
            number,
            state: "4: ACTIVE".to_owned(),
            link_layer: "Ethernet".to_owned(),
            rate: "100 Gb/sec (4X EDR)".to_owned(),
            interface: Some("eth2".to_owned()),
            gids,
        };
        let gids = vec![
            gid(0, "fe80::1", GidKind::Link),
            gid(3, "::ffff:10.0.0.1", GidKind::RoceV2),
        ];
        Device::from(DeviceFacts {
            name: "mlx5_0".to_owned(),
            firmware: "20.31.1014".to_owned(),
            ports: vec![port(1, gids), port(2, Vec::new())],
        })
    }

    #[test]
    fn the_default_gid_is_marked() {
        let text = render(&[device()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[1].contains("RoCE v1") && !lines[1].ends_with('*'));
        assert!(lines[2].contains("::ffff:10.0.0.1") && lines[2].ends_with('*'));
        assert!(lines[2].contains("20.31.1014") && lines[2].contains("eth2"));
        assert!(lines[3].contains("mlx5_0") && lines[3].ends_with('-'));
        let devices = vec![device()];
        let origin = Origin::default();
        let json = serde_json::to_value(Report { origin, devices }).unwrap();
        let port = &json["devices"][0]["ports"][0];
        assert_eq!(port["gids"][1]["chosen"], true);
        assert_eq!(port["gids"][0]["chosen"], false);
        assert_eq!(port["active"], true);
    }

    #[test]
    fn a_machine_without_devices_gets_one_line() {
        let text = render(&[]);
        assert!(text.contains("no RDMA device") && text.lines().count() == 1);
    }
}
