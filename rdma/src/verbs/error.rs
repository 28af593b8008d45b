//! Errors of the verbs backend before a request is posted: devices, ports, limits, registration.
//!
//! Each names the device, the value, the limit and, if there is one, the remedy.

use std::io;
use std::net::SocketAddr;

use crate::fabric::VerbsOptionsError;

/// Why verbs cannot be used with these settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// A setting is out of range.
    #[error(transparent)]
    Options(#[from] VerbsOptionsError),
    /// The device does not exist, or there is none.
    #[error("no RDMA device{}: this machine has {found}; is its driver loaded, and the user-space provider (ibverbs-providers) installed?", asked.as_ref().map_or_else(String::new, |name| format!(" `{name}`")))]
    NoDevice {
        /// The requested device.
        asked: Option<String>,
        /// The devices found.
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
        /// The requested entry.
        index: Option<u8>,
    },
    /// A value exceeds the device's limit.
    #[error("{what} is {asked}: the limit of device {device} is {limit}")]
    Limit {
        /// The setting.
        what: &'static str,
        /// The requested value.
        asked: u64,
        /// The device's limit.
        limit: u64,
        /// The device.
        device: String,
    },
    /// Memory could not be registered.
    #[error("cannot register {bytes} bytes with device {device}: {source}{}", if source.kind() == io::ErrorKind::OutOfMemory { "; raise the limit of locked memory (ulimit -l) or register less" } else { "" })]
    Register {
        /// The bytes.
        bytes: u64,
        /// The device.
        device: String,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel or the device refused.
    #[error("device {device}: {what}: {source}")]
    Refused {
        /// What failed.
        what: &'static str,
        /// The device.
        device: String,
        /// The system's error.
        source: io::Error,
    },
    /// An address is reached through another device than the open one.
    #[error(
        "{address} is reached through device {reached}, but {opened} is open: set the device's name or use another address"
    )]
    Route {
        /// The address.
        address: SocketAddr,
        /// The device that reaches it.
        reached: String,
        /// The open device.
        opened: String,
    },
    /// The peer's queue pair facts are invalid.
    #[error("the peer's queue pair facts are invalid: {0}")]
    Facts(&'static str),
}
