//! The flags that select an RDMA device, and whether this build can use one. Shared by several
//! commands.

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use farcore_rdma::{FabricAddress, Scheme, VerbsOptions};

/// Checks that this build can use an address.
///
/// # Errors
/// It is reached over an RDMA device, and this build has no verbs.
pub(crate) fn check_build(flag: &str, address: &FabricAddress) -> Result<()> {
    ensure!(
        address.scheme() == Scheme::Tcp || cfg!(feature = "verbs"),
        "{flag} {address}: this build has no verbs: build it with `--features verbs`, or write it as tcp://{}:{}",
        address.host(),
        address.port()
    );
    Ok(())
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DeviceArguments {
    /// RDMA device, for rdma:// and rdma+tcp:// [default: the device of the address, else of the
    /// first active port]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Port of the device, 1 to 255 [default: the first active one]
    #[arg(long, value_name = "NUMBER")]
    port: Option<u8>,
    /// Entry of the port's GID table, 0 to 255 [default: RoCE v2 over IPv4 where there is one]
    #[arg(long, value_name = "INDEX")]
    gid_index: Option<u8>,
}

impl DeviceArguments {
    /// Refuses the flags where no RDMA device is used.
    ///
    /// # Errors
    /// One was given.
    pub(crate) fn refuse(&self, why: &str) -> Result<()> {
        let given = [
            ("--device", self.device.is_some()),
            ("--port", self.port.is_some()),
            ("--gid-index", self.gid_index.is_some()),
        ];
        for (flag, is_given) in given {
            ensure!(
                !is_given,
                "{flag} has no effect {why}: it chooses the RDMA device of rdma:// and rdma+tcp://; omit it"
            );
        }
        Ok(())
    }

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
