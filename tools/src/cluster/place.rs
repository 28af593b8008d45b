//! Where a map is kept: in a file, or in etcd.

use std::path::PathBuf;

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use farcore_etcd::{ADDRESS_FORMAT, Condition, EtcdAddress};
use farcore_server::ClusterMap;

use crate::etcd::EtcdArguments;

/// A file, or a prefix of etcd.
#[derive(Clone, Debug)]
pub(crate) enum MapPlace {
    File(PathBuf),
    Etcd(EtcdAddress),
}

/// Reads a place.
///
/// # Errors
/// What is wrong with an address of etcd.
pub(crate) fn parse_place(text: &str) -> Result<MapPlace, String> {
    match EtcdAddress::is_meant(text) {
        true => Ok(MapPlace::Etcd(EtcdAddress::parse(text)?)),
        false => Ok(MapPlace::File(PathBuf::from(text))),
    }
}

/// The flags that name the place.
#[derive(Debug, Args)]
pub(crate) struct PlaceArguments {
    /// The map, as in `farcore serve --cluster-map`: a file, or etcd://HOST:PORT[,..]/PREFIX
    #[arg(long, value_name = "FILE|ETCD", value_parser = parse_place)]
    map: MapPlace,
    #[command(flatten)]
    etcd: EtcdArguments,
}

impl PlaceArguments {
    /// Those that name a place, without any for etcd.
    #[cfg(test)]
    pub(super) fn of_file(path: PathBuf) -> Self {
        use clap::{FromArgMatches as _, Parser};
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            place: PlaceArguments,
        }
        let words = ["line".into(), "--map".into(), path.into_os_string()];
        let matches = <Line as clap::CommandFactory>::command().get_matches_from(words);
        Line::from_arg_matches(&matches).expect("a place").place
    }

    pub(super) fn failed(&self, error: &dyn std::fmt::Display) -> anyhow::Error {
        match &self.map {
            MapPlace::File(path) => anyhow!("--map {}: {error}", path.display()),
            MapPlace::Etcd(address) => anyhow!("--map {address}: {error}"),
        }
    }

    /// The map that is there.
    ///
    /// # Errors
    /// There is none, it is malformed, or etcd is not reached.
    pub(super) fn read(&self) -> Result<ClusterMap> {
        let map = match &self.map {
            MapPlace::File(path) => ClusterMap::read(path),
            MapPlace::Etcd(address) => {
                ClusterMap::read_etcd(&self.etcd.client(address)?).map(|(map, _)| map)
            }
        };
        let map = map.map_err(|error| self.failed(&error))?;
        map.ok_or_else(|| self.failed(&"there is no map; `farcore cluster create` writes one"))
    }

    /// Writes a map where there is none yet.
    ///
    /// # Errors
    /// There is one, or it cannot be written.
    pub(super) fn create(&self, map: &ClusterMap) -> Result<()> {
        const THERE: &str = "there is a map already, and its servers go by it; name another place";
        match &self.map {
            MapPlace::File(path) => {
                ensure!(!path.exists(), self.failed(&THERE));
                map.write(path).map_err(|error| self.failed(&error))
            }
            MapPlace::Etcd(address) => {
                let etcd = self.etcd.client(address)?;
                let (_, mut present) =
                    ClusterMap::read_etcd(&etcd).map_err(|error| self.failed(&error))?;
                present.revision = 0;
                let stored = map.write_etcd(&etcd, &[present]);
                let stored = stored.map_err(|error| self.failed(&error))?;
                ensure!(stored, self.failed(&THERE));
                Ok(())
            }
        }
    }

    /// The client of etcd.
    ///
    /// # Errors
    /// The map is in a file.
    pub(super) fn client(&self) -> Result<farcore_etcd::Etcd> {
        match &self.map {
            MapPlace::File(_) => Err(self.failed(&format!("name a map in etcd: {ADDRESS_FORMAT}"))),
            MapPlace::Etcd(address) => self.etcd.client(address),
        }
    }

    /// The IDs of members that have no lease; `None` if the map is in a file.
    ///
    /// # Errors
    /// etcd is not reached.
    pub(super) fn without_lease(&self, map: &ClusterMap) -> Result<Option<Vec<String>>> {
        let MapPlace::Etcd(address) = &self.map else {
            return Ok(None);
        };
        let etcd = self.etcd.client(address)?;
        let found = etcd.list(&ClusterMap::etcd_key_of(&etcd, ""));
        let found = found.map_err(|error| self.failed(&error))?;
        let has_lease = |id: &str| {
            let key = ClusterMap::etcd_key_of(&etcd, id);
            found.entries.iter().any(|entry| entry.key == key)
        };
        let members = map.members.iter().map(|member| member.id.clone());
        Ok(Some(members.filter(|id| !has_lease(id)).collect()))
    }

    /// The map in etcd, and the condition that it is still there.
    ///
    /// # Errors
    /// There is none, or etcd is not reached.
    pub(super) fn read_etcd(&self, etcd: &farcore_etcd::Etcd) -> Result<(ClusterMap, Condition)> {
        let (map, present) = ClusterMap::read_etcd(etcd).map_err(|error| self.failed(&error))?;
        let map = map.ok_or_else(|| self.failed(&"there is no map"))?;
        Ok((map, present))
    }
}
