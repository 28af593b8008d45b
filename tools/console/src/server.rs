//! A running console: its databases, its runner, its server and their threads.
//!
//! - I1: [`Console::start`] returns once requests are answered.
//! - I2: [`Console::stop`] refuses new connections, lets open requests end for a while, interrupts
//!   runs, and leaves databases without a write-ahead log.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::access::{Passwords, Throttle, make_first_administrator, remove_ended};
use crate::data::{DataLimits, Datasets};
use crate::error::{ApiError, ApiResult};
use crate::events::{Event, Level, remove_oldest};
use crate::fits::Searcher;
use crate::http::{Connections, router};
use crate::live::Live;
use crate::options::Options;
use crate::runs::{CHECKS, Runner};
use crate::state::{AppState, Shared};
use crate::store::{CONSOLE, DATA, Database, Folder, StoreError};

/// Threads of the HTTP server.
const WORKERS: usize = 2;
/// How often what is too old is removed.
const TIDY: Duration = Duration::from_secs(600);

/// A console that cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The folder cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The address cannot be served.
    #[error("{address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The first administrator cannot be made, or a database fails.
    #[error("{0}")]
    First(String),
}

impl From<ApiError> for StartError {
    fn from(error: ApiError) -> Self {
        Self::First(error.message().to_owned())
    }
}

/// A running console.
#[derive(Debug)]
pub struct Console {
    state: AppState,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
    runtime: Runtime,
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

impl Console {
    /// Opens the folder, makes the first administrator if there is no user, and serves.
    ///
    /// # Errors
    /// The folder or the address cannot be used, there is no user and no first administrator, or
    /// the system refuses threads.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let folder = Arc::new(Folder::open(&options.folder)?);
        let console = Database::open(&folder.console_database(), CONSOLE)?;
        let data = Database::open(&folder.data_database(), DATA)?;
        let data_limits = DataLimits {
            file_bytes: options.import_bytes_max,
            ..DataLimits::default()
        };
        let datasets = Datasets::open(
            console.clone(),
            data.clone(),
            Arc::clone(&folder),
            data_limits,
        )?;
        let first = options.first_administrator.as_ref();
        console.write_blocking(|console| make_first_administrator(console, first))?;
        let listener = listen(options.listen)?;
        let address = listener.local_addr().map_err(StartError::Thread)?;
        console.write_blocking(|console| {
            let message = format!("the console starts at {address}");
            Event::of_server(Level::Info, message).write(console)
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("console")
            .enable_io()
            .enable_time()
            .build()
            .map_err(StartError::Thread)?;
        let (stop, stopping) = watch::channel(false);
        let limits = options.limits;
        let state = AppState::new(Shared {
            address,
            runner: Runner::start(&console, &folder, options.parallel)?,
            searcher: Searcher::start(&console, options.parallel)?,
            folder,
            console,
            data,
            datasets,
            passwords: Passwords::new()?,
            throttle: Throttle::new(),
            checks: Arc::new(Semaphore::new(CHECKS)),
            live: Live::new(Arc::clone(&options.live)),
            streams: Arc::new(Semaphore::new(limits.streams_max)),
            stopping: stopping.clone(),
            options,
        });
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(StartError::Thread)?
        };
        runtime.spawn(tidy(state.clone()));
        let is_behind_proxy = state.options.is_behind_tls;
        let connections =
            Connections::new(router(state.clone()), limits, is_behind_proxy, stopping);
        let server = runtime.spawn(connections.serve(listener));
        Ok(Self {
            state,
            stop,
            server,
            runtime,
        })
    }

    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.state.address
    }

    /// Stops, within the time of [`Limits::stop`](crate::options::Limits::stop) and the time of a
    /// few writes.
    pub fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.runtime.block_on(self.server) {
            tracing::error!(%error, "the HTTP server ended by a fault");
        }
        self.state.runner.stop();
        self.state.searcher.stop();
        let stopped = self.state.console.write_blocking(|console| {
            Event::of_server(Level::Info, "the console stops").write(console)
        });
        if let Err(error) = stopped {
            tracing::error!(error = error.message(), "the end could not be noted");
        }
        self.runtime
            .shutdown_timeout(self.state.options.limits.stop);
        self.state.console.checkpoint();
        self.state.data.checkpoint();
    }
}

/// Removes what is too old, again and again.
async fn tidy(state: AppState) {
    loop {
        if let Err(error) = tidy_once(&state).await {
            tracing::warn!(error = error.message(), "old entries were not removed");
        }
        sleep(TIDY).await;
    }
}

async fn tidy_once(state: &AppState) -> ApiResult<()> {
    let limits = state.options.limits;
    let ended = move |console: &rusqlite::Connection| remove_ended(console, &limits);
    state.console.write(ended).await?;
    let oldest = move |console: &rusqlite::Connection| remove_oldest(console, limits.events_max);
    while state.console.write(oldest).await? {}
    Ok(())
}
