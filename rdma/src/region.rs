//! A region: memory mapped for the fabric, aligned to huge pages, optionally locked and prefaulted.
//!
//! Owns the mapping. Only raw pointers lead into it.
//!
//! - I1: the mapping lives exactly as long as its `Region`.
//! - I2: locking never brings pages in; only `prefault` and use do.
//!
//! Limits: base pages of 4 KiB, huge pages of 2 MiB. Source: mmap(2), madvise(2), mlock2(2),
//! mincore(2), mbind(2), proc_pid_smaps(5), the kernel's hugetlbpage.rst.

#![allow(unsafe_code)] // maps, advises and unmaps memory

use std::ptr::NonNull;
use std::{fs, io, ptr, thread};

const HUGE_PAGE_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4096;
/// Memory is touched in slices of this length. The kernel lets no other thread of the process map
/// or unmap memory until a slice is present: some milliseconds, and seconds for a whole region.
pub(crate) const TOUCHED_BYTES: usize = 4 << 20;
/// Regions shorter than this are prefaulted by one thread.
const PARALLEL_BYTES: usize = 64 << 20;

/// Whether a region's pages are locked in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lock {
    /// Not locked: the kernel may move pages out.
    Off,
    /// Locked if the limit on locked memory allows it.
    #[default]
    Try,
    /// Locked; if the limit does not allow it, mapping fails.
    Require,
}

/// The kind of pages that a region has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageKind {
    /// 4 KiB.
    Base,
    /// 2 MiB, where the kernel has them.
    Huge,
    /// 2 MiB, from those that the machine has reserved.
    Reserved,
}

/// Settings of a region.
#[derive(Clone, Copy, Debug)]
pub struct RegionOptions {
    /// Length in bytes, rounded up to a page.
    pub bytes: usize,
    /// Request huge pages; random access is several times faster on them.
    pub huge_pages: bool,
    /// Whether to lock it in memory.
    pub lock: Lock,
    /// Prefault all pages now, so that no later access waits for the kernel.
    pub prefault: bool,
}

/// Why a region could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The kernel provided no memory.
    #[error("cannot map {bytes} bytes: {source}; lower the size or free memory")]
    Map {
        /// The requested bytes.
        bytes: usize,
        /// The system's error.
        source: io::Error,
    },
    /// The limit on locked memory is too low.
    #[error(
        "cannot lock {bytes} bytes: {source}; RLIMIT_MEMLOCK is {limit} bytes: raise it with `ulimit -l`, or do not require locked memory"
    )]
    Lock {
        /// The requested bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: u64,
        /// The system's error.
        source: io::Error,
    },
}

/// Memory that the fabric may read and write. Only raw pointers lead into it; its owner decides
/// what lies where.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    /// The mapping's length: whole huge pages, if they are reserved ones.
    mapped_bytes: usize,
    kind: PageKind,
    locked: bool,
}

