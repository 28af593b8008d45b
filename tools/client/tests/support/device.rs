//! The RDMA devices of this machine, and what they count.

#![cfg(feature = "verbs")]

use std::fs;
use std::path::PathBuf;

use farcore_rdma::rdma_devices;

/// What devices call a message for which no receive was posted: at its receiver, at its sender, and
/// when the sender has given up. The first three are Soft-RoCE's names.
const NOT_READY: [&str; 5] = [
    "rcvd_rnr_err",
    "send_rnr_err",
    "retry_rnr_exceeded_err",
    "rnr_nak_retry_err",
    "out_of_buffer",
];

/// An IPv4 address of the first device.
pub(crate) fn address() -> String {
    let devices = rdma_devices();
    let device = devices
        .first()
        .expect("an RDMA device: run this in the lab");
    let gids = device.ports.iter().flat_map(|port| &port.gids);
    let mut addresses = gids.filter_map(|gid| gid.address().to_ipv4_mapped());
    let address = addresses.next().expect("an interface with an IPv4 address");
    address.to_string()
}

/// Messages for which no receive was posted, on either side, as all devices of this machine count
/// them since they came up. A retry that succeeds does not hide one: each refusal counts.
pub(crate) fn receivers_not_ready() -> u64 {
    let mut total = 0;
    for device in rdma_devices() {
        let folder = format!("/sys/class/infiniband/{}/ports/1/hw_counters", device.name);
        let folder = PathBuf::from(folder);
        let counts = NOT_READY
            .iter()
            .filter_map(|name| fs::read_to_string(folder.join(name)).ok())
            .map(|text| text.trim().parse::<u64>().expect("a number"));
        let counts: Vec<u64> = counts.collect();
        assert!(!counts.is_empty(), "{} counts none", folder.display());
        total += counts.iter().sum::<u64>();
    }
    total
}
