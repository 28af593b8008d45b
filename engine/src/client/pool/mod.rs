//! The lanes that clients of any number of threads and tasks share.
//!
//! A [`LanePool`] has a few *stations*, each with the lanes of one handle. A thread always uses the
//! same station, and with as many stations as threads no other does. A call enters its station
//! for as long as it takes to send its request and to receive what has arrived, for all callers of
//! the station; it never waits inside.
//!
//! ```text
//! call -> station (entered) -> lane -> shard
//!              ^--- answers of all its callers, each to its seat, whose task is woken
//! shard has answers, no thread is inside -> the shard's thread enters and hands them out
//! ```
//!
//! So requests of many tasks share lanes, batches and wake-ups, and no task depends on another one
//! to be polled.

mod batch_call;
mod client;
mod client_call;
mod seats;
mod station;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lanes::Shared;
use crate::error::{Error, Result};

pub use self::batch_call::{Answers, BatchCall};
pub use self::client::Client;
pub use self::client_call::{ClientCall, OwnedValue};
use self::station::Station;

/// The stations of an engine.
#[derive(Debug)]
pub(crate) struct LanePool {
    shared: Arc<Shared>,
    stations: Box<[Arc<Station>]>,
}

/// Numbers threads as they call first.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The number of the calling thread.
fn thread_number() -> usize {
    THREAD.get().unwrap_or_else(|| {
        // ORDERING: relaxed; only the numbers matter.
        let number = THREADS.fetch_add(1, Ordering::Relaxed);
        THREAD.set(Some(number));
        number
    })
}

impl LanePool {
    /// A pool of at most this many stations. The first has its lanes at once, the others at their
    /// first call.
    ///
    /// # Errors
    /// [`Error::Handles`] if no lanes are left for one.
    pub(crate) fn new(shared: &Arc<Shared>, stations: usize) -> Result<Self> {
        let stations: Box<[_]> = (0..stations.max(1)).map(|_| Station::new(shared)).collect();
        if !stations[0].open() {
            return Err(Error::Handles {
                limit: shared.handles_max,
            });
        }
        Ok(Self {
            shared: Arc::clone(shared),
            stations,
        })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The station of the calling thread. One that finds no lanes left is not used: its threads use
    /// the first.
    fn station(&self) -> &Arc<Station> {
        let station = &self.stations[thread_number() % self.stations.len()];
        if station.open() {
            station
        } else {
            &self.stations[0]
        }
    }
}

impl Drop for LanePool {
    fn drop(&mut self) {
        // A station is the waker of its own lanes: it must let go of them.
        self.stations.iter().for_each(Station::close);
    }
}
