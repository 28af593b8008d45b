//! What an input reaches: the counters and comparisons that LLVM's coverage pass adds to a crate.
//!
//! `cargo xtask fuzz` builds with that pass all crates of the workspace but this one, and this one
//! with `farcore_coverage`. Every other build has none of it, and a search is blind. The pass and
//! its functions: <https://clang.llvm.org/docs/SanitizerCoverage.html>.

/// Classes of a counter, one bit each: 1, 2, 3, 4 to 7, 8 to 15, 16 to 31, 32 to 127, more.
fn class(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..8 => 8,
        8..16 => 16,
        16..32 => 32,
        32..128 => 64,
        128.. => 128,
    }
}

#[cfg(farcore_coverage)]
#[allow(unsafe_code)] // symbols that the pass calls, and counters that it owns
mod sections {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

    /// The counters of each part of the program.
    static COUNTERS: Mutex<Vec<&'static [AtomicU8]>> = Mutex::new(Vec::new());
    const COMPARED: usize = 256;
    /// Operands of the latest comparisons that failed, and their bytes.
    static FOUND: [AtomicU64; COMPARED] = [const { AtomicU64::new(0) }; COMPARED];
    static WANTED: [AtomicU64; COMPARED] = [const { AtomicU64::new(0) }; COMPARED];
    static WIDTH: [AtomicU8; COMPARED] = [const { AtomicU8::new(0) }; COMPARED];
    static NEXT: AtomicUsize = AtomicUsize::new(0);

    /// Called before `main`, once a part.
    ///
    /// # Safety
    /// Counters lie from `start` to `stop` as long as the program runs.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __sanitizer_cov_8bit_counters_init(
        start: *const AtomicU8,
        stop: *const AtomicU8,
    ) {
        let count = stop as usize - start as usize;
        // SAFETY: by this function's contract; an atomic byte lies as a byte does.
        let counters = unsafe { std::slice::from_raw_parts(start, count) };
        if let Ok(mut all) = COUNTERS.lock() {
            let is_known = all.iter().any(|known| known.as_ptr() == start);
            if count > 0 && !is_known {
                all.push(counters);
            }
        }
    }

    fn note(found: u64, wanted: u64, width: u8) {
        if found != wanted {
            let at = NEXT.fetch_add(1, Relaxed) % COMPARED;
            FOUND[at].store(found, Relaxed);
            WANTED[at].store(wanted, Relaxed);
            WIDTH[at].store(width, Relaxed);
        }
    }

    macro_rules! comparisons {
        ($($name:ident $constant:ident $type:ty;)*) => {$(
            #[unsafe(no_mangle)]
            extern "C" fn $name(one: $type, other: $type) {
                note(u64::from(one), u64::from(other), size_of::<$type>() as u8);
            }
            #[unsafe(no_mangle)]
            extern "C" fn $constant(constant: $type, other: $type) {
                note(u64::from(other), u64::from(constant), size_of::<$type>() as u8);
            }
        )*};
    }
    comparisons! {
        __sanitizer_cov_trace_cmp1 __sanitizer_cov_trace_const_cmp1 u8;
        __sanitizer_cov_trace_cmp2 __sanitizer_cov_trace_const_cmp2 u16;
        __sanitizer_cov_trace_cmp4 __sanitizer_cov_trace_const_cmp4 u32;
        __sanitizer_cov_trace_cmp8 __sanitizer_cov_trace_const_cmp8 u64;
    }

    /// A switch: the number of cases, the bits of its value, the cases.
    ///
    /// # Safety
    /// `cases` has two numbers and as many as the first says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __sanitizer_cov_trace_switch(value: u64, cases: *const u64) {
        // SAFETY: by this function's contract.
        let (count, bits) = unsafe { (*cases, *cases.add(1)) };
        for case in 0..count.min(16) as usize {
            // SAFETY: as above.
            note(
                value,
                unsafe { *cases.add(2 + case) },
                (bits / 8).clamp(1, 8) as u8,
            );
        }
    }

    #[unsafe(no_mangle)]
    extern "C" fn __sanitizer_cov_trace_pc_indir(_: usize) {}
    #[unsafe(no_mangle)]
    extern "C" fn __sanitizer_cov_pcs_init(_: usize, _: usize) {}

    pub(crate) fn compared(random: u64) -> Option<(u64, u64, usize)> {
        let at = usize::try_from(random).ok()? % COMPARED.min(NEXT.load(Relaxed).max(1));
        let width = usize::from(WIDTH[at].load(Relaxed));
        (width > 0).then(|| (FOUND[at].load(Relaxed), WANTED[at].load(Relaxed), width))
    }

    /// Visits every counter with its number, and clears it.
    pub(crate) fn take(mut visit: impl FnMut(usize, u8)) {
        let Ok(all) = COUNTERS.lock() else { return };
        let counters = all.iter().flat_map(|counters| counters.iter());
        for (number, counter) in counters.enumerate() {
            let count = counter.load(Relaxed);
            if count != 0 {
                counter.store(0, Relaxed);
                visit(number, count);
            }
        }
    }
}

#[cfg(not(farcore_coverage))]
mod sections {
    pub(crate) fn compared(_: u64) -> Option<(u64, u64, usize)> {
        None
    }

    pub(crate) fn take(_: impl FnMut(usize, u8)) {}
}

pub(crate) use sections::compared;

/// All that was reached so far.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    classes: Vec<u8>,
}

impl Reached {
    /// Forgets what the counters have.
    pub(crate) fn clear() {
        sections::take(|_, _| {});
    }

    /// Adds what the counters have; returns how many places or classes were new.
    pub(crate) fn add(&mut self) -> usize {
        self.add_as(class)
    }

    /// As [`Reached::add`], and a place is reached however often.
    pub(crate) fn add_places(&mut self) -> usize {
        self.add_as(|count| u8::from(count > 0))
    }

    fn add_as(&mut self, class: impl Fn(u8) -> u8) -> usize {
        let mut new = 0;
        sections::take(|number, count| {
            if self.classes.len() <= number {
                self.classes.resize(number + 1, 0);
            }
            let class = class(count);
            new += usize::from(self.classes[number] & class == 0);
            self.classes[number] |= class;
        });
        new
    }

    /// Places that were reached.
    pub(crate) fn places(&self) -> usize {
        self.classes.iter().filter(|&&classes| classes != 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::class;

    #[test]
    fn classes_are_bits_in_the_order_of_counts() {
        let classes: Vec<_> = (0..=255).map(class).collect();
        assert!(classes.is_sorted());
        assert_eq!(classes.iter().fold(0, |all, class| all | class), u8::MAX);
    }
}
