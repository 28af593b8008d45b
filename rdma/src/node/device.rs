//! A memory node's RDMA device: the regions registered with it, and the queue pairs of clients.
//!
//! Owns the device's context and registrations. The device performs the clients' requests; this
//! process only creates and destroys queue pairs. So every change that this process makes to the
//! table must be made by the same device, unless the device's atomics are coherent with the
//! processors': see [`Loopback`].
//!
//! - I1: a queue pair is created for an admitted line, and destroyed before that line's end is
//!   reported: nothing lands later.

#![allow(unsafe_code)] // moves an endpoint between threads

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fabric::Endpoint;
use crate::fabric::FabricOptions;
use crate::fabric::VerbsOptions;
use crate::memory;
use crate::pool::DeviceSwap;
use crate::region::{Lock, Region, RegionOptions};
use crate::verbs::{
    Access, CompletionQueue, Context, Domain, MemoryRegion, QueuePair, VerbsEndpoint, VerbsError,
};
use crate::work::{
    Completion, LocalKey, LocalSlice, RemoteKey, RemoteSlice, Status, Work, WorkId, WorkRequest,
};

/// Depth of a client's queue pair on this side, which never posts a request.
const DEPTH: u16 = 1;
/// How long the device may take for a swap before its queue pairs are recreated.
const SWAP_LIMIT: Duration = Duration::from_secs(5);
/// Attempts per swap.
const ATTEMPTS: u32 = 3;

/// The device, with all lent regions registered.
#[derive(Debug)]
pub(crate) struct NodeDevice {
    domain: Arc<Domain>,
    completion_queue: Arc<CompletionQueue>,
    regions: Vec<MemoryRegion>,
    options: VerbsOptions,
}

impl NodeDevice {
    /// Registers regions; clients reach them by the keys of [`NodeDevice::keys`].
    ///
    /// # Errors
    /// [`VerbsError`].
    pub(super) fn register(
        context: &Arc<Context>,
        options: &VerbsOptions,
        regions: &[Arc<Region>],
    ) -> Result<Self, VerbsError> {
        let domain = Domain::new(context)?;
        let register = |region: &Arc<Region>| {
            MemoryRegion::register(&domain, Arc::clone(region), Access::Remote)
        };
        let regions = regions.iter().map(register).collect::<Result<_, _>>()?;
        Ok(Self {
            completion_queue: CompletionQueue::new(context, 1)?,
            domain,
            regions,
            options: options.clone(),
        })
    }

    /// The keys of the regions, in their order.
    pub(super) fn keys(&self) -> Vec<RemoteKey> {
        let key = |region: &MemoryRegion| RemoteKey(region.rkey());
        self.regions.iter().map(key).collect()
    }

    /// Creates a queue pair for a client.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub(super) fn queue_pair(&self) -> io::Result<QueuePair> {
        QueuePair::new(&self.domain, &self.completion_queue, DEPTH, &self.options)
            .map_err(io::Error::other)
    }

    pub(super) fn context(&self) -> &Context {
        self.domain.context()
    }

    pub(super) fn options(&self) -> &VerbsOptions {
        &self.options
    }
}

/// Swaps words of the table through the device, over two queue pairs of this process that are
/// connected to each other.
#[derive(Debug)]
pub(super) struct Loopback {
    inner: Mutex<Inner>,
    dead: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    endpoint: VerbsEndpoint,
    scratch: Arc<Region>,
    scratch_key: LocalKey,
    table: Arc<Region>,
    table_key: RemoteKey,
    started: Instant,
}

// SAFETY: the endpoint's parts are shared only among themselves (no slot or adapter of it leaves
// this), so all of them move together. libibverbs may be called from any thread, and the lock
// admits one at a time.
unsafe impl Send for Inner {}

