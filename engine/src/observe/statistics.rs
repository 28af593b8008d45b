//! Serves the metrics of a running engine to other processes, over a Unix socket or HTTP.
//!
//! ```
//! use std::sync::Arc;
//!
//! use farcore::statistics::{StatisticsSocket, read_report};
//! use farcore::{Config, Engine};
//!
//! # let path = std::env::temp_dir().join(format!("farcore-example-{}.sock", std::process::id()));
//! let engine = Engine::open(Config {
//!     local_bytes: 64 << 20,
//!     far_bytes: 64 << 20,
//!     keys_expected: 10_000,
//!     ..Config::default()
//! })?;
//! // `farcore top PATH` attaches to it. It is closed when it is dropped.
//! let socket = StatisticsSocket::bind(path, Arc::new(engine.reporter()))?;
//! engine.handle()?.put(b"key", b"value").wait()?;
//! let report = read_report(socket.path())?;
//! assert_eq!(report.total().puts, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With the feature `http`, `HttpServer::bind(address,
//! Arc::new(Exposition::new(Arc::new(engine.reporter()))))` serves the same as `/metrics` to
//! Prometheus. Every client that can connect can read the names of hot keys: bind it to loopback or
//! to a trusted network.

pub use farcore_tuning::{
    ClientsReport, ClusterReport, CoreReport, DataReport, HardwareSnapshot, HotKey, LinkReport,
    LoadingReport, LogReport, NodeReport, NodeSnapshot, ReadError, RepairsReport, ReplicasReport,
    ReplicationReport, Reporter, SnapshotsReport, StatisticsSocket, default_socket, find_sockets,
    read_report, sockets_folder,
};
#[cfg(feature = "http")]
pub use farcore_tuning::{Exposition, HttpLimits, HttpServer, is_loopback};
