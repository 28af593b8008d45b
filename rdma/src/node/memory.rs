//! A memory node's memory: the data regions that it lends, and the table of extents' owners.
//!
//! - I1: all memory is mapped, touched and locked before a client can connect. Nothing is mapped
//!   later.
//! - I2: the regions' keys are random and distinct, so that a key of an earlier incarnation matches
//!   nothing. On an RDMA device the device chooses the keys: there only the proof in the connect
//!   request keeps other processes out.
//! - I3: a request for more than the machine has free is refused before any memory is touched.
//!
//! Limits: regions under 2 GiB, [`REGIONS_MAX`] of them. Source: proc(5) for free memory,
//! cgroups(7) for the limit.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, thread};

use farcore_tuning::{MemoryEnd, Root, Size, available_resident_memory, entropy_u32};

#[cfg(feature = "verbs")]
use super::device::{Loopback, NodeDevice};
#[cfg(feature = "verbs")]
use crate::fabric::VerbsOptions;
use crate::pool::{NodeMap, NodeMapError, RegionDescriptor, Table, TableError};
use crate::region::{Lock, PageKind, Region, RegionError, RegionOptions};
use crate::tcp::{Exposed, RemoteRange};
#[cfg(feature = "verbs")]
use crate::verbs::{Context, VerbsError};
use crate::work::RemoteKey;

/// Limit on a node's data regions: its map has to fit one control message.
pub const REGIONS_MAX: usize = 2048;
const REGION_BYTES_LIMIT: u64 = 2 << 30;
/// Limit on the threads that map regions. Several threads prefault each region.
const THREADS_MAX: usize = 4;

/// Settings of the memory that a node lends.
#[derive(Clone, Copy, Debug)]
pub struct MemoryOptions {
    /// Length of all data regions together, in bytes: a multiple of the extent.
    pub memory_bytes: u64,
    /// Length of one region, in bytes: a multiple of the extent, under 2 GiB. The last may be
    /// shorter.
    pub region_bytes: u64,
    /// Length of an extent, in bytes: a power of two from 64 KiB to 1 GiB.
    pub extent_bytes: u64,
    /// Request huge pages.
    pub huge_pages: bool,
    /// Whether to lock it in memory.
    pub lock: Lock,
}

impl MemoryOptions {
    /// Defaults: regions of 1 GiB, extents of 1 MiB, huge pages and locked memory if available.
    #[must_use]
    pub fn new(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            region_bytes: 1 << 30,
            extent_bytes: 1 << 20,
            huge_pages: true,
            lock: Lock::Try,
        }
    }

    fn regions(&self) -> u64 {
        self.memory_bytes.div_ceil(self.region_bytes.max(1))
    }
}

/// Why a node's memory could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A length is not a multiple of the extent.
    #[error(
        "{what} is {bytes} bytes: must be a multiple of the extent of {extent_bytes} bytes, not 0"
    )]
    Uneven {
        /// The setting.
        what: &'static str,
        /// Its value.
        bytes: u64,
        /// Length of an extent.
        extent_bytes: u64,
    },
    /// The regions are too long.
    #[error("regions of {bytes} bytes: must be under {REGION_BYTES_LIMIT} bytes")]
    RegionBytes {
        /// The requested length.
        bytes: u64,
    },
    /// The regions are too many.
    #[error("{regions} regions: at most {REGIONS_MAX}: make the regions longer or lend less")]
    Regions {
        /// The number of regions.
        regions: u64,
    },
    /// The memory is not available.
    #[error("cannot lend {}, {} is available {}: lend less, or {}", Size(*asked_bytes), Size(*free_bytes), end.place(), end.remedy())]
    TooMuch {
        /// The requested bytes, with the table.
        asked_bytes: u64,
        /// The available bytes.
        free_bytes: u64,
        /// The limit: the machine's memory, or a control group's limit.
        end: MemoryEnd,
    },
    /// The lengths make no valid map.
    #[error(transparent)]
    Map(#[from] NodeMapError),
    /// The table cannot be created.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A region cannot be mapped.
    #[error("region {index} of {regions}: {source}")]
    Region {
        /// The region's index, from 0; the table is the last.
        index: usize,
        /// The number of regions.
        regions: usize,
        /// The reason.
        source: RegionError,
    },
    /// The kernel provides no random numbers.
    #[error("cannot get random numbers from the kernel: {0}")]
    Random(io::Error),
    /// The device cannot register it.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Verbs(#[from] VerbsError),
}

