//! Which RDMA device is meant: flags that several commands share.

use anyhow::{Result, anyhow};
use clap::Args;
use farcore_rdma::VerbsOptions;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DeviceArguments {
    /// The RDMA device, for rdma:// and rdma+tcp://; else the one that the address or the first
    /// active port is of.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Its port; else the first that is active.
    #[arg(long, value_name = "NUMBER")]
    port: Option<u8>,
    /// The entry of the port's GID table; else RoCE v2 over IPv4 where there is one.
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