impl Loopback {
    /// # Errors
    /// [`VerbsError`].
    pub(super) fn new(
        context: &Arc<Context>,
        options: &VerbsOptions,
        table: &Arc<Region>,
    ) -> Result<Self, VerbsError> {
        let mut endpoint = VerbsEndpoint::on(
            context,
            &FabricOptions {
                verbs: options.clone(),
                queues: 2,
                depth: 1,
                limit_ns: u64::MAX,
            },
            Access::Remote,
        )?;
        let refused = |what: String| VerbsError::Refused {
            what: "no memory for the node's own swaps",
            device: context.name().to_owned(),
            source: io::Error::other(what),
        };
        let scratch = Region::map(&RegionOptions {
            bytes: 4096,
            huge_pages: false,
            lock: Lock::Off,
            prefault: true,
        });
        let scratch = Arc::new(scratch.map_err(|error| refused(error.to_string()))?);
        let mut register = |region: &Arc<Region>| {
            endpoint
                .register(Arc::clone(region))
                .map_err(|error| refused(error.to_string()))
        };
        let scratch_key = register(&scratch)?;
        let lent = register(table)?;
        let table_key = endpoint
            .remote_key(lent)
            .ok_or_else(|| refused("the table is not registered".to_owned()))?;
        endpoint.connect_loopback(0, 1)?;
        Ok(Self {
            inner: Mutex::new(Inner {
                endpoint,
                scratch,
                scratch_key,
                table: Arc::clone(table),
                table_key,
                started: Instant::now(),
            }),
            dead: AtomicBool::new(false),
        })
    }
}

impl DeviceSwap for Loopback {
    fn compare_and_swap(&self, offset: u64, expected: u64, desired: u64) -> Option<u64> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let old = inner.try_swap(offset, expected, desired);
        // ORDERING: relaxed; it is changed under the lock.
        let was_dead = self.dead.swap(old.is_none(), Ordering::Relaxed);
        if was_dead != old.is_none() {
            match old {
                None => tracing::error!(
                    "the device cannot swap words of the table: no extent can be claimed or freed"
                ),
                Some(_) => tracing::info!("the device swaps words of the table again"),
            }
        }
        old
    }
}

impl Inner {
    /// Performs a swap. A fault may leave its outcome unknown: then the queue pairs are destroyed
    /// first, and the word is read. Ids are unique and bits are only hints, so an equal word
    /// written by another session does no harm.
    fn try_swap(&mut self, offset: u64, expected: u64, desired: u64) -> Option<u64> {
        for _ in 0..ATTEMPTS {
            if let Some(old) = self.swap(offset, expected, desired) {
                return Some(old);
            }
            let renewed = self.endpoint.reconnect_loopback(0, 1);
            match self.load(offset)? {
                word if word == desired => return Some(expected),
                word if word != expected => return Some(word),
                _ => renewed.ok()?,
            }
        }
        None
    }

    /// Reads a word. Processors see what the device wrote; only its swaps are not atomic with
    /// theirs.
    fn load(&self, offset: u64) -> Option<u64> {
        let place = memory::pointer(&self.table, offset, 8)?;
        // SAFETY: inside the region, which this keeps; words of a table are only accessed as
        // atomics.
        let word = unsafe { memory::atomic_word(place) }?;
        // ORDERING: acquire; pairs with the release of the thread that swapped the word.
        Some(word.load(Ordering::Acquire))
    }

    fn swap(&mut self, offset: u64, expected: u64, desired: u64) -> Option<u64> {
        let request = WorkRequest {
            id: WorkId(offset),
            work: Work::CompareAndSwap {
                local: LocalSlice {
                    key: self.scratch_key,
                    offset: 0,
                    bytes: 8,
                },
                remote: RemoteSlice {
                    key: self.table_key,
                    offset,
                },
                expected,
                desired,
            },
            signalled: true,
        };
        self.endpoint.post(0, request).ok()?;
        self.endpoint.ring_doorbell(0, 0);
        let since = self.started.elapsed();
        let mut seen = [Completion::NONE];
        while self.endpoint.poll(0, &mut seen) == 0 {
            if self.started.elapsed() - since > SWAP_LIMIT {
                return None;
            }
            std::hint::spin_loop();
        }
        if seen[0].status != Status::Success {
            return None;
        }
        // SAFETY: the region is that long and aligned. The device has written the word and does not
        // access it any more.
        Some(unsafe { self.scratch.as_ptr().as_ptr().cast::<u64>().read_volatile() })
    }
}
