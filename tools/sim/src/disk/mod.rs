//! A simulated file on a disk, which does what real ones do to what was not synced, and worse.
//!
//! ```text
//! submit -> waiting -> poll: some, in any order -> performed, not synced -> Sync -> durable
//!                            some fail, or come to lie elsewhere        \-> crash: any part of it
//! ```
//!
//! - I1: what a disk does depends on its seed and the calls before alone.
//! - I2: without damage, what was synced is read and survives as it was written.

#[cfg(test)]
mod appended;
#[cfg(test)]
mod stored;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use farcore::disk::{Disk, DiskCompletion, DiskError, DiskRefused, DiskRequest, DiskWork};

use crate::random::Random;

/// Bytes that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;
/// The number of the system's error of a device that has failed.
const EIO: i32 = 5;

/// How often something goes wrong: once in this many opportunities, or never where it is 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFaults {
    /// A request waits at a poll although it could be performed.
    pub delay: u64,
    /// A request fails; a write may have been performed in part.
    pub fail: u64,
    /// A write comes to lie elsewhere in the file, and says nothing of it.
    pub misdirect: u64,
    /// A bit of what is read is another one.
    pub flip: u64,
}

/// A sector's place in the file, counted in sectors.
type Place = u64;
type Sector = [u8; SECTOR_BYTES];

/// A request that was not performed.
#[derive(Debug)]
struct Waiting {
    request: DiskRequest,
    /// Of a sync: writes with lower numbers had completed before it was submitted.
    covers: u64,
}

/// A sector that was written and not synced, with the number of its write.
#[derive(Debug)]
struct Loose {
    write: u64,
    place: Place,
    sector: Sector,
}

/// A simulated file on a disk.
#[derive(Debug)]
pub struct SimulatedDisk {
    random: Random,
    faults: DiskFaults,
    capacity: u64,
    depth: usize,
    durable: BTreeMap<Place, Sector>,
    /// In the order in which they were performed.
    loose: Vec<Loose>,
    waiting: Vec<Waiting>,
    writes: u64,
}

impl SimulatedDisk {
    /// An empty file that takes this many bytes and requests at once.
    #[must_use]
    pub fn new(seed: u64, faults: DiskFaults, capacity: u64, depth: usize) -> Self {
        Self {
            random: Random::new(seed ^ 0xD15C),
            faults,
            capacity,
            depth,
            durable: BTreeMap::new(),
            loose: Vec::new(),
            waiting: Vec::new(),
            writes: 0,
        }
    }

    fn happens(&mut self, often: u64) -> bool {
        often > 0 && self.random.one_in(often)
    }

    /// The power fails: of what was not synced each sector survives or not, in any order. Requests
    /// that wait have no completion.
    pub fn crash(&mut self) {
        for Waiting { request, .. } in std::mem::take(&mut self.waiting) {
            if let DiskWork::Write { at, buffer } = &request.work
                && self.random.one_in(2)
            {
                self.write(*at, buffer.bytes(), usize::MAX);
            }
        }
        let mut loose = std::mem::take(&mut self.loose);
        // In some crashes most is lost, in others little.
        let often = self.random.of(&[1, 2, 2, 8]);
        while !loose.is_empty() {
            let one = loose.swap_remove(self.random.place(loose.len()));
            if self.random.one_in(often) {
                self.durable.insert(one.place, one.sector);
            }
        }
    }

    /// Writes the first sectors of some bytes.
    fn write(&mut self, at: u64, bytes: &[u8], sectors: usize) {
        self.writes += 1;
        let places = at / SECTOR_BYTES as u64..;
        let (all, _) = bytes.as_chunks::<SECTOR_BYTES>();
        for (sector, place) in all.iter().take(sectors).zip(places) {
            self.loose.push(Loose {
                write: self.writes,
                place,
                sector: *sector,
            });
        }
    }

