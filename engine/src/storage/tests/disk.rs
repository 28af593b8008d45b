//! A file in memory that is crashed, fails and waits as a test wants.

use std::cell::RefCell;
use std::rc::Rc;

use super::Numbers;
use crate::disk::{Disk, DiskCompletion, DiskError, DiskRefused, DiskRequest, DiskWork};

const SECTOR: usize = 512;

#[derive(Default)]
struct Inside {
    durable: Vec<u8>,
    /// Sectors that were written and not synced.
    loose: Vec<(usize, Vec<u8>)>,
    waiting: Vec<DiskRequest>,
    numbers: Option<Numbers>,
    is_stalled: bool,
    writes_fail: Option<DiskError>,
    syncs_fail: Option<DiskError>,
    writes: Vec<u64>,
    syncs: usize,
}

/// A file in memory; clones are of the same.
#[derive(Clone, Default)]
pub(super) struct MemoryDisk(Rc<RefCell<Inside>>);

impl std::fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryDisk")
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    bytes.resize(bytes.len().max(at + part.len()), 0);
    bytes[at..at + part.len()].copy_from_slice(part);
}

impl MemoryDisk {
    /// A disk that performs some requests at each poll, in an order from a seed.
    pub(super) fn random(seed: u64) -> Self {
        let disk = Self::default();
        disk.0.borrow_mut().numbers = Some(Numbers(seed));
        disk
    }

    /// Drops what was written.
    pub(super) fn forget(&self) {
        self.0.borrow_mut().loose.clear();
    }

    /// Whether syncs wait.
    pub(super) fn stall(&self, is_stalled: bool) {
        self.0.borrow_mut().is_stalled = is_stalled;
    }

    pub(super) fn fail_writes(&self, error: Option<DiskError>) {
        self.0.borrow_mut().writes_fail = error;
    }

    pub(super) fn fail_syncs(&self, error: Option<DiskError>) {
        self.0.borrow_mut().syncs_fail = error;
    }

    /// The places of all writes, and how many syncs there were.
    pub(super) fn counts(&self) -> (Vec<u64>, usize) {
        let inside = self.0.borrow();
        (inside.writes.clone(), inside.syncs)
    }

    /// What the file holds as long as the power does not fail.
    pub(super) fn written(&self) -> Vec<u8> {
        let inside = self.0.borrow();
        let mut bytes = inside.durable.clone();
        for (at, sector) in &inside.loose {
            put(&mut bytes, *at, sector);
        }
        bytes
    }

    /// What the file may hold after the power has failed: of what was not synced any part.
    pub(super) fn crashed(&self, numbers: &mut Numbers) -> Vec<u8> {
        let inside = self.0.borrow();
        let mut bytes = inside.durable.clone();
        let often = 1 + numbers.next(4);
        for (at, sector) in &inside.loose {
            if numbers.next(often) == 0 {
                put(&mut bytes, *at, sector);
            }
        }
        for request in &inside.waiting {
            if let DiskWork::Write { at, buffer } = &request.work {
                for (place, sector) in (0..).step_by(SECTOR).zip(buffer.bytes().chunks(SECTOR)) {
                    if numbers.next(often) == 0 {
                        put(&mut bytes, usize::try_from(*at).unwrap() + place, sector);
                    }
                }
            }
        }
        bytes
    }
}

impl Inside {
    fn perform(&mut self, work: &DiskWork) -> Result<(), DiskError> {
        match work {
            DiskWork::Write { at, buffer } => {
                if let Some(error) = self.writes_fail {
                    return Err(error);
                }
                self.writes.push(*at);
                let at = usize::try_from(*at).unwrap();
                let sectors = buffer.bytes().chunks(SECTOR).map(<[u8]>::to_vec);
                self.loose.extend((at..).step_by(SECTOR).zip(sectors));
                Ok(())
            }
            DiskWork::Sync => {
                self.syncs += 1;
                if let Some(error) = self.syncs_fail {
                    return Err(error);
                }
                for (at, sector) in std::mem::take(&mut self.loose) {
                    put(&mut self.durable, at, &sector);
                }
                Ok(())
            }
            DiskWork::Read { .. } => panic!("a writer does not read"),
        }
    }
}

impl Disk for MemoryDisk {
    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn room(&self) -> usize {
        8 - self.0.borrow().waiting.len()
    }

    fn submit(&mut self, request: DiskRequest) -> Result<(), DiskRefused> {
        let mut inside = self.0.borrow_mut();
        let is_sync = |request: &DiskRequest| matches!(request.work, DiskWork::Sync);
        let has_sync = inside.waiting.iter().any(is_sync);
        assert!(!has_sync || !is_sync(&request), "one sync at a time");
        let is_busy = inside.numbers.as_mut().is_some_and(|n| n.next(5) == 0);
        if inside.waiting.len() == 8 || is_busy {
            return Err(DiskRefused::Busy(request));
        }
        inside.waiting.push(request);
        Ok(())
    }

    fn poll(&mut self, each: &mut dyn FnMut(DiskCompletion)) -> usize {
        let mut inside = self.0.borrow_mut();
        let mut count = 0;
        while !inside.waiting.is_empty() {
            let waiting = inside.waiting.len();
            let numbers = inside.numbers.as_mut();
            let place = numbers.map_or(Some(0), |numbers| {
                let is_later = numbers.next(3) == 0;
                (!is_later).then(|| numbers.next(waiting))
            });
            let Some(mut place) = place else { break };
            if inside.is_stalled {
                let is_write = |one: &DiskRequest| !matches!(one.work, DiskWork::Sync);
                let Some(write) = inside.waiting.iter().position(is_write) else {
                    break;
                };
                place = write;
            }
            let request = inside.waiting.swap_remove(place);
            let result = inside.perform(&request.work);
            each(DiskCompletion {
                token: request.token,
                result,
                buffer: request.work.into_buffer(),
            });
            count += 1;
        }
        count
    }
}
