//! The memory nodes of a pool, as flags name them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use farcore_pool::{NodeAddress, PoolOptions, RemotePool};
use farcore_rdma::Scheme;

use crate::device::{DeviceArguments, check_build};
use crate::token;

/// The most that a start waits for nodes, in seconds.
const WAIT_SECONDS_MAX: u64 = 3600;

#[derive(Debug, Args)]
pub(super) struct TargetArguments {
    /// Memory nodes: [zone=]tcp://host:port, rdma://host:port (RDMA-CM) or rdma+tcp://host:port.
    #[arg(long, value_delimiter = ',', value_name = "ADDRESS")]
    nodes: Vec<String>,
    /// File with the token of the nodes.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How long to wait for the nodes, in seconds, 0 to 3600.
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    wait: u64,
    #[command(flatten)]
    device: DeviceArguments,
}

impl TargetArguments {
    pub(super) fn is_remote(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// The nodes' names.
    pub(super) fn names(&self) -> &[String] {
        &self.nodes
    }

    /// The settings of a pool at the nodes.
    ///
    /// # Errors
    /// A flag is wrong.
    pub(super) fn options(&self) -> Result<PoolOptions> {
        let mut is_device = false;
        for text in &self.nodes {
            let node: NodeAddress = text.parse().map_err(|error| anyhow!("--nodes {error}"))?;
            check_build("--nodes", &node.address)?;
            is_device |= node.address.scheme() != Scheme::Tcp;
        }
        ensure!(
            self.is_remote() || self.token_file.is_none(),
            "--token-file has no effect without --nodes: omit it"
        );
        if !is_device {
            self.device
                .refuse("without a node at rdma:// or rdma+tcp://")?;
        }
        ensure!(
            self.wait <= WAIT_SECONDS_MAX,
            "--wait is {}: must be 0 to {WAIT_SECONDS_MAX}",
            self.wait
        );
        let token = self.token_file.as_deref();
        let token = token.map(|file| token::read("--token-file", file));
        Ok(PoolOptions {
            token: token.transpose()?,
            nodes_wait: Duration::from_secs(self.wait),
            verbs: self.device.options()?,
            ..PoolOptions::default()
        })
    }

    /// Opens the pool.
    ///
    /// # Errors
    /// A node cannot be used.
    pub(super) fn connect(&self, options: PoolOptions) -> Result<RemotePool> {
        RemotePool::connect(&self.nodes, options).map_err(|error| {
            // Fields of the pool's options, of which --wait sets one.
            let said = error
                .to_string()
                .replace(" (`nodes_min`, `nodes_wait`)", "");
            anyhow!("--nodes: {said}")
        })
    }
}
