//! Who holds the section of a core's shard, and who waits for it.
//!
//! While a client holds it, the shard serves the requests of no other client. Requests under the
//! section, and those that enter and leave, come over a second queue of each lane; those of all
//! other clients stay where they are, in the lanes' first queues, in their order.
//!
//! ```text
//! open ----- a client waits -----> closing --- nothing is parked ---> held
//!  ^                                  |                                 |
//!  |---- too long: all refused -------|                                 |
//!  |---- one turn for plain requests, at least <--- left, or too long --|
//! ```
//!
//! - I1: while the section is held, no request of another client is served. *Open* is the only
//!   state in which lanes' first queues are served; it is left for *held* only when no request is
//!   parked, so none that was accepted before is carried out later. Requests of a waiting kind
//!   (transactions, operations on trees) wait in their lanes and have changed nothing.
//! - I2: clients get the section in the order in which their requests to enter were seen.
//! - I3: between two holders, lanes' first queues are served for a turn: sections that follow each
//!   other starve no plain request.
//! - I4: a holder keeps it for the budget at most, and *closing* lasts as long at most. So a holder
//!   that does nothing, a client that does not poll and a memory node that is silent delay others
//!   for a bounded time; what is refused for that is followed by as long a time in which the shard
//!   is open. A holder that leaves, alive or dropped, delays them no longer than its requests take
//!   that are parked, within its budget: until these have ended, its request to leave waits. So one
//!   that is answered that the section was held is right about all that it has sent.
//! - I5: a client that waits has room for its answer reserved at its lane. All of them have a
//!   quarter of the lane's answers at most, so that a holder's have room; others are refused.

use std::collections::VecDeque;

use super::marked_lanes::MarkedLanes;
use super::replies::OWN_LANE;
use crate::constants::SECTION_WAITERS_MAX;
use crate::message::request::Origin;
use crate::message::section::SectionClients;

/// A client that holds a section, or waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SectionClient {
    pub(super) lane: u8,
    pub(super) clients: SectionClients,
}

impl SectionClient {
    #[inline]
    fn is(self, lane: u8, client: u16) -> bool {
        self.lane == lane && self.clients.include(client)
    }
}

/// The client that holds the section.
#[derive(Clone, Copy, Debug)]
struct SectionHolder {
    of: SectionClient,
    since_ns: u64,
}

/// A client that waits for the section.
#[derive(Clone, Copy, Debug)]
pub(super) struct SectionWaiter {
    pub(super) of: SectionClient,
    pub(super) origin: Origin,
    pub(super) token: u64,
}

/// What a request to leave has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum SectionEnd {
    /// The section, which was held until now, since this time.
    Held { since_ns: u64 },
    /// The part of a client that had joined the holder, which goes on.
    Parted,
    /// A wait for it.
    Waited(SectionWaiter),
    /// Nothing: the section was lost before, or never given.
    Nothing,
}

/// What comes next, once requests to enter and leave have been worked off.
#[derive(Clone, Copy, Debug)]
pub(super) enum SectionDecision {
    /// Nothing.
    Stay,
    /// This client holds the section from now on.
    Give(SectionWaiter),
    /// Requests that are parked have not ended in time: no client that waits gets the section.
    RefuseAll,
}

/// The section of a shard.
#[derive(Debug)]
pub(super) struct Sections {
    /// Lanes whose second queue has requests.
    pub(super) marked: MarkedLanes,
    holder: Option<SectionHolder>,
    waiters: VecDeque<SectionWaiter>,
    /// Since when the shard waits for parked requests to end.
    closing_since_ns: Option<u64>,
    /// Plain requests are served for a turn before the next client gets the section.
    is_breathing: bool,
    /// Until when plain requests are served though clients wait: what was parked has not ended in
    /// time, and clients that try again would keep others away for as long as it takes.
    open_until_ns: u64,
    /// Something of this must be looked at in each turn.
    is_active: bool,
    /// Lanes' first queues are not served.
    is_closed: bool,
    pub(super) budget_ns: u64,
}