/// Progress: one more region is ready.
#[derive(Clone, Copy, Debug)]
pub struct Registered {
    /// Regions ready so far.
    pub done: usize,
    /// All regions.
    pub regions: usize,
    /// The length of this region, in bytes.
    pub bytes: u64,
    /// The kind of this region's pages.
    pub pages: PageKind,
    /// Whether this region is locked.
    pub locked: bool,
}

/// The memory that a node lends.
#[derive(Debug)]
pub struct NodeMemory {
    map: NodeMap,
    exposed: Exposed,
    table: Table,
    locked: bool,
    #[cfg(feature = "verbs")]
    device: Option<NodeDevice>,
}

fn check(options: &MemoryOptions) -> Result<(), MemoryError> {
    let MemoryOptions {
        memory_bytes,
        region_bytes,
        extent_bytes,
        ..
    } = *options;
    let uneven = |bytes: u64| bytes == 0 || !bytes.is_multiple_of(extent_bytes.max(1));
    for (what, bytes) in [("the memory", memory_bytes), ("a region", region_bytes)] {
        if uneven(bytes) {
            return Err(MemoryError::Uneven {
                what,
                bytes,
                extent_bytes,
            });
        }
    }
    if region_bytes >= REGION_BYTES_LIMIT {
        return Err(MemoryError::RegionBytes {
            bytes: region_bytes,
        });
    }
    let count = options.regions();
    let regions = usize::try_from(count).unwrap_or(usize::MAX);
    if regions > REGIONS_MAX {
        return Err(MemoryError::Regions { regions: count });
    }
    let table_bytes = table_bytes(options);
    // The map with placeholder keys: its own checks find the remaining errors.
    let descriptor = |key, bytes| RegionDescriptor {
        key: RemoteKey(key),
        address: 0,
        bytes,
    };
    NodeMap {
        extent_bytes,
        table: descriptor(u32::MAX, table_bytes),
        regions: (0..)
            .zip(lengths(options))
            .map(|(key, bytes)| descriptor(key, bytes))
            .collect(),
    }
    .validate()?;
    let asked_bytes = memory_bytes.saturating_add(table_bytes);
    fits(asked_bytes, &Root::new("/"))
}

/// Refuses to lend more than the machine, or a control group above the process, has left without
/// swap.
fn fits(asked_bytes: u64, root: &Root) -> Result<(), MemoryError> {
    match available_resident_memory(root) {
        Some(available) if asked_bytes > available.bytes => Err(MemoryError::TooMuch {
            asked_bytes,
            free_bytes: available.bytes,
            end: available.end,
        }),
        _ => Ok(()),
    }
}

fn table_bytes(options: &MemoryOptions) -> u64 {
    let extents = options.memory_bytes / options.extent_bytes.max(1);
    Table::bytes_for(u32::try_from(extents).unwrap_or(u32::MAX))
}

fn lengths(options: &MemoryOptions) -> impl Iterator<Item = u64> {
    let MemoryOptions {
        memory_bytes,
        region_bytes,
        ..
    } = *options;
    (0..options.regions()).map(move |index| region_bytes.min(memory_bytes - index * region_bytes))
}

/// Distinct keys that cannot be guessed.
fn random_keys(count: usize) -> io::Result<Vec<RemoteKey>> {
    let mut seen = HashSet::with_capacity(count);
    let mut keys = Vec::with_capacity(count);
    while keys.len() < count {
        let key = entropy_u32()?;
        if key != 0 && seen.insert(key) {
            keys.push(RemoteKey(key));
        }
    }
    Ok(keys)
}

/// Maps the data regions and, last, the table's.
fn map_all(
    options: &MemoryOptions,
    progress: &(dyn Fn(Registered) + Sync),
) -> Result<Vec<Arc<Region>>, MemoryError> {
    check(options)?;
    let table_bytes = table_bytes(options);
    let all: Vec<u64> = lengths(options).chain([table_bytes]).collect();
    let slots: Vec<Mutex<Option<Result<Region, RegionError>>>> =
        all.iter().map(|_| Mutex::new(None)).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&bytes) = all.get(index) else {
                return;
            };
            let mapped = Region::map(&RegionOptions {
                bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
                huge_pages: options.huge_pages,
                lock: options.lock,
                prefault: true,
            });
            match &mapped {
                Ok(region) => progress(Registered {
                    done: done.fetch_add(1, Ordering::Relaxed) + 1,
                    regions: all.len(),
                    bytes,
                    pages: region.page_kind(),
                    locked: region.is_locked(),
                }),
                // One failure suffices: the others stop.
                Err(_) => next.store(all.len(), Ordering::Relaxed),
            }
            *slots[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(mapped);
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for _ in 1..all.len().min(cores).min(THREADS_MAX) {
            // If a thread cannot be started, the others do its share.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut regions = Vec::with_capacity(all.len());
    let mut missing = None;
    for (index, slot) in slots.into_iter().enumerate() {
        match slot.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(Ok(region)) => regions.push(Arc::new(region)),
            Some(Err(source)) => {
                return Err(MemoryError::Region {
                    index,
                    regions: all.len(),
                    source,
                });
            }
            None => missing = missing.or(Some(index)),
        }
    }
    debug_assert_eq!(missing, None, "a region was skipped without a failure");
    Ok(regions)
}

