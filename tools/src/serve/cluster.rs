//! The flags of a server that is a part of a cluster.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;
use farcore_server::{ClusterMap, ClusterOptions, SourceAddress, is_member_id};

use super::replica::parse_source;

fn parse_id(text: &str) -> Result<String, String> {
    let refusal = || "must be 40 hexadecimal digits, as a line of the map has them".to_owned();
    is_member_id(text)
        .then(|| text.to_ascii_lowercase())
        .ok_or_else(refusal)
}

#[derive(Debug, Args)]
pub(super) struct ClusterArguments {
    /// File with the map of the cluster that the server is a part of; it is looked at each second,
    /// and holds what CLUSTERX SETNODES gives. There may be none yet
    #[arg(long, value_name = "FILE")]
    cluster_map: Option<PathBuf>,
    /// ID of this server in the map [default: the one of its address]
    #[arg(long, value_name = "ID", requires = "cluster_map", value_parser = parse_id)]
    cluster_id: Option<String>,
    /// Where clients reach this server, as the map has it [default: --resp]
    #[arg(long, value_name = "HOST:PORT", requires = "cluster_map", value_parser = parse_source)]
    cluster_announce: Option<SourceAddress>,
}

impl ClusterArguments {
    /// The cluster that the server is a part of.
    ///
    /// # Errors
    /// The map is malformed.
    pub(super) fn options(&self) -> Result<Option<ClusterOptions>> {
        let Some(map) = &self.cluster_map else {
            return Ok(None);
        };
        ClusterMap::read(map).map_err(|error| anyhow!("--cluster-map {error}"))?;
        Ok(Some(ClusterOptions {
            map: Some(map.clone()),
            id: self.cluster_id.clone(),
            announced: self.cluster_announce.clone(),
        }))
    }
}
