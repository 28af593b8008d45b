//! Servers of a cluster, and their maps.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use farcore_server::{ClusterOptions, MapPlace};

use super::{PATIENCE, Served};

pub(crate) fn id_of(number: usize) -> String {
    format!("{:040x}", number + 1)
}

/// Servers of a cluster whose map is in a file of its own.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Served>,
    pub(crate) folder: tempfile::TempDir,
    /// The file of each server; they may share one.
    pub(crate) paths: Vec<PathBuf>,
}

impl Cluster {
    /// Servers without a map, which share a file of it.
    pub(crate) fn start(count: usize, cores: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("map");
        Self::of(folder, vec![path; count], cores)
    }

    /// Servers without a map, each with a file of its own.
    pub(crate) fn apart(count: usize, cores: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = (0..count).map(|number| folder.path().join(format!("map-{number}")));
        let paths = paths.collect();
        Self::of(folder, paths, cores)
    }

    fn of(folder: tempfile::TempDir, paths: Vec<PathBuf>, cores: usize) -> Self {
        let server = |(number, path): (usize, &PathBuf)| {
            Served::with(cores, |options| {
                options.client_bytes = 256 << 20;
                options.cluster = Some(ClusterOptions {
                    map: MapPlace::File(path.clone()),
                    id: Some(id_of(number)),
                    announced: None,
                });
            })
        };
        let servers = paths.iter().enumerate().map(server).collect();
        Self {
            servers,
            folder,
            paths,
        }
    }

    /// The file of the first server.
    pub(crate) fn path(&self) -> PathBuf {
        self.paths[0].clone()
    }

    pub(crate) fn address(&self, number: usize) -> SocketAddr {
        self.servers[number].address
    }

    /// The lines of servers with their roles and slots.
    pub(crate) fn nodes(&self, of: &[&str]) -> String {
        let mut text = String::new();
        for (number, of) in of.iter().enumerate() {
            let address = self.address(number);
            let (host, port) = (address.ip(), address.port());
            writeln!(text, "{} {host} {port} {of}", id_of(number)).expect("a text");
        }
        text
    }

    /// Writes the file, as an editor that replaces it.
    pub(crate) fn write(&self, text: &str) {
        let beside = self.folder.path().join("beside");
        for path in &self.paths {
            fs::write(&beside, text).expect("a file");
            fs::rename(&beside, path).expect("a file");
        }
    }

    /// Waits until all servers go by a version.
    pub(crate) fn wait_for(&self, version: &str) {
        let begun = Instant::now();
        for server in &self.servers {
            let mut client = server.client();
            while client.ask(&["CLUSTERX", "VERSION"]).text() != version {
                assert!(begun.elapsed() < PATIENCE, "the map is not read");
                thread::yield_now();
            }
        }
    }

    /// Three servers that share all slots.
    pub(crate) fn of_three(cores: usize) -> Self {
        Self::start(3, cores).with_thirds()
    }

    /// Has three servers share all slots.
    pub(crate) fn with_thirds(self) -> Self {
        let cluster = self;
        let nodes = cluster.nodes(&THIRDS);
        cluster.write(&format!("version 1\n{nodes}"));
        cluster.wait_for("1");
        cluster
    }
}

pub(crate) const THIRDS: [&str; 3] = [
    "master - 0-5460",
    "master - 5461-10922",
    "master - 10923-16383",
];
