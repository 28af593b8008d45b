//! The memory that the clients of all cores may take together.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Want;

/// A core reserves this part of the limit at a time, divided by the cores.
const STEPS: usize = 32;
/// The least and the most bytes of a step.
const STEP_BYTES_MIN: usize = 1 << 10;
const STEP_BYTES_MAX: usize = 64 << 10;
/// How long bytes are kept for a client, in milliseconds. Then another one's turn comes.
const RESERVED_MS: u64 = 6000;
/// How long bytes are kept in vain before clients that hold memory while they wait give way, in
/// milliseconds.
const IN_VAIN_MS: u64 = 500;
/// One of them does this often, in milliseconds: what it held may be enough.
const GIVE_UP_MS: u64 = 20;
/// Bits of a [`Reservation`] that are its bytes, and those of its precedence above them.
const RESERVED_BITS: u32 = 40;
const PRECEDENCE_BITS: u32 = 2;
const RESERVED_MASK: u64 = (1 << RESERVED_BITS) - 1;
const RESERVATION_MASK: u64 = u64::MAX >> (RESERVED_BITS + PRECEDENCE_BITS);

/// Which of the clients that wait comes first: the later one.
///
/// Many clients that do not read what they have requested could keep one that does from its turn.
/// They are known by what they send: more requests, before they have read the replies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum Precedence {
    /// Requests wait behind its own.
    #[default]
    Pipelines,
    /// Requests wait behind its own, and it has taken a long reply before.
    PipelinesAndReads,
    /// It sends nothing before it has the reply.
    Patient,
    /// It sends nothing before it has the reply, and has taken a long one before.
    PatientAndReads,
}

/// Bytes that are kept for one client that waits for them. All zero: none.
///
/// ```text
/// bit 63              42 41       40 39    0
///     [ number, never 0 | precedence | bytes ]
/// ```
///
/// Numbers repeat after 4 million reservations, so an old one is hardly taken for a new one; then
/// two clients share what is kept.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Reservation(u64);

impl Reservation {
    fn new(number: u64, precedence: Precedence, bytes: usize) -> Self {
        let number = number % RESERVATION_MASK + 1;
        let head = number << PRECEDENCE_BITS | precedence as u64;
        Self(head << RESERVED_BITS | (bytes as u64).min(RESERVED_MASK))
    }

    /// True if the client whose it is does not come before one of this precedence.
    fn yields_to(self, precedence: Precedence) -> bool {
        let own = self.0 >> RESERVED_BITS & ((1 << PRECEDENCE_BITS) - 1);
        own < precedence as u64
    }

    fn bytes(self) -> usize {
        usize::try_from(self.0 & RESERVED_MASK).unwrap_or(usize::MAX)
    }
}

/// The memory that the clients of all cores may take together.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    limit: usize,
    step: usize,
    /// Bytes that cores have reserved.
    taken: AtomicUsize,
    /// Charges that were not granted.
    want: Want,
    /// The [`Reservation`] of the client whose turn it is, and since when, in milliseconds since
    /// 1970.
    reserved: AtomicU64,
    reserved_ms: AtomicU64,
    reservations: AtomicU64,
    /// When a client gave up its wait for another one last, in milliseconds since 1970.
    gave_up_ms: AtomicU64,
}

// ORDERING: relaxed, throughout. The figures bound memory; no other data is read by them.
impl ClientMemory {
    /// The memory of a number of cores, `limit` bytes together.
    pub(crate) fn new(limit: usize, cores: usize) -> Self {
        let step = limit / STEPS / cores.max(1);
        Self {
            limit,
            step: step.clamp(STEP_BYTES_MIN, STEP_BYTES_MAX),
            taken: AtomicUsize::new(0),
            want: Want::default(),
            reserved: AtomicU64::new(0),
            reserved_ms: AtomicU64::new(0),
            reservations: AtomicU64::new(0),
            gave_up_ms: AtomicU64::new(0),
        }
    }

