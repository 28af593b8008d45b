//! The steps by which extents change owners. Clients run them over the fabric, the node on its own
//! memory, and the tests one step at a time, in every order.
//!
//! An extent belongs to the client whose id its owner word holds. The bitmap only narrows the
//! search; it may be wrong for a while.
//!
//! ```text
//!   claim       bitmap word: seen -> seen | run    then each owner word: 0 -> id
//!   free        each owner word: id -> 0           then bitmap word: clear the bits
//!   take back   as free, for all words that hold the id of an owner that is over
//!   pass        owner word: id -> heir's id, for an extent that the heir shares
//!   mend        bitmap word: set bits of owned extents, clear bits that stood without an owner for
//!   two sweeps
//! ```
//!
//! - I1: an owner word changes only 0 -> id (claim) and id -> 0 (by the owner, or by take back once
//!   the owner's connections are closed), and id -> heir's id (by the node, where otherwise it
//!   would be 0). So no extent has two owners, whatever happens to the bitmap. The owner word of a
//!   session that is kept after its lease stays as it is: its client may still resume.
//! - I2: a bit is cleared only by the side that set its owner word to 0, after that, or by a mend.
//!
//! Why a wrong bit does no harm, and does not stay wrong:
//! - *Bit set, no owner.* A claim or free is in progress, or its owner died between the two steps,
//!   or a mend set the bit just as the owner freed. No client claims the extent, so nothing breaks.
//!   The second sweep that sees it clears it.
//! - *A mend clears the bit of a claim in progress* (the claim was slower than a whole sweep
//!   interval, or another claim's bit was seen at the previous sweep). The owner word still
//!   decides: if the slow claim completes first, it owns an extent without a bit; if another client
//!   that saw the clear bit does, the slow claim finds the word taken and goes elsewhere.
//! - *Owner, but bit clear.* From the previous case, or a slow free cleared the bit after a mend
//!   had cleared it and another claim had set it again. Other clients set the bit, find the owner
//!   word taken and leave the bit set, which is right; or a sweep sets it. The owner's own free
//!   works as usual.
//! - *A claim leaves a bit set where it found an owner*, but the owner frees meanwhile: the owner
//!   word was not yet 0 when the claim read it, and the claim had set the bit before, so the free
//!   clears it after.
//! - The mend's swap of the bitmap word fails if any bit of it changed since it read the owner
//!   words. It then retries a bounded number of times: a busy word delays a repair but cannot make
//!   it wrong.
//!
//! So once nothing is in progress, two sweeps after the last take-back every bit is set exactly if
//! its extent is owned.

use super::map::{ExtentRun, OwnerId, WORD_BITS};

/// Attempts to change a bitmap word before a clear or a repair is left to later sweeps.
const ATTEMPTS_MAX: u32 = 256;

/// A word of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Place {
    Bitmap(u32),
    Owner(u32),
}

/// One compare-and-swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Swap {
    pub(crate) place: Place,
    pub(crate) expected: u64,
    pub(crate) desired: u64,
}

impl Swap {
    pub(crate) const NONE: Self = Self {
        place: Place::Bitmap(0),
        expected: 0,
        desired: 0,
    };
}

/// Access to the words of one table.
pub(crate) trait Words {
    type Error;
    /// Reads a word.
    async fn load(&self, place: Place) -> Result<u64, Self::Error>;
    /// Performs all swaps, each atomic alone, in any order. `old` receives the old words and is as
    /// long as `swaps`.
    async fn swap(&self, swaps: &[Swap], old: &mut [u64]) -> Result<(), Self::Error>;
}

/// The outcome of an attempt to claim a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tried {
    /// The owner holds the whole run. The word is roughly the bitmap's current one.
    Claimed(u64),
    /// The bitmap word differed from the one seen; this is the current one. Nothing was changed.
    Conflict(u64),
    /// Some extent has an owner although its bit was clear. The extents already claimed were freed.
    /// The word is as for `Claimed`.
    Refused(u64),
}

/// Attempts to claim a run whose bitmap word was last seen as `seen`, with the run's bits clear.
/// Cost: two round trips.
pub(crate) async fn claim<W: Words>(
    words: &W,
    owner: OwnerId,
    run: ExtentRun,
    seen: u64,
) -> Result<Tried, W::Error> {
    let marked = seen | run.mask();
    let old = swap_one(words, Place::Bitmap(run.word()), seen, marked).await?;
    if old != seen {
        return Ok(Tried::Conflict(old));
    }
    let settled = swap_owners(words, run, run.mask(), 0, owner.get()).await?;
    if settled == run.mask() {
        return Ok(Tried::Claimed(marked));
    }
    let released = swap_owners(words, run, settled, owner.get(), 0).await?;
    let left = clear(words, run.word(), released, marked).await?;
    Ok(Tried::Refused(left))
}

/// The outcome of a free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Freed {
    /// Bits of the extents that belonged to the owner.
    pub(crate) released: u64,
    /// Roughly the bitmap's current word.
    pub(crate) word: u64,
}

