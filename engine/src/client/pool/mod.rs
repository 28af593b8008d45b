//! The lanes that clients of any number of threads and tasks share.
//!
//! A [`LanePool`] has a few *stations*, each with the lanes of one handle. A thread keeps the
//! station that had the fewest threads at its first call. A call enters its station for as long as
//! it takes to send its request and to receive what has arrived, for all callers of the station; it
//! never waits inside.
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
mod client_section;
mod seats;
mod shared_section;
mod station;

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

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

/// The station of a thread at a pool.
struct Home {
    /// The pool's first station, which identifies the pool.
    pool: Weak<Station>,
    place: usize,
    station: Weak<Station>,
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(station) = self.station.upgrade() {
            // ORDERING: relaxed; it only guides the choice.
            station.threads.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

thread_local! {
    /// One for each pool that the thread has called.
    static HOMES: RefCell<Vec<Home>> = const { RefCell::new(Vec::new()) };
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

    /// The station of the calling thread; the first one for a thread that ends.
    #[inline]
    fn station(&self) -> &Arc<Station> {
        let place = HOMES.try_with(|homes| {
            let mut homes = homes.borrow_mut();
            let first = Arc::as_ptr(&self.stations[0]);
            let home = homes.iter().find(|home| home.pool.as_ptr() == first);
            match home.map(|home| home.place) {
                Some(place) => place,
                None => self.settle(&mut homes),
            }
        });
        &self.stations[place.unwrap_or(0)]
    }

    /// Chooses a station for the calling thread: the one with the fewest threads of those that have
    /// lanes or find some.
    #[cold]
    fn settle(&self, homes: &mut Vec<Home>) -> usize {
        homes.retain(|home| home.pool.strong_count() > 0);
        let mut places: Vec<usize> = (0..self.stations.len()).collect();
        // ORDERING: relaxed; it only guides the choice.
        places.sort_by_key(|&place| self.stations[place].threads.load(Ordering::Relaxed));
        let open = places
            .into_iter()
            .find(|&place| self.stations[place].open());
        let place = open.unwrap_or(0);
        let station = &self.stations[place];
        station.threads.fetch_add(1, Ordering::Relaxed);
        homes.push(Home {
            pool: Arc::downgrade(&self.stations[0]),
            place,
            station: Arc::downgrade(station),
        });
        place
    }
}

impl Drop for LanePool {
    fn drop(&mut self) {
        // A station is the waker of its own lanes: it must let go of them.
        self.stations.iter().for_each(Station::close);
    }
}