    /// Bytes that clients may take.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that large charges may take together: the rest is for small buffers.
    pub(crate) fn large_limit(&self) -> usize {
        self.limit - self.limit / 4
    }

    /// Bytes that large charges of a client may take together with all others, beside what is kept
    /// for another client than it.
    pub(super) fn large_limit_for(&self, own: Reservation) -> usize {
        let reserved = self.reservation();
        let others = if reserved == own { 0 } else { reserved.bytes() };
        self.large_limit().saturating_sub(others)
    }

    fn reservation(&self) -> Reservation {
        Reservation(self.reserved.load(Ordering::Relaxed))
    }

    /// True if a client has none, or had its turn.
    pub(super) fn has_ended(&self, own: Reservation) -> bool {
        own == Reservation::default() || self.reservation() != own
    }

    /// Keeps bytes that become free for one client, or those that others need again and again, and
    /// sooner, would leave it none. `None` while some are kept for another that comes no later.
    pub(super) fn reserve(
        &self,
        bytes: usize,
        precedence: Precedence,
        now_ms: u64,
    ) -> Option<Reservation> {
        let before = self.reservation();
        let since_ms = self.reserved_ms.load(Ordering::Relaxed);
        let is_kept = before.bytes() > 0 && now_ms.saturating_sub(since_ms) < RESERVED_MS;
        if is_kept && !before.yields_to(precedence) {
            return None;
        }
        let number = self.reservations.fetch_add(1, Ordering::Relaxed);
        let own = Reservation::new(number, precedence, bytes);
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let exchanged = self
            .reserved
            .compare_exchange(before.0, own.0, order, failed);
        exchanged.ok()?;
        self.reserved_ms.store(now_ms, Ordering::Relaxed);
        Some(own)
    }

    /// True if a client that holds memory, and waits for more, must give up: clients that do so
    /// keep from another what it has waited for in vain.
    pub(super) fn must_give_up(&self, own: Reservation, now_ms: u64) -> bool {
        let reserved = self.reservation();
        let since_ms = self.reserved_ms.load(Ordering::Relaxed);
        if reserved.bytes() == 0 || reserved == own || now_ms.saturating_sub(since_ms) < IN_VAIN_MS
        {
            return false;
        }
        let last_ms = self.gave_up_ms.load(Ordering::Relaxed);
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let turn = &self.gave_up_ms;
        now_ms.saturating_sub(last_ms) >= GIVE_UP_MS
            && turn
                .compare_exchange(last_ms, now_ms, order, failed)
                .is_ok()
    }

    /// Keeps bytes that were reserved no longer, unless they are another one's by now.
    pub(super) fn end_reservation(&self, own: Reservation) {
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.reserved.compare_exchange(own.0, 0, order, failed);
    }

    /// Bytes by which a core reserves.
    pub(super) fn step(&self) -> usize {
        self.step
    }

    /// Bytes that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Bytes that nothing has taken. While some are kept for a client that waits, a quarter of the
    /// limit is not free for others, so that their buffers shrink as they are sent.
    pub(crate) fn free(&self) -> usize {
        let reserved = self.reservation().bytes();
        let limit = if reserved > 0 {
            self.large_limit().saturating_sub(reserved)
        } else {
            self.limit
        };
        limit.saturating_sub(self.taken())
    }

