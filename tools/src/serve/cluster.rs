//! The flags of a server that is a part of a cluster.

use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Args;
use farcore_server::{ClusterMap, ClusterOptions, MapPlace, SourceAddress, is_member_id};

use super::replica::parse_source;
use crate::cluster::place::{self, parse_place};
use crate::etcd::EtcdArguments;
use crate::given::Given;

/// What has an effect with a map in etcd alone.
const LEASE_ID: &str = "cluster_lease";

/// Times of a lease: etcd has none that are shorter, and one that is longer keeps slots of a server
/// that is gone for as long.
const LEASE_LEAST: Duration = Duration::from_secs(2);
const LEASE_MOST: Duration = Duration::from_secs(300);
/// An endpoint may take this part of the lease for an answer, so that others are tried in time.
const ANSWER_PART: u32 = 6;
/// But no longer: a server that ends waits for it.
const ANSWER_MOST: Duration = Duration::from_secs(2);

fn parse_lease(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let is_right = (LEASE_LEAST..=LEASE_MOST).contains(&time) && time.subsec_nanos() == 0;
    is_right
        .then_some(time)
        .ok_or_else(|| "must be 2s to 300s, in whole seconds".to_owned())
}

fn parse_id(text: &str) -> Result<String, String> {
    let refusal = || "must be 40 hexadecimal digits, as a line of the map has them".to_owned();
    is_member_id(text)
        .then(|| text.to_ascii_lowercase())
        .ok_or_else(refusal)
}

#[derive(Debug, Args)]
pub(super) struct ClusterArguments {
    /// The map of the cluster that the server is a part of, which holds what CLUSTERX SETNODES
    /// gives: a file, which is looked at each second, or etcd://HOST:PORT[,HOST:PORT..]/PREFIX
    /// (etcds:// over TLS) for all servers. There may be none yet
    #[arg(long, value_name = "FILE|ETCD", value_parser = parse_place)]
    cluster_map: Option<place::MapPlace>,
    /// Time of the server's lease in etcd, 2s to 300s: so long it serves its slots without etcd,
    /// and so long others wait until they may have them
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_lease)]
    cluster_lease: Duration,
    /// ID of this server in the map [default: the one of its address]
    #[arg(long, value_name = "ID", requires = "cluster_map", value_parser = parse_id)]
    cluster_id: Option<String>,
    /// Where clients reach this server, as the map has it [default: --resp]
    #[arg(long, value_name = "HOST:PORT", requires = "cluster_map", value_parser = parse_source)]
    cluster_announce: Option<SourceAddress>,
}

impl ClusterArguments {
    /// True if the map lies in etcd.
    pub(super) fn uses_etcd(&self) -> bool {
        matches!(self.cluster_map, Some(place::MapPlace::Etcd(_)))
    }

    /// Refuses a lease where the map does not lie in etcd: one that is not held would be relied on.
    ///
    /// # Errors
    /// It was typed.
    pub(super) fn refuse_idle(&self, given: &Given) -> Result<()> {
        if self.uses_etcd() {
            return Ok(());
        }
        given.refuse(
            &[LEASE_ID],
            "without a map in etcd (--cluster-map etcd://HOST:PORT/PREFIX)",
        )
    }

    /// The cluster that the server is a part of.
    ///
    /// # Errors
    /// The map is malformed, or a file of etcd's flags is missing.
    pub(super) fn options(&self, etcd: &EtcdArguments) -> Result<Option<ClusterOptions>> {
        let Some(map) = &self.cluster_map else {
            return Ok(None);
        };
        let map = match map {
            place::MapPlace::File(path) => {
                ClusterMap::read(path).map_err(|error| anyhow!("--cluster-map {error}"))?;
                MapPlace::File(path.clone())
            }
            place::MapPlace::Etcd(address) => {
                let lease = self.cluster_lease;
                let limit = (lease / ANSWER_PART).min(ANSWER_MOST);
                let etcd = etcd.options(address.clone(), limit)?;
                MapPlace::Etcd { etcd, lease }
            }
        };
        Ok(Some(ClusterOptions {
            map,
            id: self.cluster_id.clone(),
            announced: self.cluster_announce.clone(),
        }))
    }
}
