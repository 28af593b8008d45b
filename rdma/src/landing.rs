//! The pool of landing buffers: the registered memory that READs land in.
//!
//! ```text
//! | 8 KiB slab | 8 KiB slab | ... | large area: runs of 8 KiB grains |
//! ```
//!
//! A slab serves one class (64 B to 8 KiB, powers of two) at a time and returns to the pool when it
//! is wholly free. A longer buffer is the first free run of adjacent grains. The pool deals in
//! offsets and owns no memory. Nothing is allocated after construction. Cost: constant up to 8 KiB;
//! beyond, a scan of one bit per grain of the large area.
//!
//! Limit: a mix of long and short runs fragments the large area. A caller that needs a long run
//! must stop requesting short ones until the area has drained.

const SLAB_BYTES: u32 = 8 << 10;
const CLASS_BITS_MIN: u32 = 6;
const CLASSES: u32 = 8;
const NONE: u32 = u32::MAX;

const _: () = assert!(1 << (CLASS_BITS_MIN + CLASSES - 1) == SLAB_BYTES);

/// The layout of a pool's area.
#[derive(Clone, Copy, Debug)]
pub struct LandingOptions {
    /// The area's offset in its region.
    pub base: u64,
    /// The area's length in bytes. The part that is not the large area is divided into slabs.
    pub bytes: u64,
    /// Bytes of the large area, which is also the longest buffer: whole grains of 8 KiB, and at
    /// most `bytes`.
    pub large_bytes: u64,
}

/// One buffer. It is freed by [`LandingPool::free`], which consumes it, so it cannot be freed
/// twice.
///
/// ```compile_fail,E0382
/// # use farcore_rdma::{LandingOptions, LandingPool};
/// # let options = LandingOptions { base: 0, bytes: 8192, large_bytes: 0 };
/// let mut pool = LandingPool::new(options);
/// let landing = pool.allocate(100).expect("the pool is empty");
/// pool.free(landing);
/// pool.free(landing);
/// ```
#[derive(Debug)]
#[must_use = "a dropped buffer leaks from its pool"]
pub struct Landing {
    offset: u64,
    bytes: u32,
    slab: u32,
}

impl Landing {
    /// Its offset in the region.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length, which may exceed the requested one.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }
}

#[derive(Clone, Copy, Debug)]
struct Slab {
    class: u8,
    used: u16,
    /// One bit per free buffer: at most 128. Two words take fewer instructions than one of 128
    /// bits.
    free: [u64; 2],
    next: u32,
    previous: u32,
}

/// Landing buffers of one region.
#[derive(Debug)]
pub struct LandingPool {
    base: u64,
    slabs: Vec<Slab>,
    /// Slabs of each class that have a free buffer, as doubly linked lists.
    partial: [u32; CLASSES as usize],
    free_slabs: Vec<u32>,
    large_start: u64,
    /// Grains of the large area.
    grains: u32,
    /// One bit per grain in use.
    taken: Vec<u64>,
    in_use: u64,
    bytes: u64,
}

impl LandingPool {
    /// A pool over an area.
    #[must_use]
    pub fn new(options: LandingOptions) -> Self {
        let fitting = options.large_bytes.min(options.bytes) / u64::from(SLAB_BYTES);
        let grains = u32::try_from(fitting).unwrap_or(NONE - 1);
        let large = u64::from(grains) * u64::from(SLAB_BYTES);
        let small = options.bytes - large;
        let count = u32::try_from(small / u64::from(SLAB_BYTES)).unwrap_or(NONE - 1);
        let empty = Slab {
            class: 0,
            used: 0,
            free: [0; 2],
            next: NONE,
            previous: NONE,
        };
        let large_start = options.base + u64::from(count) * u64::from(SLAB_BYTES);
        Self {
            base: options.base,
            slabs: vec![empty; count as usize],
            partial: [NONE; CLASSES as usize],
            free_slabs: (0..count).rev().collect(),
            large_start,
            grains,
            taken: vec![0; grains.div_ceil(u64::BITS) as usize],
            in_use: 0,
            bytes: options.bytes,
        }
    }

    /// A buffer of at least `bytes`; `None` if none is free or `bytes` exceeds the longest one.
    #[inline]
    pub fn allocate(&mut self, bytes: u32) -> Option<Landing> {
        let landing = if bytes <= SLAB_BYTES {
            self.small(bytes)
        } else {
            self.large(bytes)
        }?;
        self.in_use += u64::from(landing.bytes);
        Some(landing)
    }