    /// True if `bytes` are left for one that comes. What is kept for a client that waits is
    /// of the part for large charges, so a quarter of the limit is left out for it at most.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        let kept = self.reservation().bytes().min(self.limit / 4);
        self.taken().saturating_add(bytes).saturating_add(kept) <= self.limit
    }

    /// True if more is taken than clients may take.
    #[inline]
    pub(crate) fn is_exceeded(&self) -> bool {
        self.taken() > self.limit
    }

    /// Takes bytes, whatever is taken.
    pub(crate) fn take(&self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes bytes if no more than `limit` are taken then.
    pub(super) fn try_take(&self, bytes: usize, limit: usize) -> bool {
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                let after = taken.checked_add(bytes)?;
                (after <= limit).then_some(after)
            });
        taken.is_ok()
    }

    /// Gives bytes back that were taken.
    pub(crate) fn give(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes that a charge was not granted.
    pub(crate) fn want(&self, now_ms: u64) {
        self.want.note(now_ms);
    }

    /// True if a charge was not granted a moment ago.
    #[inline]
    pub(crate) fn is_wanted(&self, now_ms: u64) -> bool {
        self.want.is_recent(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENT: Precedence = Precedence::Patient;

    #[test]
    fn large_charges_leave_a_quarter() {
        let memory = ClientMemory::new(1000, 1);
        let limit = memory.large_limit();
        assert!(memory.try_take(750, limit) && !memory.try_take(1, limit));
        memory.take(300);
        assert!(memory.is_exceeded());
        memory.give(750);
        assert_eq!((memory.taken(), memory.free()), (300, 700));
        assert!(!memory.try_take(usize::MAX, 1000));
    }

    #[test]
    fn bytes_are_kept_for_one_client_at_a_time_and_not_for_ever() {
        let memory = ClientMemory::new(1000, 1);
        let none = Reservation::default();
        let first = memory.reserve(300, PATIENT, 10_000).expect("none is kept");
        assert_eq!(memory.reserve(200, PATIENT, 10_000 + RESERVED_MS - 1), None);
        assert_eq!(memory.large_limit_for(none), 450);
        assert_eq!(memory.large_limit_for(first), 750);
        assert!(!memory.has_ended(first) && memory.has_ended(none));
        // As many bytes as the first one's are not taken for it.
        let second = memory.reserve(300, PATIENT, 10_000 + RESERVED_MS);
        let second = second.expect("the first had its turn");
        assert!(memory.has_ended(first) && !memory.has_ended(second));
        assert_eq!(memory.large_limit_for(first), 450);
        memory.end_reservation(first);
        assert_eq!(memory.large_limit_for(none), 450);
        memory.end_reservation(second);
        assert_eq!(memory.large_limit_for(none), 750);
        assert!(memory.has_ended(second));
    }

    #[test]
    fn one_after_the_other_gives_up_while_another_waits_in_vain() {
        let memory = ClientMemory::new(1000, 1);
        let none = Reservation::default();
        assert!(!memory.must_give_up(none, 10_000));
        let own = memory.reserve(300, PATIENT, 10_000).expect("none is kept");
        let due_ms = 10_000 + IN_VAIN_MS;
        assert!(!memory.must_give_up(none, due_ms - 1) && !memory.must_give_up(own, due_ms));
        assert!(memory.must_give_up(none, due_ms));
        assert!(!memory.must_give_up(none, due_ms + GIVE_UP_MS - 1));
        assert!(memory.must_give_up(none, due_ms + GIVE_UP_MS));
        memory.end_reservation(own);
        assert!(!memory.must_give_up(none, due_ms + 10 * GIVE_UP_MS));
    }

    #[test]
    fn one_that_waits_for_its_reply_comes_before_one_that_pipelines() {
        use Precedence::{PatientAndReads, Pipelines, PipelinesAndReads};
        let memory = ClientMemory::new(1000, 1);
        let all = [Pipelines, PipelinesAndReads, PATIENT, PatientAndReads];
        let mut kept = Vec::new();
        for precedence in all {
            assert!(
                kept.iter()
                    .all(|&one| memory.has_ended(one) || one == memory.reservation())
            );
            let own = memory.reserve(300, precedence, 10_000);
            let own = own.expect("the others come later");
            for later in all.into_iter().filter(|&later| later <= precedence) {
                assert_eq!(memory.reserve(300, later, 10_001), None);
            }
            assert!(!memory.has_ended(own));
            assert_eq!(own.bytes(), 300);
            kept.push(own);
        }
        // Its time ends as that of any other.
        let next = memory.reserve(300, Pipelines, 10_000 + RESERVED_MS);
        assert!(next.is_some() && kept.iter().all(|&one| memory.has_ended(one)));
    }
}
