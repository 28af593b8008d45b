//! The target of a measurement: memory nodes by address, or memory of this process.

use std::path::PathBuf;

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use farcore_rdma::{FabricAddress, Scheme, Token, VerbsOptions};

use crate::device::{DeviceArguments, check_build};
use crate::token;

/// Far memory in this process.
const EMBEDDED: &str = "embedded";

#[derive(Debug, Args)]
pub(super) struct TargetArguments {
    /// Memory nodes, a queue pair to each: tcp://host:port, rdma://host:port (RDMA-CM),
    /// rdma+tcp://host:port; or `embedded`, memory of this process, as a baseline.
    #[arg(
        long,
        default_value = EMBEDDED,
        value_delimiter = ',',
        value_name = "ADDRESS"
    )]
    fabric: Vec<String>,
    /// File with the token of the nodes.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArguments,
}

/// The target, checked.
#[derive(Debug)]
pub(super) struct Target {
    /// Empty for memory of this process.
    pub(super) nodes: Vec<FabricAddress>,
    pub(super) token: Option<Token>,
    pub(super) verbs: VerbsOptions,
}

impl TargetArguments {
    pub(super) fn target(&self) -> Result<Target> {
        let embedded = self.fabric.iter().any(|one| one == EMBEDDED);
        ensure!(
            !embedded || self.fabric.len() == 1,
            "--fabric {}: `{EMBEDDED}` cannot be combined with addresses; remove one or the other",
            self.fabric.join(",")
        );
        let mut nodes = Vec::new();
        for text in self.fabric.iter().filter(|_| !embedded) {
            let node: FabricAddress = text.parse().map_err(|error| anyhow!("--fabric {error}"))?;
            check_build("--fabric", &node)?;
            nodes.push(node);
        }
        ensure!(
            !embedded || self.token_file.is_none(),
            "--token-file has no effect without --fabric and addresses of memory nodes: omit it"
        );
        if nodes.iter().all(|node| node.scheme() == Scheme::Tcp) {
            let why = if embedded {
                "without --fabric and addresses of memory nodes"
            } else {
                "with tcp://"
            };
            self.device.refuse(why)?;
        }
        let token = self.token_file.as_deref();
        let token = token.map(|file| token::read("--token-file", file));
        let token = token.transpose()?;
        Ok(Target {
            nodes,
            token,
            verbs: self.device.options()?,
        })
    }
}

impl Target {
    /// Queue pairs: one to each node.
    pub(super) fn queues(&self) -> usize {
        self.nodes.len().max(1)
    }

    /// The names of the nodes, in the order of their queue pairs.
    pub(super) fn names(&self) -> Vec<String> {
        match &self.nodes[..] {
            [] => vec![EMBEDDED.to_owned()],
            nodes => nodes.iter().map(ToString::to_string).collect(),
        }
    }
}
