//! One input tried: what it raised, what it held, and the smallest input that fails too.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::memory::peak_of;

/// Inputs that are tried to make one smaller.
const SHRINKS_MAX: usize = 4000;

/// What an input may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// Bytes that may be held whatever the input.
    pub(crate) base_bytes: usize,
    /// Bytes more for each of the input.
    pub(crate) bytes_each: usize,
    /// Only a search judges time: a test does not.
    pub(crate) time: Option<Duration>,
}

thread_local! {
    /// Panics of this thread are not printed.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    /// What the last of them said.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

fn make_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IS_QUIET.get() {
                SAID.set(info.to_string());
            } else {
                before(info);
            }
        }));
    });
    IS_QUIET.set(true);
}

/// Why an input fails; `None` if it does not.
pub(crate) fn failure(property: &impl Fn(&[u8]), bound: &Bound, input: &[u8]) -> Option<String> {
    make_quiet();
    let start = Instant::now();
    let (result, bytes) = peak_of(|| panic::catch_unwind(AssertUnwindSafe(|| property(input))));
    IS_QUIET.set(false);
    if result.is_err() {
        return Some(SAID.take());
    }
    let most = bound.base_bytes + bound.bytes_each * input.len();
    if bytes > most {
        let length = input.len();
        return Some(format!(
            "{bytes} bytes were held for an input of {length}: {most} at most"
        ));
    }
    let taken = start.elapsed();
    let is_slow = bound.time.is_some_and(|most| taken > most);
    is_slow.then(|| format!("it took {taken:?}"))
}

/// A smaller input that fails too, by taking away parts and by zeros.
pub(crate) fn shrink(property: &impl Fn(&[u8]), bound: &Bound, input: &[u8]) -> Vec<u8> {
    let (mut best, mut tries) = (input.to_vec(), 0);
    let mut fails = |bytes: &[u8]| {
        tries += 1;
        tries <= SHRINKS_MAX && failure(property, bound, bytes).is_some()
    };
    let mut part = best.len().next_power_of_two();
    while part > 0 {
        let mut at = 0;
        while at < best.len() {
            let mut less = best.clone();
            less.drain(at..(at + part).min(best.len()));
            if fails(&less) {
                best = less;
            } else {
                at += part;
            }
        }
        part /= 2;
    }
    for at in 0..best.len() {
        let mut plain = best.clone();
        if plain[at] != 0 {
            plain[at] = 0;
            if fails(&plain) {
                best = plain;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::{Bound, failure, shrink};

    const BOUND: Bound = Bound {
        base_bytes: 1000,
        bytes_each: 1,
        time: None,
    };

    #[test]
    fn an_input_that_fails_is_made_smaller() {
        let property = |input: &[u8]| assert!(!input.contains(&7), "a seven");
        let input: Vec<_> = (0..100).collect();
        let said = failure(&property, &BOUND, &input).expect("it fails");
        assert!(
            said.contains("trial.rs") && said.contains("a seven"),
            "{said}"
        );
        assert_eq!(failure(&property, &BOUND, b"abc"), None);
        assert_eq!(shrink(&property, &BOUND, &input), [7]);
    }

    #[test]
    fn memory_beyond_the_bound_fails() {
        let property = |input: &[u8]| drop(vec![0u8; input.len() * 100]);
        assert_eq!(failure(&property, &BOUND, &[0; 9]), None);
        assert!(failure(&property, &BOUND, &[0; 50]).is_some());
    }
}
