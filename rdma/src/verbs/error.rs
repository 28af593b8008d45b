//! What can go wrong before a request is posted.

use std::io;
use std::net::SocketAddr;

use crate::fabric::VerbsOptionsError;

/// Why verbs cannot be used as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// A setting is out of bounds.
    #[error(transparent)]
    Options(#[from] VerbsOptionsError),
    /// There is no such device, or none at all.
    #[error("no RDMA device{}: this machine has {found}; is its driver loaded, and the user-space provider (ibverbs-providers) installed?", asked.as_ref().map_or_else(String::new, |name| format!(" `{name}`")))]
    NoDevice {
        /// The one that was asked for.
        asked: Option<String>,
        /// Those there are.
        found: String,
    },
    /// No port of the device carries traffic.
    #[error(
        "device {device}: port {port} is {state}: bring its link up or choose another with the port setting"
    )]
    Port {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// Its state.
        state: &'static str,
    },
    /// The port's GID table has no such entry.
    #[error("device {device}, port {port}: no usable GID{}: does its network interface have an address?", index.map_or_else(String::new, |index| format!(" at index {index}")))]
    Gid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The entry that was asked for.
        index: Option<u8>,
    },
    /// The device cannot do so much.
    #[error("{what} is {asked}: device {device} has {limit}")]
    Limit {
        /// What.
        what: &'static str,
        /// As asked.
        asked: u64,
        /// What the device allows.
        limit: u64,
        /// The device.
        device: String,
    },
    /// Memory could not be registered.
    #[error("{bytes} bytes could not be registered with {device}: {source}{}", if source.kind() == io::ErrorKind::OutOfMemory { "; raise the limit of locked memory (ulimit -l) or register less" } else { "" })]
    Register {
        /// How much.
        bytes: u64,
        /// The device.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel or the device refused.
    #[error("device {device}: {what}: {source}")]
    Refused {
        /// What was to be done.
        what: &'static str,
        /// The device.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// An address is reached over another device than the one that was opened.
    #[error(
        "{address} is reached over device {reached}, and {opened} is open: choose the device by name, or another address"
    )]
    Route {
        /// The address.
        address: SocketAddr,
        /// The device there.
        reached: String,
        /// The device that is open.
        opened: String,
    },
    /// The other side's queue-pair facts make no sense.
    #[error("the other side's queue-pair facts are wrong: {0}")]
    Facts(&'static str),
}
