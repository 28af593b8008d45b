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
pub(crate) mod store;
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskFaults {
    /// A request waits at a poll although it could be performed.
    pub delay: u64,
    /// A request fails; a write may have been performed in part.
    pub fail: u64,
    /// A write comes to lie elsewhere in the file, and says nothing of it.
    pub misdirect: u64,
    /// A bit of what is read is another one.
    pub flip: u64,
    /// A sector that was written and not synced is dropped when a sync fails.
    pub forget: u64,
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
    /// Bytes of the last sector that are not part of the file.
    ragged: u64,
    /// Requests that have failed, and bytes that were damaged.
    failures: u64,
    damages: u64,
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
            ragged: 0,
            failures: 0,
            damages: 0,
        }
    }

    /// What goes wrong from now on.
    pub(crate) fn set_faults(&mut self, faults: DiskFaults) {
        self.faults = faults;
    }

    /// The bytes that the file may have from now on.
    pub(crate) fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
    }

    /// Requests that have failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// How often something was damaged.
    pub(crate) fn damages(&self) -> u64 {
        self.damages
    }

    /// Bytes of the file.
    pub(crate) fn length(&self) -> u64 {
        let last = self.durable.keys().next_back().copied();
        let loose = self.loose.iter().map(|one| one.place).max();
        let sectors = last.max(loose).map_or(0, |last| last + 1);
        sectors * SECTOR_BYTES as u64 - self.ragged
    }

    /// Has the file hold these bytes, which are durable.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        for (sector, place) in bytes.chunks(SECTOR_BYTES).zip(0..) {
            let mut whole = [0; SECTOR_BYTES];
            whole[..sector.len()].copy_from_slice(sector);
            self.durable.insert(place, whole);
        }
        let rest = bytes.len() % SECTOR_BYTES;
        self.ragged = if rest == 0 {
            0
        } else {
            (SECTOR_BYTES - rest) as u64
        };
    }

    /// Reads from a place on, without a request; how many bytes.
    pub(crate) fn read(&mut self, into: &mut [u8], at: u64) -> usize {
        let rest = self.length().saturating_sub(at);
        let count = into.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < count {
            let place = at + done as u64;
            let within = usize::try_from(place % SECTOR_BYTES as u64).unwrap_or(0);
            let sector = self.sector(place / SECTOR_BYTES as u64);
            let sector = sector.unwrap_or([0; SECTOR_BYTES]);
            let part = (SECTOR_BYTES - within).min(count - done);
            into[done..done + part].copy_from_slice(&sector[within..within + part]);
            done += part;
        }
        if count > 0 && self.happens(self.faults.flip) {
            into[self.random.place(count)] ^= 1 << self.random.below(8);
            self.damages += 1;
        }
        count
    }

    /// Makes all that was written durable.
    pub(crate) fn settle(&mut self) {
        let settled = std::mem::take(&mut self.loose);
        let settled = settled.into_iter().map(|one| (one.place, one.sector));
        self.durable.extend(settled);
    }

    /// Flips a bit of what is durable; false if there is nothing.
    pub(crate) fn damage(&mut self) -> bool {
        let bytes = self.length();
        if bytes == 0 {
            return false;
        }
        let at = self.random.below(bytes);
        let bit = self.random.below(8);
        let sector = self.durable.get_mut(&(at / SECTOR_BYTES as u64));
        let Some(sector) = sector else { return false };
        sector[usize::try_from(at % SECTOR_BYTES as u64).unwrap_or(0)] ^= 1 << bit;
        self.damages += 1;
        true
    }

    /// The process that has the file ends: of its requests each is performed or not.
    pub(crate) fn leave(&mut self) {
        for Waiting { request, covers } in std::mem::take(&mut self.waiting) {
            let mut work = request.work;
            if self.random.one_in(2) {
                let _ = self.perform(&mut work, covers);
            }
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

    /// A sync has failed: what was written may be dropped, and no later sync says so.
    fn forget(&mut self, covers: u64) {
        let (random, forget) = (&mut self.random, self.faults.forget);
        self.loose
            .retain(|one| one.write > covers || forget == 0 || !random.one_in(forget));
        self.failures += 1;
    }

    fn perform(&mut self, work: &mut DiskWork, covers: u64) -> Result<(), DiskError> {
        let range = work.range();
        let fails = self.happens(self.faults.fail);
        match work {
            DiskWork::Write { at, buffer } => {
                let (mut at, bytes) = (*at, buffer.bytes());
                let end = at.saturating_add(bytes.len() as u64);
                if range.is_some() && end > self.capacity {
                    self.failures += 1;
                    return Err(DiskError::Full);
                }
                let sectors = bytes.len() / SECTOR_BYTES;
                if fails {
                    let performed = self.random.place(sectors + 1);
                    self.write(at, bytes, performed);
                    self.failures += 1;
                    return Err(DiskError::Io { errno: EIO });
                }
                if self.happens(self.faults.misdirect) {
                    // Not far behind the end: who reads the file looks at all of it.
                    let length = bytes.len() as u64;
                    let most = self.capacity.min(2 * self.length() + length);
                    let blocks = (most - length) / length + 1;
                    at = self.random.below(blocks) * length;
                    self.damages += 1;
                }
                self.write(at, bytes, sectors);
                Ok(())
            }
            DiskWork::Sync if fails => {
                self.forget(covers);
                Err(DiskError::Io { errno: EIO })
            }
            _ if fails => {
                self.failures += 1;
                Err(DiskError::Io { errno: EIO })
            }
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
                    self.damages += 1;
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
