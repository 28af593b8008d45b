//! The flags that select an RDMA device, shared by several commands.

use anyhow::{Result, anyhow};
use clap::Args;
use farcore_rdma::VerbsOptions;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DeviceArguments {
    /// RDMA device, for rdma:// and rdma+tcp:// [default: the device of the address, else of the
    /// first active port]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Port of the device [default: the first active one]
    #[arg(long, value_name = "NUMBER")]
    port: Option<u8>,
    /// Entry of the port's GID table [default: RoCE v2 over IPv4 where there is one]
    #[arg(long, value_name = "INDEX")]
    gid_index: Option<u8>,
}

impl DeviceArguments {
    pub(crate) fn options(&self) -> Result<VerbsOptions> {
        let options = VerbsOptions {
            device: self.device.clone(),
            port: self.port,
            gid_index: self.gid_index,
            ..VerbsOptions::default()
        };
        options.validate().map_err(|error| anyhow!("--{error}"))?;
        Ok(options)
    }
}
