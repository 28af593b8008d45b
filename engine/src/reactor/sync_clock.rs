//! How long the syncs of a journal take, and how long its oldest change has waited for one.
//!
//! ```text
//! bytes of the journal: durable | sync under way | next sync | covered by none
//!                                 begun, oldest    begun, ..   fresh
//! ```
//!
//! It gets the time that its core has read anyway, so its figures are accurate to a few turns. Of
//! syncs that are begun while one is under way the first counts: the file makes one of them.

/// A sync that was begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    /// Bytes of the journal that are durable once it has ended.
    until: u64,
    begun_ns: u64,
    /// When the first change that it covers was appended.
    oldest_ns: u64,
}

/// Times the syncs of a journal.
#[derive(Debug, Default)]
pub(super) struct SyncClock {
    under_way: Option<Begun>,
    next: Option<Begun>,
    /// Bytes of the journal that the syncs so far cover.
    covered: u64,
    /// When the first byte after them was seen.
    fresh_ns: Option<u64>,
}

impl SyncClock {
    /// The clock of a journal that has this many bytes, all of them durable.
    pub(super) fn starting_at(covered: u64) -> Self {
        Self {
            covered,
            ..Self::default()
        }
    }

    /// Notes that a sync was begun, of all bytes up to here.
    pub(super) fn begin(&mut self, until: u64, now_ns: u64) {
        let begun = Begun {
            until,
            begun_ns: now_ns,
            oldest_ns: self.fresh_ns.take().unwrap_or(now_ns),
        };
        self.covered = until;
        match (&self.under_way, &mut self.next) {
            (None, _) => self.under_way = Some(begun),
            (Some(_), Some(next)) => next.until = until,
            (Some(_), next) => *next = Some(begun),
        }
    }

    /// Notes how many bytes were appended, and how many of them are durable. Calls `each` with how
    /// long each sync took that has ended, in nanoseconds.
    pub(super) fn note(
        &mut self,
        (appended, durable): (u64, u64),
        now_ns: u64,
        mut each: impl FnMut(u64),
    ) {
        while let Some(sync) = self.under_way.filter(|sync| sync.until <= durable) {
            each(now_ns.saturating_sub(sync.begun_ns));
            self.under_way = self.next.take();
        }
        if appended <= self.covered.max(durable) {
            self.fresh_ns = None;
        } else if self.fresh_ns.is_none() {
            self.fresh_ns = Some(now_ns);
        }
    }

    /// Forgets the syncs: the file will not end them. What they cover still waits.
    pub(super) fn give_up(&mut self, durable: u64) {
        if let Some(sync) = self.under_way.take() {
            self.fresh_ns = Some(sync.oldest_ns);
            self.covered = durable;
        }
        self.next = None;
    }

    /// When the oldest change was appended that is not durable; `None` if all are.
    pub(super) fn oldest_ns(&self) -> Option<u64> {
        let sync = self.under_way.or(self.next);
        sync.map(|sync| sync.oldest_ns).or(self.fresh_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a note yields: the times of syncs, and the oldest change then.
    fn note(clock: &mut SyncClock, bytes: (u64, u64), now_ns: u64) -> (Vec<u64>, Option<u64>) {
        let mut took = Vec::new();
        clock.note(bytes, now_ns, |ns| took.push(ns));
        (took, clock.oldest_ns())
    }

    #[test]
    fn a_sync_is_timed_from_its_beginning_and_a_change_from_when_it_was_appended() {
        let mut clock = SyncClock::starting_at(100);
        assert_eq!(note(&mut clock, (100, 100), 1), (vec![], None));
        assert_eq!(note(&mut clock, (150, 100), 2), (vec![], Some(2)));
        clock.begin(150, 10);
        assert_eq!(note(&mut clock, (150, 100), 11), (vec![], Some(2)));
        // Written in part.
        assert_eq!(note(&mut clock, (180, 120), 12), (vec![], Some(2)));
        assert_eq!(note(&mut clock, (180, 150), 15), (vec![5], Some(12)));
        clock.begin(180, 20);
        assert_eq!(note(&mut clock, (180, 180), 23), (vec![3], None));
    }

    #[test]
    fn syncs_that_are_begun_during_one_are_one() {
        let mut clock = SyncClock::starting_at(0);
        note(&mut clock, (10, 0), 1);
        clock.begin(10, 2);
        note(&mut clock, (20, 0), 3);
        clock.begin(20, 4);
        note(&mut clock, (30, 0), 5);
        clock.begin(30, 6);
        assert_eq!(note(&mut clock, (30, 10), 7), (vec![5], Some(3)));
        assert_eq!(note(&mut clock, (30, 20), 8), (vec![], Some(3)));
        assert_eq!(note(&mut clock, (30, 30), 9), (vec![5], None));
    }

    #[test]
    fn what_a_file_that_is_given_up_had_still_waits() {
        let mut clock = SyncClock::starting_at(0);
        note(&mut clock, (10, 0), 1);
        clock.begin(10, 2);
        clock.give_up(0);
        assert_eq!(note(&mut clock, (20, 0), 3), (vec![], Some(1)));
        clock.begin(20, 4);
        assert_eq!(note(&mut clock, (20, 20), 9), (vec![5], None));
    }

    #[test]
    fn what_becomes_durable_without_a_sync_of_its_own_waits_no_more() {
        let mut clock = SyncClock::starting_at(0);
        assert_eq!(note(&mut clock, (10, 0), 1), (vec![], Some(1)));
        assert_eq!(note(&mut clock, (10, 10), 2), (vec![], None));
    }
}
