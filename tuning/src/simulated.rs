//! What the calling thread sees in place of the machine: a time and random bytes that come from a
//! seed. Only in builds with the feature `simulation`.
//!
//! A thread that has not entered a world sees the machine.
//!
//! - I1: the time changes only by [`advance`], and two worlds with one seed draw equal bytes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// A part of a keystream: shard, sequence and place in the page.
type Keystream = (u16, u64, usize);

/// A world of one thread.
#[derive(Clone, Copy)]
struct World {
    now_ns: u64,
    /// The system's clock less the monotonic one.
    system_ahead_ns: u64,
    random: u64,
}

thread_local! {
    static WORLD: Cell<Option<World>> = const { Cell::new(None) };
    /// By the number of a request, the version that it drew and does not answer.
    static VERSIONS: RefCell<BTreeMap<u64, u64>> = const { RefCell::new(BTreeMap::new()) };
    /// What was encrypted with which part of a keystream, as digests.
    static KEYSTREAMS: RefCell<BTreeMap<Keystream, u64>> = const { RefCell::new(BTreeMap::new()) };
    /// Names of what was reached.
    static REACHED: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
    /// Whose memory is being allocated.
    static OWNER: Cell<u8> = const { Cell::new(0) };
    #[cfg(feature = "mutations")]
    static MUTATION: Cell<&'static str> = const { Cell::new("") };
}

/// Leaves the world when it is dropped.
#[derive(Debug)]
pub struct Inside(());

impl Drop for Inside {
    fn drop(&mut self) {
        WORLD.set(None);
    }
}

/// Ends the ownership of what is allocated when it is dropped.
#[derive(Debug)]
pub struct Owning(u8);

impl Drop for Owning {
    fn drop(&mut self) {
        OWNER.set(self.0);
    }
}

/// What the thread allocates from now on is this owner's; 0 is the simulation itself.
#[must_use]
pub fn own(owner: u8) -> Owning {
    Owning(OWNER.replace(owner))
}

/// Whose memory the thread allocates.
#[inline]
#[must_use]
pub fn owner() -> u8 {
    OWNER.get()
}

/// Enters a world on the calling thread, at a time since 1970.
#[must_use]
pub fn enter(seed: u64, system_ns: u64) -> Inside {
    let world = World {
        now_ns: 1,
        system_ahead_ns: system_ns,
        random: seed,
    };
    WORLD.set(Some(world));
    VERSIONS.take();
    KEYSTREAMS.take();
    Inside(())
}

fn change(change: impl FnOnce(&mut World)) {
    WORLD.set(WORLD.get().map(|mut world| {
        change(&mut world);
        world
    }));
}

/// Lets time pass.
pub fn advance(by_ns: u64) {
    change(|world| world.now_ns += by_ns);
}

/// Sets the system's clock forwards, or back if `by_ns` is negative. The monotonic one goes on.
pub fn step_system_clock(by_ns: i64) {
    change(|world| world.system_ahead_ns = world.system_ahead_ns.saturating_add_signed(by_ns));
}

/// The monotonic time; `None` outside a world.
#[inline]
#[must_use]
pub fn now_ns() -> Option<u64> {
    WORLD.get().map(|world| world.now_ns)
}

pub(crate) fn system_ns() -> Option<u64> {
    WORLD
        .get()
        .map(|world| world.now_ns + world.system_ahead_ns)
}

/// Fills a buffer from the world's seed; false outside a world.
pub(crate) fn entropy(bytes: &mut [u8]) -> bool {
    let Some(mut world) = WORLD.get() else {
        return false;
    };
    for chunk in bytes.chunks_mut(8) {
        world.random = world.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = world.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        chunk.copy_from_slice(&mixed.to_le_bytes()[..chunk.len()]);
    }
    WORLD.set(Some(world));
    true
}

/// Notes the version that a request has drawn and that its answer does not name.
pub fn note_version(request: u64, version: u64) {
    if now_ns().is_some() {
        let _own = own(0);
        VERSIONS.with_borrow_mut(|versions| versions.insert(request, version));
    }
}

/// Takes the version that a request has drawn.
#[must_use]
pub fn take_version(request: u64) -> Option<u64> {
    VERSIONS.with_borrow_mut(|versions| versions.remove(&request))
}

/// Notes that a part of a keystream encrypts bytes.
///
/// # Panics
/// It has encrypted other bytes before.
pub fn note_keystream(part: Keystream, bytes: &[u8]) {
    if now_ns().is_none() {
        return;
    }
    let (words, rest) = bytes.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let rest = rest.iter().map(|&byte| u64::from(byte));
    let digest = words.chain(rest).fold(bytes.len() as u64, |digest, word| {
        (digest ^ word)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29)
    });
    let _own = own(0);
    let before = KEYSTREAMS.with_borrow_mut(|known| known.insert(part, digest));
    assert!(
        before.is_none_or(|before| before == digest),
        "a keystream encrypts twice: {part:?}"
    );
}

/// Counts that something was reached, for a report of coverage.
pub fn reached(what: &'static str) {
    let _own = own(0);
    REACHED.with_borrow_mut(|reached| *reached.entry(what).or_default() += 1);
}

/// How often something was reached.
#[must_use]
pub fn count_reached(what: &str) -> u64 {
    REACHED.with_borrow(|reached| reached.get(what).copied().unwrap_or(0))
}

/// Takes what was reached, with how often.
pub fn take_reached() -> BTreeMap<&'static str, u64> {
    REACHED.take()
}

/// Plants the fault of a name on the calling thread; an empty name plants none.
#[cfg(feature = "mutations")]
pub fn plant(name: &'static str) {
    MUTATION.set(name);
}

/// True if the fault of this name is planted.
#[cfg(feature = "mutations")]
#[must_use]
pub fn is_planted(name: &str) -> bool {
    MUTATION.get() == name
}

#[cfg(test)]
mod tests {
    use crate::{Clock, entropy, system_ns};

    #[test]
    fn a_world_has_a_time_and_random_bytes_of_its_own() {
        let draw = || {
            let _inside = super::enter(7, 1_000_000);
            let clock = Clock::new();
            let (before_ns, raw) = (clock.now_ns(), clock.raw());
            super::advance(5);
            assert_eq!(clock.now_ns(), before_ns + 5);
            assert_eq!(clock.delta_ns(raw, clock.raw()), 5);
            assert_eq!(system_ns(), 1_000_006);
            super::step_system_clock(-6);
            assert_eq!(system_ns(), 1_000_000);
            let mut bytes = [0; 21];
            entropy(&mut bytes).expect("random bytes");
            bytes
        };
        assert_eq!(draw(), draw());
        assert_eq!(super::now_ns(), None);
    }
}
