//! Publishes the metrics of the running engine: a statistics socket for `farcore top`, HTTP for
//! Prometheus.
//!
//! The flags become a [`Watch`], which travels in the plan to the process of the run. What it opens
//! stays open for as long as the engine runs. Addresses beyond loopback need `--insecure`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use farcore::EngineReporter;
use farcore::statistics::{
    Exposition, HttpServer, Reporter, StatisticsSocket, default_socket, is_loopback,
};
use farcore_tuning::Exposed;
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::range::RangeError;
use crate::stop;

/// Stands for the default path.
const DEFAULT: &str = "default";

/// Flags of the metrics.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct WatchArgs {
    /// Publish metrics on this socket for `farcore top`; without a path, or with `default`, where
    /// `farcore top` searches
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = DEFAULT)]
    pub stats_socket: Option<PathBuf>,
    /// Serve /metrics and /healthz on this address, e.g. 127.0.0.1:9401
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<SocketAddr>,
    /// Allow --http on an address beyond loopback
    #[arg(long, requires = "http")]
    pub insecure: bool,
}

/// Where the engine of a run publishes its metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Its statistics socket, or `default`.
    pub stats_socket: Option<PathBuf>,
    /// The address for Prometheus.
    pub http: Option<SocketAddr>,
}

/// Open endpoints; they close on drop, which must precede the end of the engine.
#[derive(Debug)]
pub struct Watched {
    _socket: Option<StatisticsSocket>,
    _http: Option<HttpServer>,
}

impl WatchArgs {
    /// The endpoints that the flags name.
    ///
    /// # Errors
    /// The address is reachable from other hosts and `--insecure` is not given.
    pub fn watch(&self) -> Result<Watch, RangeError> {
        if let Some(http) = self.http
            && !self.insecure
            && !is_loopback(http)
        {
            let limit = "other hosts could read the metrics; use a loopback address such as 127.0.0.1, \
                         or give --insecure on a trusted network";
            return Err(RangeError::new("--http", http, limit));
        }
        Ok(Watch {
            stats_socket: self.stats_socket.clone(),
            http: self.http,
        })
    }
}

impl Watch {
    /// Opens the endpoints.
    ///
    /// # Errors
    /// The path or the address is not available.
    pub fn open(&self, reporter: EngineReporter) -> anyhow::Result<Watched> {
        self.open_with(Arc::new(reporter), |engine| Arc::new(engine))
    }

    /// The same; HTTP serves what `exposed` makes of the engine's metrics.
    ///
    /// # Errors
    /// The path or the address is not available.
    pub fn open_with(
        &self,
        reporter: Arc<dyn Reporter>,
        exposed: impl FnOnce(Exposition) -> Arc<dyn Exposed>,
    ) -> anyhow::Result<Watched> {
        let socket = match &self.stats_socket {
            Some(path) => {
                let path = if path == Path::new(DEFAULT) {
                    default_socket("bench").context("--stats-socket")?
                } else {
                    path.clone()
                };
                let socket = StatisticsSocket::bind(path, reporter.clone());
                let socket = socket.context("--stats-socket")?;
                stop::remove_if_hung(socket.path());
                info!(socket = %socket.path().display(), "farcore top can attach");
                Some(socket)
            }
            None => None,
        };
        let http = match self.http {
            Some(address) => {
                let exposed = exposed(Exposition::new(reporter));
                let server = HttpServer::bind(address, exposed).with_context(|| {
                    format!("cannot listen on {address}; give --http another address")
                })?;
                info!(address = %server.address(), "metrics over HTTP");
                Some(server)
            }
            None => None,
        };
        Ok(Watched {
            _socket: socket,
            _http: http,
        })
    }
}