    #[cold]
    fn large(&mut self, bytes: u32) -> Option<Landing> {
        let count = bytes.div_ceil(SLAB_BYTES);
        let first = self.free_run(count)?;
        self.mark_run(first, count, true);
        Some(Landing {
            offset: self.large_start + u64::from(first) * u64::from(SLAB_BYTES),
            bytes: count * SLAB_BYTES,
            slab: NONE,
        })
    }

    #[inline]
    fn is_taken(&self, grain: u32) -> bool {
        self.taken[(grain / u64::BITS) as usize] >> (grain % u64::BITS) & 1 != 0
    }

    /// The first of the first `count` adjacent free grains.
    fn free_run(&self, count: u32) -> Option<u32> {
        let (mut first, mut length) = (0, 0);
        for grain in 0..self.grains {
            if self.is_taken(grain) {
                (first, length) = (grain + 1, 0);
                continue;
            }
            length += 1;
            if length == count {
                return Some(first);
            }
        }
        None
    }

    fn mark_run(&mut self, first: u32, count: u32, taken: bool) {
        for grain in first..first + count {
            let bit = 1 << (grain % u64::BITS);
            let word = &mut self.taken[(grain / u64::BITS) as usize];
            debug_assert!(
                (*word & bit != 0) != taken,
                "a grain is taken and freed in turn"
            );
            *word = if taken { *word | bit } else { *word & !bit };
        }
    }

    #[inline]
    fn small(&mut self, bytes: u32) -> Option<Landing> {
        let bits = bytes.max(1).next_power_of_two().ilog2().max(CLASS_BITS_MIN);
        let class = bits - CLASS_BITS_MIN;
        let id = match self.partial[class as usize] {
            NONE => self.open(class)?,
            id => id,
        };
        let slab = &mut self.slabs[id as usize];
        let in_second = slab.free[0] == 0;
        let word = usize::from(in_second);
        let bits_free = slab.free[word];
        let place = u32::from(in_second) * u64::BITS + bits_free.trailing_zeros();
        slab.free[word] = bits_free & (bits_free - 1);
        slab.used += 1;
        if slab.free == [0; 2] {
            self.unlink(id);
        }
        let offset = self.base + u64::from(id) * u64::from(SLAB_BYTES) + (u64::from(place) << bits);
        Some(Landing {
            offset,
            bytes: 1 << bits,
            slab: id,
        })
    }

    #[inline(never)]
    fn open(&mut self, class: u32) -> Option<u32> {
        let id = self.free_slabs.pop()?;
        let count = SLAB_BYTES >> (CLASS_BITS_MIN + class);
        let slab = &mut self.slabs[id as usize];
        slab.class = u8::try_from(class).ok()?;
        slab.used = 0;
        slab.free = match count {
            128 => [u64::MAX; 2],
            64 => [u64::MAX, 0],
            count => [(1 << count) - 1, 0],
        };
        self.link(id);
        Some(id)
    }

    fn link(&mut self, id: u32) {
        let class = self.slabs[id as usize].class as usize;
        let next = self.partial[class];
        self.slabs[id as usize].next = next;
        self.slabs[id as usize].previous = NONE;
        if next != NONE {
            self.slabs[next as usize].previous = id;
        }
        self.partial[class] = id;
    }

    fn unlink(&mut self, id: u32) {
        let Slab {
            class,
            next,
            previous,
            ..
        } = self.slabs[id as usize];
        if next != NONE {
            self.slabs[next as usize].previous = previous;
        }
        if previous == NONE {
            self.partial[class as usize] = next;
        } else {
            self.slabs[previous as usize].next = next;
        }
    }

