//! Virtual time in picoseconds: a message of 100 M a second takes 10 000 of them.

/// A moment or a duration; 2^64 ps are 213 days.
pub(super) type Ps = u64;

/// Picoseconds of a nanosecond.
pub(super) const NS: Ps = 1_000;

/// Whole picoseconds of nanoseconds.
pub(super) fn from_ns(ns: f64) -> Ps {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "settings are limited; the cast saturates"
    )]
    let ps = (ns * NS as f64).round() as Ps;
    ps
}