// SAFETY: a region is an address range; every access is raw and justifies itself.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a region, all zero.
    ///
    /// # Errors
    /// [`RegionError`] names the limit, the value and the remedy.
    pub fn map(options: &RegionOptions) -> Result<Self, RegionError> {
        Self::map_on(options, None)
    }

    /// Maps a region, all zero, on a NUMA node as far as it has free memory.
    ///
    /// # Errors
    /// As [`Region::map`].
    pub fn map_on(options: &RegionOptions, node: Option<u32>) -> Result<Self, RegionError> {
        let mut region = match Self::map_reserved(options) {
            Some(region) => region,
            None => Self::map_anonymous(options)?,
        };
        if let Some(node) = node {
            region.prefer(node);
        }
        // SAFETY: advice on our own mapping.
        unsafe {
            let start = region.start.as_ptr().cast();
            libc::madvise(start, region.bytes, libc::MADV_DONTDUMP);
            if options.huge_pages
                && region.kind == PageKind::Base
                && libc::madvise(start, region.bytes, libc::MADV_HUGEPAGE) == 0
            {
                region.kind = PageKind::Huge;
            }
        }
        if options.prefault {
            region.touch();
        }
        region.lock(options.lock)?;
        Ok(region)
    }

    /// Maps huge pages that the machine has reserved, if enough of them are free.
    fn map_reserved(options: &RegionOptions) -> Option<Self> {
        const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
        let bytes = options.bytes.max(1).checked_next_multiple_of(PAGE_BYTES)?;
        let mapped_bytes = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        if !options.huge_pages || bytes < HUGE_PAGE_BYTES {
            return None;
        }
        let free: usize = fs::read_to_string(FREE).ok()?.trim().parse().ok()?;
        if free < mapped_bytes / HUGE_PAGE_BYTES {
            return None;
        }
        // SAFETY: a new private mapping affects no existing memory. The pages are reserved by this
        // call, or it fails.
        let mapped = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return None;
        }
        Some(Self {
            start: NonNull::new(mapped.cast())?,
            bytes,
            mapped_bytes,
            kind: PageKind::Reserved,
            locked: false,
        })
    }

    fn map_anonymous(options: &RegionOptions) -> Result<Self, RegionError> {
        let too_long = || RegionError::Map {
            bytes: options.bytes,
            source: io::Error::from_raw_os_error(libc::ENOMEM),
        };
        let bytes = options
            .bytes
            .max(1)
            .checked_next_multiple_of(PAGE_BYTES)
            .ok_or_else(too_long)?;
        let whole = bytes.checked_add(HUGE_PAGE_BYTES).ok_or_else(too_long)?;
        let failed = || RegionError::Map {
            bytes,
            source: io::Error::last_os_error(),
        };
        // SAFETY: a new private mapping affects no existing memory.
        let mapped = unsafe {
            libc::mmap(
                ptr::null_mut(),
                whole,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(failed());
        }
        let address = mapped as usize;
        let before = address.next_multiple_of(HUGE_PAGE_BYTES) - address;
        let start = mapped.cast::<u8>().wrapping_add(before);
        // SAFETY: trims both ends of the new mapping; `bytes` from an aligned start remain.
        unsafe {
            if before > 0 {
                libc::munmap(mapped, before);
            }
            libc::munmap(start.wrapping_add(bytes).cast(), whole - before - bytes);
        }
        let Some(start) = NonNull::new(start) else {
            return Err(failed());
        };
        Ok(Self {
            start,
            bytes,
            mapped_bytes: bytes,
            kind: PageKind::Base,
            locked: false,
        })
    }

    /// Has its pages come from a NUMA node. Without effect where the kernel has no NUMA; then, and
    /// where the node has no free memory, they come from any.
    fn prefer(&mut self, node: u32) {
        const WORD_BITS: u32 = usize::BITS;
        const PREFERRED: libc::c_int = 1;
        let mut nodes = [0_usize; 16];
        let Some(word) = nodes.get_mut((node / WORD_BITS) as usize) else {
            return;
        };
        *word = 1 << (node % WORD_BITS);
        // SAFETY: a policy for our own mapping; the mask outlives the call and is that long.
        unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.mapped_bytes,
                PREFERRED,
                nodes.as_ptr(),
                nodes.len() * WORD_BITS as usize,
                0,
            );
        }
    }

    /// Bytes of it that lie in huge pages now. Cost: reads the process's list of mappings, which
    /// takes milliseconds.
    #[must_use]
    pub fn huge_bytes(&self) -> u64 {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let start = self.start.as_ptr() as u64;
        huge_bytes_within(&smaps, start, start + self.bytes as u64)
    }

    /// Makes pages present while others use the region; their contents stay.
    ///
    /// # Errors
    /// The system has no memory, or is older than Linux 5.14.
    pub(crate) fn touch_in_use(&self, place: usize, length: usize) -> io::Result<()> {
        assert!(place + length <= self.bytes, "inside the region");
        let start = self.start.as_ptr().wrapping_add(place);
        // SAFETY: populating our own mapping keeps its contents, also while others access them.
        let done = unsafe { libc::madvise(start.cast(), length, libc::MADV_POPULATE_WRITE) };
        if done == 0 {
            return Ok(());
        }
        Err(io::Error::last_os_error())
    }

    /// Makes every page present. A large region is prefaulted by one thread per core.
    fn touch(&self) {
        if self.bytes < PARALLEL_BYTES {
            return self.touch_part(0, self.bytes);
        }
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let share = self
            .bytes
            .div_ceil(threads)
            .next_multiple_of(HUGE_PAGE_BYTES);
        thread::scope(|scope| {
            for place in (0..self.bytes).step_by(share) {
                let length = share.min(self.bytes - place);
                let spawned = thread::Builder::new()
                    .spawn_scoped(scope, move || self.touch_part(place, length));
                if spawned.is_err() {
                    self.touch_part(place, length);
                }
            }
        });
    }

    fn touch_part(&self, place: usize, length: usize) {
        for offset in (0..length).step_by(TOUCHED_BYTES) {
            self.touch_slice(place + offset, TOUCHED_BYTES.min(length - offset));
        }
    }

    fn touch_slice(&self, place: usize, length: usize) {
        let start = self.start.as_ptr().wrapping_add(place);
        // SAFETY: populating our own mapping keeps its contents.
        let done = unsafe { libc::madvise(start.cast(), length, libc::MADV_POPULATE_WRITE) };
        if done != 0 {
            // An old kernel. No other code knows the region yet, so writing a zero to each page
            // changes nothing.
            for page in (0..length).step_by(PAGE_BYTES) {
                // SAFETY: inside the mapping, and still all zero.
                unsafe { start.add(page).write_volatile(0) };
            }
        }
    }

    fn lock(&mut self, lock: Lock) -> Result<(), RegionError> {
        if lock == Lock::Off {
            return Ok(());
        }
        // SAFETY: locks our own mapping; pages are locked as they are touched, none is touched
        // here.
        let done =
            unsafe { libc::mlock2(self.start.as_ptr().cast(), self.bytes, libc::MLOCK_ONFAULT) };
        self.locked = done == 0;
        if done != 0 && lock == Lock::Require {
            let source = io::Error::last_os_error();
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: fills the struct that it receives.
            unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
            return Err(RegionError::Lock {
                bytes: self.bytes,
                limit: limit.rlim_cur,
                source,
            });
        }
        Ok(())
    }

    /// The first byte.
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    #[must_use]
    #[allow(
        clippy::len_without_is_empty,
        reason = "a region has at least one page"
    )]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the kernel accepted the advice to use huge pages.
    #[must_use]
    pub fn page_kind(&self) -> PageKind {
        self.kind
    }

    /// Whether it is locked.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// Bytes that are present in memory now.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        const SLICE_PAGES: usize = 16 << 10;
        let mut present = vec![0u8; SLICE_PAGES];
        let mut resident = 0;
        for place in (0..self.bytes).step_by(SLICE_PAGES * PAGE_BYTES) {
            let length = (SLICE_PAGES * PAGE_BYTES).min(self.bytes - place);
            let start = self.start.as_ptr().wrapping_add(place);
            // SAFETY: reads our own mapping; the vector has a byte for each page of the slice.
            let done = unsafe { libc::mincore(start.cast(), length, present.as_mut_ptr()) };
            if done == 0 {
                let pages = length.div_ceil(PAGE_BYTES);
                resident += present[..pages]
                    .iter()
                    .filter(|&&page| page & 1 == 1)
                    .count();
            }
        }
        (resident * PAGE_BYTES) as u64
    }
}

