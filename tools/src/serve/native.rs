//! The flags of the native protocol.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use farcore::FabricAddress;
use farcore_bench::cli::parse_size;
use farcore_rdma::{Scheme, VerbsOptions};
use farcore_server::NativeOptions;

use crate::device::DeviceArguments;
use crate::token;

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
    /// Values from this length on travel in transfer slots instead of messages
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4KiB")]
    small_bytes: u64,
    /// Time limit on handshakes of native clients, and on a client that acknowledges nothing
    #[arg(long, value_name = "TIME", default_value = "5s")]
    native_timeout: humantime::Duration,
    /// Native clients at once
    #[arg(long, value_name = "COUNT", default_value_t = NativeOptions::default().connections_max)]
    native_clients: usize,
    /// Memory for message buffers and transfer slots of all native clients
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB")]
    native_memory: u64,
}

impl NativeArguments {
    /// True if any address is reached over an RDMA device.
    pub(super) fn uses_device(&self) -> bool {
        let of_device = |address: &FabricAddress| address.scheme() != Scheme::Tcp;
        self.native.iter().any(of_device)
    }

    /// Bytes of all native clients, if they are served.
    pub(super) fn memory_bytes(&self) -> u64 {
        if self.native.is_empty() {
            0
        } else {
            self.native_memory
        }
    }

    pub(super) fn options(
        &self,
        device: &DeviceArguments,
        open_to_all: bool,
    ) -> Result<NativeOptions> {
        let default = NativeOptions::default();
        let token = self
            .native_token_file
            .as_deref()
            .map(token::read)
            .transpose()?;
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