impl NodeMemory {
    /// Maps, touches and locks all memory, several regions at a time. `progress` is called on the
    /// threads that do so. Cost: the kernel zeroes all of it, about a second per 4 GiB and core.
    ///
    /// # Errors
    /// [`MemoryError`] names the limit, the value and the remedy.
    pub fn register(
        options: &MemoryOptions,
        progress: &(dyn Fn(Registered) + Sync),
    ) -> Result<Self, MemoryError> {
        let regions = map_all(options, progress)?;
        let keys = random_keys(regions.len()).map_err(MemoryError::Random)?;
        Self::of(options, keys, regions)
    }

    /// Maps, touches and locks all memory, several regions at a time, for access through an RDMA
    /// device. `progress` is called on the threads that do so. Cost: as [`NodeMemory::register`].
    ///
    /// # Errors
    /// [`MemoryError`]; [`MemoryError::Verbs`] if the device refuses.
    #[cfg(feature = "verbs")]
    pub fn register_on(
        context: &Arc<Context>,
        verbs: &VerbsOptions,
        options: &MemoryOptions,
        progress: &(dyn Fn(Registered) + Sync),
    ) -> Result<Self, MemoryError> {
        if !context.limits().atomics {
            let none = io::Error::other("claims need atomics: lend over tcp:// instead");
            return Err(context.refused("the device has no atomics", none).into());
        }
        let regions = map_all(options, progress)?;
        let device = NodeDevice::register(context, verbs, &regions)?;
        let swaps = match regions.last() {
            Some(table) if !context.limits().global_atomics => {
                Some(Loopback::new(context, verbs, table)?)
            }
            _ => None,
        };
        let mut memory = Self::of(options, device.keys(), regions)?;
        if let Some(swaps) = swaps {
            memory.table.swap_by(Box::new(swaps));
        }
        memory.device = Some(device);
        Ok(memory)
    }

    /// Assembles the memory from the data regions and, last, the table's.
    fn of(
        options: &MemoryOptions,
        keys: Vec<RemoteKey>,
        regions: Vec<Arc<Region>>,
    ) -> Result<Self, MemoryError> {
        let count = regions.len() - 1;
        let table_bytes = table_bytes(options);
        let bytes: Vec<u64> = lengths(options).chain([table_bytes]).collect();
        let describe = |index: usize| RegionDescriptor {
            key: keys[index],
            // Clients count from a region's start, so they learn no addresses of this process.
            address: 0,
            bytes: bytes[index],
        };
        let map = NodeMap {
            extent_bytes: options.extent_bytes,
            table: describe(count),
            regions: (0..count).map(describe).collect(),
        };
        map.validate()?;
        let table = Table::new(Arc::clone(&regions[count]), map.extents())?;
        let locked = regions.iter().all(|region| region.is_locked());
        let exposed = Exposed::new(keys.into_iter().zip(regions).collect());
        Ok(Self {
            map,
            exposed,
            table,
            locked,
            #[cfg(feature = "verbs")]
            device: None,
        })
    }

    /// The device that clients access it through, if there is one.
    #[cfg(feature = "verbs")]
    pub(crate) fn device(&self) -> Option<&NodeDevice> {
        self.device.as_ref()
    }

    /// See [`Table::fail_from`].
    #[cfg(test)]
    pub(crate) fn fail_swaps_from(&mut self) -> Arc<std::sync::atomic::AtomicU32> {
        self.table.fail_from()
    }

    /// The map that clients receive.
    #[must_use]
    pub fn map(&self) -> &NodeMap {
        &self.map
    }

    /// The memory that a memory connection can access.
    #[must_use]
    pub fn exposed(&self) -> &Exposed {
        &self.exposed
    }

