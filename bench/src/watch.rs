//! Where the figures of the engine that runs can be watched.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use farcore::EngineReporter;
use farcore::statistics::{Exposition, HttpServer, StatisticsSocket, default_socket, is_loopback};
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::plan::PlanError;

/// Stands for the path by custom.
const BY_CUSTOM: &str = "default";

/// Flags that say where.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct WatchArgs {
    /// Let `farcore top` attach here; without a path (or with `default`) where it looks by itself
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = BY_CUSTOM)]
    pub stats_socket: Option<PathBuf>,
    /// Offer /metrics and /healthz here: 127.0.0.1:9401
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<SocketAddr>,
    /// Allow --http beyond loopback
    #[arg(long)]
    pub insecure: bool,
}

/// Where the engine of a run is to be watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Its statistics socket, or `default`.
    pub stats_socket: Option<PathBuf>,
    /// The address for Prometheus.
    pub http: Option<SocketAddr>,
}

/// What is open for as long as the engine runs.
#[derive(Debug)]
pub struct Watched {
    _socket: Option<StatisticsSocket>,
    _http: Option<HttpServer>,
}

impl WatchArgs {
    /// What the flags say.
    ///
    /// # Errors
    /// The figures would be for strangers.
    pub fn watch(&self) -> Result<Watch, PlanError> {
        if let Some(http) = self.http
            && !self.insecure
            && !is_loopback(http)
        {
            return Err(PlanError::Range {
                flag: "--http",
                value: http.to_string(),
                limit: "anybody who can reach it could read the figures; listen on 127.0.0.1, or give --insecure if \
                        only friends can"
                    .to_owned(),
            });
        }
        Ok(Watch {
            stats_socket: self.stats_socket.clone(),
            http: self.http,
        })
    }
}

impl Watch {
    /// Opens what was asked for.
    ///
    /// # Errors
    /// The path or the address cannot be had.
    pub fn open(&self, reporter: EngineReporter) -> anyhow::Result<Watched> {
        let reporter = Arc::new(reporter);
        let socket = match &self.stats_socket {
            Some(path) => {
                let path = if path == Path::new(BY_CUSTOM) {
                    default_socket("bench").context("--stats-socket")?
                } else {
                    path.clone()
                };
                let socket = StatisticsSocket::bind(path, reporter.clone());
                let socket = socket.context("--stats-socket")?;
                info!(socket = %socket.path().display(), "farcore top can attach");
                Some(socket)
            }
            None => None,
        };
        let http = match self.http {
            Some(address) => {
                let exposed = Arc::new(Exposition::new(reporter));
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