/// Bytes in huge pages between two addresses, by the kernel's list of a process's mappings. The
/// kernel says how many a mapping has, not where: those of one that reaches beyond count as far as
/// they fit.
fn huge_bytes_within(smaps: &str, start: u64, end: u64) -> u64 {
    let (mut sum, mut overlap) = (0, 0);
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let bounds = first.split_once('-');
        if let Some((from, to)) = bounds.and_then(|(from, to)| number(from).zip(number(to))) {
            overlap = to.min(end).saturating_sub(from.max(start));
            continue;
        }
        if matches!(first, "AnonHugePages:" | "Private_Hugetlb:") {
            let kibibytes = words.next().and_then(|text| text.parse::<u64>().ok());
            let bytes = kibibytes.unwrap_or(0).saturating_mul(1 << 10).min(overlap);
            sum += bytes;
            overlap -= bytes;
        }
    }
    sum
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: unmaps what `map` mapped; an owner of a raw pointer into it also kept the region.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(bytes: usize, prefault: bool) -> RegionOptions {
        RegionOptions {
            bytes,
            huge_pages: false,
            lock: Lock::Off,
            prefault,
        }
    }

    #[test]
    fn huge_pages_are_counted_within_the_region() {
        let smaps = "1000-5000 rw-p 00000000 00:00 0 \nSize: 16 kB\nAnonHugePages:         8 kB\n\
            5000-9000 rw-p 00000000 00:00 0 \nAnonHugePages:     0 kB\nPrivate_Hugetlb:      12 kB\n\
            9000-a000 rw-p 00000000 00:00 0  [anon: x]\nAnonHugePages:   4 kB\n";
        assert_eq!(huge_bytes_within(smaps, 0x1000, 0x5000), 8 << 10);
        assert_eq!(huge_bytes_within(smaps, 0x4000, 0x9000), (4 + 12) << 10);
        assert_eq!(huge_bytes_within(smaps, 0x9000, 0xb000), 4 << 10);
        assert_eq!(huge_bytes_within("garbage\n-\nAnonHugePages: x", 0, 9), 0);
    }

    #[test]
    fn a_region_on_a_node_is_as_any_other() {
        let region = Region::map_on(&options(3 << 20, true), Some(0)).unwrap();
        assert_eq!(region.resident_bytes(), 3 << 20);
        // A node that no machine has.
        assert!(Region::map_on(&options(1 << 20, true), Some(5_000)).is_ok());
        assert!(region.huge_bytes() <= 4 << 20);
    }

    #[test]
    fn a_region_is_aligned_and_touched_as_requested() {
        let lazy = Region::map(&options(5 << 20, false)).unwrap();
        assert_eq!(lazy.as_ptr().as_ptr() as usize % HUGE_PAGE_BYTES, 0);
        assert_eq!((lazy.len(), lazy.resident_bytes()), (5 << 20, 0));
        let eager = Region::map(&options(80 << 20, true)).unwrap();
        assert_eq!(eager.resident_bytes(), 80 << 20);
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        let error = Region::map(&options(1 << 60, false)).unwrap_err();
        assert!(
            error.to_string().contains(&(1u64 << 60).to_string()),
            "{error}"
        );
        for bytes in [usize::MAX, usize::MAX - (1 << 20)] {
            assert!(matches!(
                Region::map(&options(bytes, false)),
                Err(RegionError::Map { .. })
            ));
        }
    }

    #[test]
    fn a_locked_region_is_not_brought_in() {
        let wanted = RegionOptions {
            huge_pages: true,
            lock: Lock::Try,
            ..options(1 << 20, false)
        };
        assert_eq!(Region::map(&wanted).unwrap().resident_bytes(), 0);
        assert!(!Region::map(&options(1, true)).unwrap().is_locked());
    }

    #[test]
    fn a_required_lock_holds_or_names_the_limit() {
        let bytes = 1 << 40;
        let wanted = RegionOptions {
            lock: Lock::Require,
            ..options(bytes, false)
        };
        // The outcome depends on the limit and the rights of the user who runs the test.
        match Region::map(&wanted) {
            Ok(region) => assert!(region.is_locked()),
            Err(error) => {
                assert!(matches!(error, RegionError::Lock { bytes: named, .. } if named == bytes));
                assert!(error.to_string().contains("RLIMIT_MEMLOCK"), "{error}");
            }
        }
        let error = RegionError::Lock {
            bytes: 4096,
            limit: 1024,
            source: io::Error::from_raw_os_error(libc::ENOMEM),
        };
        let text = error.to_string();
        for part in ["4096", "RLIMIT_MEMLOCK is 1024", "ulimit -l"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
