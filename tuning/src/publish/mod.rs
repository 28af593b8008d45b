//! Publishes measurements: reports over a Unix socket, OpenMetrics over HTTP, the log.
//!
//! Owns the sockets and the threads that serve them. None of these threads touches a shard: they
//! read counters through a [`Reporter`] or an [`Exposed`](http::Exposed).

mod attach;
mod cluster_report;
mod data_report;
#[cfg(feature = "http")]
mod exposition;
#[cfg(feature = "http")]
mod host;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "log")]
mod log;
mod replication_report;
mod report;
mod socket;
#[cfg(feature = "otel")]
mod spans;

pub use self::attach::{ReadError, default_socket, find_sockets, read_report, sockets_folder};
pub use self::cluster_report::ClusterReport;
pub use self::data_report::{DataReport, LoadingReport, LogReport, RepairsReport, SnapshotsReport};
#[cfg(feature = "http")]
pub use self::exposition::Exposition;
#[cfg(feature = "http")]
pub use self::http::{Exposed, HttpLimits, HttpServer, is_loopback, openmetrics};
#[cfg(feature = "log")]
pub use self::log::{LogFormat, LogGuard, log_format, log_lines_dropped, log_to_stderr};
pub use self::replication_report::{LinkReport, ReplicasReport, ReplicationReport};
pub use self::report::{ClientsReport, CoreReport, NodeReport, Report, Reporter};
pub use self::socket::StatisticsSocket;