    /// Frees a buffer. No work request may name it any more.
    pub fn free(&mut self, landing: Landing) {
        self.in_use -= u64::from(landing.bytes);
        if landing.slab == NONE {
            let first = (landing.offset - self.large_start) / u64::from(SLAB_BYTES);
            let first = u32::try_from(first).unwrap_or(NONE);
            return self.mark_run(first, landing.bytes / SLAB_BYTES, false);
        }
        let start = self.base + u64::from(landing.slab) * u64::from(SLAB_BYTES);
        let place = (landing.offset - start) >> landing.bytes.trailing_zeros();
        let slab = &mut self.slabs[landing.slab as usize];
        let was_full = slab.free == [0; 2];
        let (word, bit) = ((place / 64 % 2) as usize, 1 << (place % 64));
        debug_assert!(
            slab.free[word] & bit == 0,
            "a landing buffer was freed twice"
        );
        slab.free[word] |= bit;
        slab.used -= 1;
        let empty = slab.used == 0;
        match (was_full, empty) {
            (true, false) => self.link(landing.slab),
            (true, true) => self.free_slabs.push(landing.slab),
            (false, true) => {
                self.unlink(landing.slab);
                self.free_slabs.push(landing.slab);
            }
            (false, false) => {}
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn in_use_bytes(&self) -> u64 {
        self.in_use
    }

    /// Bytes of the whole area.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pool() -> LandingPool {
        LandingPool::new(LandingOptions {
            base: 4096,
            bytes: (16 << 13) + 2 * 65536,
            large_bytes: 2 * 65536,
        })
    }

    proptest! {
        #[test]
        fn buffers_never_overlap_and_none_is_lost(acts in prop::collection::vec((any::<bool>(), 0u32..70_000, any::<prop::sample::Index>()), 1..400)) {
            let mut pool = pool();
            let mut held: Vec<Landing> = Vec::new();
            for (take, bytes, which) in acts {
                let bytes = if bytes % 3 == 0 { bytes } else { bytes % 500 };
                if take {
                    if let Some(landing) = pool.allocate(bytes) {
                        prop_assert!(landing.bytes() >= bytes);
                        prop_assert!(landing.offset() >= 4096 && landing.offset() + u64::from(landing.bytes()) <= 4096 + pool.bytes());
                        for other in &held {
                            let apart = landing.offset() + u64::from(landing.bytes()) <= other.offset()
                                || other.offset() + u64::from(other.bytes()) <= landing.offset();
                            prop_assert!(apart);
                        }
                        held.push(landing);
                    }
                } else if !held.is_empty() {
                    let landing = held.swap_remove(which.index(held.len()));
                    pool.free(landing);
                }
                prop_assert_eq!(pool.in_use_bytes(), held.iter().map(|l| u64::from(l.bytes())).sum::<u64>());
            }
            for landing in held {
                pool.free(landing);
            }
            // All buffers are freed: every slab can serve the largest class again, and one run can
            // take the whole large area.
            let all: Vec<_> = std::iter::from_fn(|| pool.allocate(8192)).collect();
            prop_assert_eq!(all.len(), 16);
            prop_assert_eq!(std::iter::from_fn(|| pool.allocate(2 * 65536)).count(), 1);
        }
    }

    #[test]
    fn exhaustion_is_none() {
        let mut pool = pool();
        assert!(pool.allocate(2 * 65_536 + 1).is_none());
        let held: Vec<_> = std::iter::from_fn(|| pool.allocate(64)).collect();
        assert_eq!(held.len(), 16 * 128);
        assert!(pool.allocate(1).is_none());
        for landing in held {
            pool.free(landing);
        }
        assert_eq!(pool.in_use_bytes(), 0);
        assert_eq!(std::iter::from_fn(|| pool.allocate(4096)).count(), 32);
    }

    #[test]
    fn long_buffers_take_no_more_grains_than_they_need() {
        let mut pool = pool();
        let held: Vec<_> = std::iter::from_fn(|| pool.allocate(8193)).collect();
        assert_eq!(held.len(), 8, "two grains each, of sixteen");
        for landing in held {
            assert_eq!(landing.bytes(), 16 << 10);
            pool.free(landing);
        }
        assert_eq!(pool.in_use_bytes(), 0);
    }

    #[test]
    fn the_large_area_stays_inside_the_pool() {
        let mut pool = LandingPool::new(LandingOptions {
            base: 0,
            bytes: 3 * 65536 - 1,
            large_bytes: 5 * 65536,
        });
        let held: Vec<_> = std::iter::from_fn(|| pool.allocate(65536)).collect();
        assert_eq!(held.len(), 2);
        for landing in held {
            assert!(landing.offset() + u64::from(landing.bytes()) <= pool.bytes());
            pool.free(landing);
        }
    }
}