    /// What a sector holds; `None` behind the end of the file.
    fn sector(&self, place: Place) -> Option<Sector> {
        let loose = self.loose.iter().rev().find(|one| one.place == place);
        if let Some(one) = loose {
            return Some(one.sector);
        }
        if let Some(sector) = self.durable.get(&place) {
            return Some(*sector);
        }
        let is_behind = |other: &Place| *other > place;
        let has_more = self.durable.keys().next_back().is_some_and(is_behind)
            || self.loose.iter().any(|one| is_behind(&one.place));
        // A hole.
        has_more.then_some([0; SECTOR_BYTES])
    }

    fn perform(&mut self, work: &mut DiskWork, covers: u64) -> Result<(), DiskError> {
        let range = work.range();
        let fails = self.happens(self.faults.fail);
        match work {
            DiskWork::Write { at, buffer } => {
                let (mut at, bytes) = (*at, buffer.bytes());
                let end = at.saturating_add(bytes.len() as u64);
                if range.is_some() && end > self.capacity {
                    return Err(DiskError::Full);
                }
                let sectors = bytes.len() / SECTOR_BYTES;
                if fails {
                    let performed = self.random.place(sectors + 1);
                    self.write(at, bytes, performed);
                    return Err(DiskError::Io { errno: EIO });
                }
                if self.happens(self.faults.misdirect) {
                    let blocks = (self.capacity - bytes.len() as u64) / bytes.len() as u64 + 1;
                    at = self.random.below(blocks) * bytes.len() as u64;
                }
                self.write(at, bytes, sectors);
                Ok(())
            }
            _ if fails => Err(DiskError::Io { errno: EIO }),
            DiskWork::Read { at, buffer } => {
                let first = *at / SECTOR_BYTES as u64;
                let flips = self.happens(self.faults.flip);
                let (all, _) = buffer.bytes_mut().as_chunks_mut::<SECTOR_BYTES>();
                let count = all.len();
                let mut read = 0;
                for (sector, place) in all.iter_mut().zip(first..) {
                    let Some(held) = self.sector(place) else {
                        break;
                    };
                    *sector = held;
                    read += SECTOR_BYTES;
                }
                if flips {
                    let pick = self.random.place(count * SECTOR_BYTES);
                    buffer.bytes_mut()[pick] ^= 1 << self.random.below(8);
                }
                match read == count * SECTOR_BYTES {
                    true => Ok(()),
                    false => Err(DiskError::Short { bytes: read }),
                }
            }
            DiskWork::Sync => {
                let (durable, loose): (Vec<_>, Vec<_>) = std::mem::take(&mut self.loose)
                    .into_iter()
                    .partition(|one| one.write <= covers);
                self.loose = loose;
                let settled = durable.into_iter().map(|one| (one.place, one.sector));
                self.durable.extend(settled);
                Ok(())
            }
        }
    }
}

impl Disk for SimulatedDisk {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn room(&self) -> usize {
        self.depth - self.waiting.len()
    }

    fn submit(&mut self, request: DiskRequest) -> Result<(), DiskRefused> {
        if let Err(error) = request.work.check() {
            return Err(DiskRefused::Wrong(request, error));
        }
        if self.room() == 0 {
            return Err(DiskRefused::Busy(request));
        }
        let covers = self.writes;
        self.waiting.push(Waiting { request, covers });
        Ok(())
    }

    fn poll(&mut self, each: &mut dyn FnMut(DiskCompletion)) -> usize {
        let mut count = 0;
        for _ in 0..self.waiting.len() {
            if self.happens(self.faults.delay) {
                continue;
            }
            let place = self.random.place(self.waiting.len());
            let Waiting { request, covers } = self.waiting.swap_remove(place);
            let DiskRequest { token, mut work } = request;
            let result = self.perform(&mut work, covers);
            each(DiskCompletion {
                token,
                result,
                buffer: work.into_buffer(),
            });
            count += 1;
        }
        count
    }
}