/// Frees the extents of a run that belong to the owner. `seen` is a guess at the bitmap word. Cost:
/// two round trips if the guess is right.
pub(crate) async fn free<W: Words>(
    words: &W,
    owner: OwnerId,
    run: ExtentRun,
    seen: u64,
) -> Result<Freed, W::Error> {
    let released = swap_owners(words, run, run.mask(), owner.get(), 0).await?;
    let word = clear(words, run.word(), released, seen).await?;
    Ok(Freed { released, word })
}

/// Passes an extent on to another owner; false if it is not `owner`'s, or a device failed. Its bit
/// stays set.
pub(crate) async fn pass<W: Words>(
    words: &W,
    owner: OwnerId,
    extent: u32,
    heir: OwnerId,
) -> Result<bool, W::Error> {
    let old = swap_one(words, Place::Owner(extent), owner.get(), heir.get()).await?;
    Ok(old == owner.get())
}

/// The outcome of a take-back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TakenBack {
    /// Extents freed.
    pub(crate) freed: u32,
    /// Extents that still hold the owner's id because their words could not be swapped.
    pub(crate) left: u32,
}

/// Frees all extents of a bitmap word that hold `owner`'s id. No other side changes such an owner
/// word, so one that is left was not swapped by a device that failed.
pub(crate) async fn take_back<W: Words>(
    words: &W,
    owner: OwnerId,
    word: u32,
    valid: u64,
) -> Result<TakenBack, W::Error> {
    let mut held = 0;
    for bit in bits(valid) {
        if words.load(Place::Owner(word * WORD_BITS + bit)).await? == owner.get() {
            held |= 1 << bit;
        }
    }
    let Some(run) = ExtentRun::new(word * WORD_BITS, WORD_BITS).filter(|_| held != 0) else {
        return Ok(TakenBack::default());
    };
    let released = swap_owners(words, run, held, owner.get(), 0).await?;
    let seen = words.load(Place::Bitmap(word)).await?;
    clear(words, word, released, seen).await?;
    Ok(TakenBack {
        freed: released.count_ones(),
        left: (held & !released).count_ones(),
    })
}

/// Repairs one bitmap word. Receives the bits that the previous sweep saw without an owner, and
/// returns those seen now.
pub(crate) async fn mend<W: Words>(
    words: &W,
    word: u32,
    valid: u64,
    before: u64,
) -> Result<u64, W::Error> {
    let mut seen = words.load(Place::Bitmap(word)).await?;
    let mut ownerless = 0;
    for _ in 0..ATTEMPTS_MAX {
        let mut owned = 0;
        for bit in bits(valid) {
            if words.load(Place::Owner(word * WORD_BITS + bit)).await? != 0 {
                owned |= 1 << bit;
            }
        }
        ownerless = seen & valid & !owned;
        let stale = ownerless & before;
        let mended = (seen | owned) & !stale;
        if mended == seen {
            return Ok(ownerless);
        }
        let old = swap_one(words, Place::Bitmap(word), seen, mended).await?;
        if old == seen {
            return Ok(ownerless & !stale);
        }
        seen = old;
    }
    Ok(ownerless)
}

/// The set bits of a word, from the lowest.
pub(crate) fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}

async fn swap_one<W: Words>(
    words: &W,
    place: Place,
    expected: u64,
    desired: u64,
) -> Result<u64, W::Error> {
    let mut old = [0];
    let swap = Swap {
        place,
        expected,
        desired,
    };
    words.swap(&[swap], &mut old).await?;
    Ok(old[0])
}

/// Swaps the owner words of `mask` in a run's bitmap word. Returns the bits of the words that had
/// the expected value.
async fn swap_owners<W: Words>(
    words: &W,
    run: ExtentRun,
    mask: u64,
    expected: u64,
    desired: u64,
) -> Result<u64, W::Error> {
    let mut swaps = [Swap::NONE; WORD_BITS as usize];
    let mut old = [0; WORD_BITS as usize];
    let mut count = 0;
    for bit in bits(mask) {
        swaps[count] = Swap {
            place: Place::Owner(run.word() * WORD_BITS + bit),
            expected,
            desired,
        };
        count += 1;
    }
    words.swap(&swaps[..count], &mut old[..count]).await?;
    let done = bits(mask)
        .zip(old)
        .filter(|&(_, old)| old == expected || farcore_tuning::mutated!("claims-what-is-owned"))
        .fold(0, |done, (bit, _)| done | 1 << bit);
    Ok(done)
}

/// Clears bits of a bitmap word that was last seen as `seen`. Returns roughly its current value.
async fn clear<W: Words>(words: &W, word: u32, mask: u64, mut seen: u64) -> Result<u64, W::Error> {
    if mask == 0 {
        return Ok(seen);
    }
    for _ in 0..ATTEMPTS_MAX {
        let cleared = seen & !mask;
        // Even if the bits look clear: `seen` may be a guess.
        let old = swap_one(words, Place::Bitmap(word), seen, cleared).await?;
        if old == seen {
            return Ok(cleared);
        }
        seen = old;
    }
    Ok(seen)
}