impl Sections {
    pub(super) fn new(budget_ns: u64) -> Self {
        Self {
            marked: MarkedLanes::default(),
            holder: None,
            waiters: VecDeque::new(),
            closing_since_ns: None,
            is_breathing: false,
            open_until_ns: 0,
            is_active: false,
            is_closed: false,
            budget_ns,
        }
    }

    /// Notes that the second queue of a lane has requests.
    #[inline]
    pub(super) fn mark(&mut self, lane: usize) {
        self.marked.mark(lane);
        self.is_active = true;
    }

    /// True if a turn must look at this.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// True if plain requests are not served.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed && !farcore_tuning::mutated!("served-under-a-section")
    }

    /// True if the core has something to do for it: more than to wait for the holder.
    pub(super) fn needs_core(&self) -> bool {
        !self.marked.is_empty() || !self.waiters.is_empty()
    }

    /// Clients that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// True if a request of this client is under the section.
    #[inline]
    pub(super) fn is_holder(&self, lane: u8, client: u16) -> bool {
        self.holder.is_some_and(|holder| holder.of.is(lane, client))
    }

    /// Has a client wait; false if too many do.
    pub(super) fn enter(&mut self, waiter: SectionWaiter) -> bool {
        let has_room = self.waiters.len() < SECTION_WAITERS_MAX;
        if has_room {
            self.waiters.push_back(waiter);
        }
        has_room
    }

    /// Has a client of a lane join one that holds the section; false if that one does not, or
    /// another has joined it.
    pub(super) fn join(&mut self, lane: u8, of: u16, client: u16) -> bool {
        let holder = self.holder.as_mut();
        holder.is_some_and(|holder| holder.of.is(lane, of) && holder.of.clients.join(client))
    }

    /// Ends what a client has of the section.
    pub(super) fn leave(&mut self, lane: u8, client: u16) -> SectionEnd {
        if let Some(holder) = &mut self.holder
            && holder.of.is(lane, client)
        {
            let since_ns = holder.since_ns;
            if holder.of.clients.part(client) {
                return SectionEnd::Parted;
            }
            self.end_hold();
            return SectionEnd::Held { since_ns };
        }
        let place = self.waiters.iter().position(|it| it.of.is(lane, client));
        place
            .and_then(|place| self.waiters.remove(place))
            .map_or(SectionEnd::Nothing, SectionEnd::Waited)
    }

    /// Takes the section from a holder that has had it for too long; returns for how long.
    pub(super) fn end_overdue(&mut self, now_ns: u64) -> Option<u64> {
        let holder = self.holder?;
        let held_ns = now_ns.saturating_sub(holder.since_ns);
        if held_ns <= self.budget_ns {
            return None;
        }
        self.end_hold();
        Some(held_ns)
    }

    fn end_hold(&mut self) {
        self.holder = None;
        self.is_breathing = true;
    }

    /// Decides what comes next. `is_drained`: no request is parked. `is_lent`: on the thread of a
    /// borrower, which answers no client on the core, and serves no lane but its own; `has_plain`:
    /// plain requests wait for the core.
    pub(super) fn next(
        &mut self,
        now_ns: u64,
        is_drained: bool,
        (is_lent, has_plain): (bool, bool),
    ) -> SectionDecision {
        let next = self.decide(now_ns, is_drained, (is_lent, is_lent && has_plain));
        self.is_active = self.holder.is_some() || self.needs_core();
        next
    }

    fn decide(
        &mut self,
        now_ns: u64,
        is_drained: bool,
        (is_lent, waits_for_core): (bool, bool),
    ) -> SectionDecision {
        self.is_closed = true;
        if self.holder.is_some() {
            return SectionDecision::Stay;
        }
        let breathes = self.is_breathing || now_ns < self.open_until_ns;
        self.is_breathing &= waits_for_core;
        let Some(&first) = self.waiters.front().filter(|_| !breathes) else {
            self.is_closed = false;
            self.closing_since_ns = None;
            return SectionDecision::Stay;
        };
        let since_ns = *self.closing_since_ns.get_or_insert(now_ns);
        let is_cores = waits_for_core || is_lent && first.of.lane == OWN_LANE;
        if is_drained && !is_cores {
            self.waiters.pop_front();
            self.closing_since_ns = None;
            self.holder = Some(SectionHolder {
                of: first.of,
                since_ns: now_ns,
            });
            return SectionDecision::Give(first);
        }
        if !is_lent && now_ns.saturating_sub(since_ns) > self.budget_ns {
            self.closing_since_ns = None;
            self.is_closed = false;
            self.open_until_ns = now_ns.saturating_add(self.budget_ns);
            return SectionDecision::RefuseAll;
        }
        SectionDecision::Stay
    }

    /// Takes the first client that waits, which is refused.
    pub(super) fn refuse(&mut self) -> Option<SectionWaiter> {
        self.waiters.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET_NS: u64 = 1_000;

    fn waiter(lane: u8, first: u16) -> SectionWaiter {
        SectionWaiter {
            of: SectionClient {
                lane,
                clients: SectionClients::new(first, first + 1),
            },
            origin: Origin::default(),
            token: first.into(),
        }
    }

    /// Who gets the section next, if it is given now.
    fn given(sections: &mut Sections, now_ns: u64) -> Option<u64> {
        match sections.next(now_ns, true, (false, false)) {
            SectionDecision::Give(waiter) => Some(waiter.token),
            SectionDecision::Stay => None,
            SectionDecision::RefuseAll => panic!("nothing is parked"),
        }
    }

    #[test]
    fn who_comes_first_is_served_first_and_plain_requests_between() {
        let mut sections = Sections::new(BUDGET_NS);
        // Of several lanes, and several of one lane.
        for (lane, client) in [(3, 10), (1, 20), (3, 30), (OWN_LANE, 40), (1, 50)] {
            assert!(sections.enter(waiter(lane, client)));
        }
        let mut order = Vec::new();
        for (lane, client) in [(3, 10), (1, 20), (3, 30), (OWN_LANE, 40)] {
            order.extend(given(&mut sections, 0));
            assert!(sections.is_closed() && sections.is_active());
            assert!(sections.is_holder(lane, client) && sections.is_holder(lane, client + 1));
            assert!(!sections.is_holder(lane, client + 2) && !sections.is_holder(9, client));
            assert_eq!(given(&mut sections, 0), None, "it is held");
            let left = sections.leave(lane, client);
            assert!(matches!(left, SectionEnd::Held { since_ns: 0 }));
            assert!(matches!(sections.leave(lane, client), SectionEnd::Nothing));
            assert!(!sections.is_holder(lane, client));
            assert_eq!(given(&mut sections, 0), None, "plain requests come first");
            assert!(!sections.is_closed() && sections.is_active());
        }
        assert_eq!(order, [10, 20, 30, 40]);
        // A client that waits goes away.
        assert!(matches!(sections.leave(1, 50), SectionEnd::Waited(gone) if gone.token == 50));
        assert_eq!(given(&mut sections, 0), None);
        assert!(!sections.is_closed() && !sections.is_active());
    }

    #[test]
    fn a_client_that_joins_a_holder_leaves_alone_or_with_it() {
        let mut sections = Sections::new(BUDGET_NS);
        assert!(!sections.join(3, 10, 70), "no one holds it");
        sections.enter(waiter(3, 10));
        assert_eq!(given(&mut sections, 0), Some(10));
        assert!(!sections.join(3, 20, 70) && !sections.join(4, 10, 70));
        assert!(sections.join(3, 11, 70) && !sections.join(3, 10, 71));
        assert!(sections.is_holder(3, 70) && !sections.is_holder(4, 70));
        assert!(matches!(sections.leave(3, 70), SectionEnd::Parted));
        assert!(!sections.is_holder(3, 70) && sections.is_holder(3, 10));
        assert!(sections.join(3, 10, 71) && sections.is_holder(3, 71));
        let left = sections.leave(3, 10);
        assert!(matches!(left, SectionEnd::Held { since_ns: 0 }));
        assert!(!sections.is_holder(3, 71) && !sections.join(3, 10, 72));
        assert!(matches!(sections.leave(3, 71), SectionEnd::Nothing));
    }

    #[test]
    fn a_holder_keeps_the_section_for_its_budget_and_not_longer() {
        let mut sections = Sections::new(BUDGET_NS);
        sections.enter(waiter(1, 10));
        sections.enter(waiter(2, 10));
        assert_eq!(given(&mut sections, 5), Some(10));
        assert_eq!(sections.end_overdue(5 + BUDGET_NS), None);
        assert_eq!(sections.end_overdue(6 + BUDGET_NS), Some(BUDGET_NS + 1));
        assert!(!sections.is_holder(1, 10) && matches!(sections.leave(1, 10), SectionEnd::Nothing));
        assert_eq!(given(&mut sections, 0), None);
        assert_eq!(given(&mut sections, 0), Some(10));
        assert!(sections.is_holder(2, 10));
    }

    #[test]
    fn a_shard_whose_parked_requests_do_not_end_refuses_all_who_wait() {
        let mut sections = Sections::new(BUDGET_NS);
        sections.enter(waiter(1, 10));
        sections.enter(waiter(2, 20));
        for now_ns in [7, 7 + BUDGET_NS] {
            assert!(matches!(
                sections.next(now_ns, false, (false, false)),
                SectionDecision::Stay
            ));
            assert!(sections.is_closed(), "or they would never end");
        }
        let late_ns = 8 + BUDGET_NS;
        assert!(
            matches!(
                sections.next(late_ns, false, (true, false)),
                SectionDecision::Stay
            ),
            "the core does it"
        );
        assert!(matches!(
            sections.next(late_ns, false, (false, false)),
            SectionDecision::RefuseAll
        ));
        assert!(!sections.is_closed());
        let refused = std::iter::from_fn(|| sections.refuse());
        assert_eq!(
            refused.map(|waiter| waiter.token).collect::<Vec<_>>(),
            [10, 20]
        );
        assert!(matches!(
            sections.next(late_ns, false, (false, false)),
            SectionDecision::Stay
        ));
        assert!(!sections.is_active());
        // The next that comes has as long.
        sections.enter(waiter(1, 10));
        assert!(matches!(
            sections.next(late_ns, false, (false, false)),
            SectionDecision::Stay
        ));
    }

    #[test]
    fn a_borrower_gives_no_section_to_a_client_on_the_core() {
        let mut sections = Sections::new(BUDGET_NS);
        sections.enter(waiter(OWN_LANE, 10));
        assert!(matches!(
            sections.next(0, true, (true, false)),
            SectionDecision::Stay
        ));
        assert!(sections.needs_core());
        assert!(matches!(
            sections.next(0, true, (false, false)),
            SectionDecision::Give(_)
        ));
        assert!(!sections.needs_core(), "it waits for the holder alone");
    }

    #[test]
    fn a_borrower_leaves_the_turn_between_two_sections_to_the_core() {
        let mut sections = Sections::new(BUDGET_NS);
        sections.enter(waiter(1, 10));
        assert!(matches!(
            sections.next(0, true, (true, false)),
            SectionDecision::Give(_)
        ));
        assert!(matches!(sections.leave(1, 10), SectionEnd::Held { .. }));
        sections.enter(waiter(1, 20));
        for _ in 0..2 {
            assert!(matches!(
                sections.next(1, true, (true, true)),
                SectionDecision::Stay
            ));
            assert!(!sections.is_closed() && sections.needs_core());
        }
        assert!(matches!(
            sections.next(1, true, (false, true)),
            SectionDecision::Stay
        ));
        assert!(
            !sections.is_closed(),
            "the core serves all lanes in this turn"
        );
        assert!(matches!(
            sections.next(1, true, (false, true)),
            SectionDecision::Give(_)
        ));
    }

    #[test]
    fn no_more_clients_wait_than_may() {
        let mut sections = Sections::new(BUDGET_NS);
        let lanes =
            (0..SECTION_WAITERS_MAX).map(|place| waiter(u8::try_from(place % 200).unwrap(), 1));
        assert!(lanes.into_iter().all(|waiter| sections.enter(waiter)));
        assert!(!sections.enter(waiter(1, 1)));
        assert_eq!(sections.waiting(), SECTION_WAITERS_MAX);
    }
}