    /// Fills a part of an extent with zeros.
    pub(crate) fn clear(&self, extent: u32, offset: u64, bytes: u64) {
        if let Some(start) = self.map.slice(extent, offset) {
            self.exposed.clear(RemoteRange {
                key: start.key,
                offset: start.offset,
                // At most an extent, of 1 GiB.
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            });
        }
    }

    /// The table of extents' owners.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Whether all of it is locked.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn options(memory_bytes: u64, region_bytes: u64) -> MemoryOptions {
        MemoryOptions {
            region_bytes,
            extent_bytes: 64 << 10,
            huge_pages: false,
            lock: Lock::Off,
            ..MemoryOptions::new(memory_bytes)
        }
    }

    #[test]
    fn regions_are_registered_and_reported() {
        let seen = Mutex::new(Vec::new());
        let memory = NodeMemory::register(&options(10 << 16, 4 << 16), &|one| {
            seen.lock().unwrap().push((one.done, one.bytes));
        })
        .unwrap();
        let lengths: Vec<_> = memory.map().regions.iter().map(|one| one.bytes).collect();
        assert_eq!(lengths, [4 << 16, 4 << 16, 2 << 16]);
        assert_eq!(memory.map().extents(), 10);
        assert_eq!(memory.table().free_count(), 10);
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen.len(), 4);
        assert_eq!(seen.iter().map(|one| one.0).max(), Some(4));
        let again = NodeMemory::register(&options(1 << 16, 1 << 16), &|_| {}).unwrap();
        assert!(!memory.map().regions.contains(&again.map().regions[0]));
    }

    #[test]
    fn lengths_out_of_bounds_are_refused_by_name() {
        let error = |options: MemoryOptions| {
            NodeMemory::register(&options, &|_| panic!("registered"))
                .unwrap_err()
                .to_string()
        };
        assert!(error(options(100, 1 << 16)).contains("the memory is 100 bytes"));
        assert!(error(options(0, 1 << 16)).contains("not 0"));
        assert!(error(options(1 << 16, 5)).contains("a region is 5 bytes"));
        let text = error(options(4 << 30, 2 << 30));
        assert!(text.contains(&REGION_BYTES_LIMIT.to_string()), "{text}");
        let text = error(options(2049 << 16, 1 << 16));
        assert!(text.contains("2049 regions: at most 2048"), "{text}");
        let text = error(options(u64::MAX >> 16 << 16, 1 << 30));
        assert!(text.contains("regions: at most"), "{text}");
        let wrong = MemoryOptions {
            extent_bytes: 3 << 16,
            ..options(3 << 16, 3 << 16)
        };
        assert!(error(wrong).contains("power of two"));
        let none = MemoryOptions {
            extent_bytes: 0,
            ..options(1 << 16, 1 << 16)
        };
        assert!(error(none).contains("extents of 0 bytes"));
    }

    #[test]
    fn more_than_is_free_is_refused_before_it_is_touched() {
        let bytes = 2048 << 30;
        let wanted = MemoryOptions {
            extent_bytes: 1 << 20,
            ..options(bytes, 1 << 30)
        };
        // Only a machine with more than 2 TiB available could lend that much.
        let available = available_resident_memory(&Root::new("/"));
        if available.is_some_and(|available| available.bytes < bytes) {
            let error = NodeMemory::register(&wanted, &|_| panic!("registered")).unwrap_err();
            assert!(
                matches!(error, MemoryError::TooMuch { asked_bytes, .. } if asked_bytes >= bytes)
            );
        }
    }

    #[test]
    fn a_refusal_names_the_limit_of_the_control_group() {
        let name = format!("farcore-node-memory-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let group = folder.join("sys/fs/cgroup/box");
        fs::create_dir_all(folder.join("proc/self")).unwrap();
        fs::create_dir_all(&group).unwrap();
        fs::write(folder.join("proc/self/cgroup"), "0::/box\n").unwrap();
        fs::write(group.join("memory.high"), "5000\n").unwrap();
        fs::write(group.join("memory.current"), "1000\n").unwrap();
        let root = Root::new(&folder);
        fits(4_000, &root).unwrap();
        let text = fits(4_001, &root).unwrap_err().to_string();
        fs::remove_dir_all(&folder).unwrap();
        let limit = "/sys/fs/cgroup/box, which may use 4.8 KiB (`memory.high`) and uses 1000 bytes";
        assert!(text.contains(limit), "{text}");
        assert!(text.ends_with("raise the group's `memory.high`"), "{text}");
    }
}
