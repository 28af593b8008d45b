//! What all handlers share.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use crate::access::{Passwords, Throttle};
use crate::data::Datasets;
use crate::fits::Searcher;
use crate::live::Live;
use crate::options::Options;
use crate::runs::Runner;
use crate::store::{Database, Folder};

/// The shared state. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct AppState(Arc<Shared>);

/// The parts of the state.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The settings.
    pub(crate) options: Options,
    /// The bound address.
    pub(crate) address: SocketAddr,
    /// Places of files.
    pub(crate) folder: Arc<Folder>,
    /// Users, sessions, runs, events and the catalogue of datasets.
    pub(crate) console: Database,
    /// The tables of datasets.
    pub(crate) data: Database,
    /// Datasets and queries.
    pub(crate) datasets: Datasets,
    /// Hashes passwords.
    pub(crate) passwords: Passwords,
    /// Slows down those who guess passwords.
    pub(crate) throttle: Throttle,
    /// The queue of simulations.
    pub(crate) runner: Runner,
    /// The queue of searches for what fits.
    pub(crate) searcher: Searcher,
    /// Turns of checks of settings.
    pub(crate) checks: Arc<Semaphore>,
    /// Figures of running engines.
    pub(crate) live: Live,
    /// Turns of streams of events.
    pub(crate) streams: Arc<Semaphore>,
    /// True once the console stops: streams of events end then.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl AppState {
    /// Shares the parts.
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }
}

impl std::ops::Deref for AppState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Waits until the console stops.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A sender that is gone has stopped.
    let _ = stopping.wait_for(|&is_stopping| is_stopping).await;
}
