//! The flags of the native protocol.

use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use farcore::FabricAddress;
use farcore_command::parse_size;
use farcore_rdma::{Scheme, VerbsOptions};
use farcore_server::NativeOptions;

use super::limits;
use crate::device::{DeviceArguments, check_build};
use crate::given::Given;
use crate::listen::cannot_listen;
use crate::token;

/// Flags that have no effect without `--native`.
const FLAGS: [&str; 4] = [
    "small_bytes",
    "native_timeout",
    "native_clients",
    "native_memory",
];

/// How clients of the native protocol are served.
#[derive(Debug, Args)]
pub(super) struct NativeArguments {
    /// Address for native clients over the fabric, e.g. tcp://127.0.0.1:7401, rdma://10.0.0.1:7401;
    /// may be given several times [default: none]
    #[arg(long, value_name = "ADDRESS")]
    native: Vec<FabricAddress>,
    /// File with the token that native clients and the server prove to each other
    #[arg(long, value_name = "FILE", requires = "native")]
    native_token_file: Option<PathBuf>,
    /// Values from this length on travel in transfer slots instead of messages: 512B to 48KiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4KiB")]
    small_bytes: u64,
    /// Time limit on handshakes of native clients, and on a client that acknowledges nothing: 1ms
    /// to 365days
    #[arg(long, value_name = "TIME", default_value = "5s")]
    native_timeout: humantime::Duration,
    /// Native clients at once, 1 to 65536
    #[arg(long, value_name = "COUNT", default_value_t = NativeOptions::default().connections_max)]
    native_clients: usize,
    /// Memory for message buffers and transfer slots of all native clients, 1MiB or more
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB")]
    native_memory: u64,
}

impl NativeArguments {
    /// True if any address is reached over an RDMA device.
    pub(super) fn uses_device(&self) -> bool {
        let of_device = |address: &FabricAddress| address.scheme() != Scheme::Tcp;
        self.native.iter().any(of_device)
    }

    /// Listens where native clients will connect over sockets, as `check_address` does.
    ///
    /// # Errors
    /// An address is a name, or cannot be listened at.
    pub(super) fn check_addresses(&self) -> Result<Vec<TcpListener>> {
        let of_sockets = |address: &&FabricAddress| address.scheme() == Scheme::Tcp;
        let check = |address: &FabricAddress| {
            let host = address.host().parse::<IpAddr>().ok();
            let host = host.with_context(|| {
                format!("--native {address}: write the host in numbers, e.g. tcp://127.0.0.1:7401")
            })?;
            TcpListener::bind((host, address.port()))
                .map_err(|error| cannot_listen("--native", address, &error))
        };
        self.native.iter().filter(of_sockets).map(check).collect()
    }

    /// Bytes of all native clients, if they are served.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        (!self.native.is_empty()).then_some(self.native_memory)
    }

    /// The most native clients.
    pub(super) fn clients(&self) -> usize {
        if self.native.is_empty() {
            0
        } else {
            self.native_clients
        }
    }

    /// Refuses flags that have no effect.
    ///
    /// # Errors
    /// One was typed.
    pub(super) fn refuse_idle(&self, given: &Given) -> Result<()> {
        if self.native.is_empty() {
            given.refuse(&FLAGS, "without --native")?;
        }
        Ok(())
    }

    pub(super) fn options(
        &self,
        device: &DeviceArguments,
        open_to_all: bool,
    ) -> Result<NativeOptions> {
        let default = NativeOptions::default();
        for address in &self.native {
            check_build("--native", address)?;
        }
        limits::time("--native-timeout", *self.native_timeout)?;
        limits::memory("--native-memory", self.native_memory)?;
        let token = self.native_token_file.as_deref();
        let token = token.map(|file| token::read("--native-token-file", file));
        let token = token.transpose()?;
        if let Some(address) = self.native.iter().find(|address| !address.is_loopback()) {
            ensure!(
                token.is_some() || open_to_all,
                "--native {address}: other hosts could read and write all data; give --native-token-file, or --open-to-all on a trusted network"
            );
        }
        let verbs = VerbsOptions {
            inline_bytes: default.verbs.inline_bytes,
            ..device.options()?
        };
        Ok(NativeOptions {
            listen: self.native.clone(),
            token,
            small_bytes: usize::try_from(self.small_bytes).unwrap_or(usize::MAX),
            timeout: self.native_timeout.into(),
            connections_max: self.native_clients,
            slot_bytes: usize::try_from(self.native_memory).unwrap_or(usize::MAX),
            verbs,
            ..default
        })
    }
}
