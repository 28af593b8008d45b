//! One session: a client's stay at a memory node, with its key, its lease and its memory connections.
//!
//! ```text
//! live --- lease ends, bye ---> ending (lines closed) --- last line has ended ---> over: its extents are taken back
//! ```
//!
//! - I1: of the lines of one slot only the newest is ever served, and only once all older ones have ended: no late write
//!   of an old one lands after the new one's.
//! - I2: a session is over only when none of its lines lives, so that nothing of it can still reach an extent that is
//!   taken back.
//! - I3: the same holds while extents are being claimed for it.
//! - I4: a slot takes each counter once, and only upwards.

use std::collections::{BTreeMap, HashMap};

use super::token::{Join, MemoryProof, SessionKey};
use crate::tcp::{Closer, Refusal};

/// A memory connection, as far as a session is concerned: something that can be torn down from any thread.
pub(crate) trait Line {
    /// Tears it down; its end is told later.
    fn close(&self);
}

/// A memory connection of a node.
#[derive(Clone, Debug)]
pub(super) enum NodeLine {
    /// A socket: it carries the requests, or helped to set up the queue pair that does.
    Socket(Closer),
    /// A queue pair that RDMA-CM connected.
    #[cfg(feature = "verbs")]
    Cm(super::cm::CmCloser),
}

impl Line for NodeLine {
    fn close(&self) {
        match self {
            Self::Socket(closer) => closer.close(),
            #[cfg(feature = "verbs")]
            Self::Cm(closer) => closer.close(),
        }
    }
}

/// Slots of a session.
pub(crate) const SLOTS_MAX: u32 = 4096;

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Its client said so.
    Bye,
    /// Its lease ran out.
    Expired,
}

/// Whether a line may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// An older line of its slot lives still.
    Wait,
    /// Now.
    Ready,
    /// Never.
    Refused(Refusal),
}

#[derive(Debug)]
struct Living<L> {
    slot: u32,
    /// None until it is served.
    line: Option<L>,
}

#[derive(Debug)]
pub(crate) struct Session<L> {
    pub(crate) name: String,
    key: SessionKey,
    lease_end_ns: u64,
    end: Option<End>,
    /// The control connection that speaks for it.
    control: u64,
    /// Lines by ticket, which count up.
    lines: BTreeMap<u64, Living<L>>,
    /// The highest counter of each slot.
    counters: HashMap<u32, u64>,
    /// Requests that are being performed.
    requests: u32,
}

impl<L: Line> Session<L> {
    pub(crate) fn new(name: String, key: SessionKey, lease_end_ns: u64) -> Self {
        Self {
            name,
            key,
            lease_end_ns,
            end: None,
            control: 0,
            lines: BTreeMap::new(),
            counters: HashMap::new(),
            requests: 0,
        }
    }

    /// Ends it if its lease has; true while it lives.
    pub(crate) fn is_live(&mut self, now_ns: u64) -> bool {
        if self.end.is_none() && now_ns >= self.lease_end_ns {
            self.end(End::Expired);
        }
        self.end.is_none()
    }

    /// Why it ended, once nothing of it lives.
    pub(crate) fn over(&self) -> Option<End> {
        let idle = self.lines.is_empty() && self.requests == 0;
        self.end.filter(|_| idle)
    }

    pub(crate) fn end(&mut self, end: End) {
        self.end.get_or_insert(end);
        for line in self.lines.values().filter_map(|one| one.line.as_ref()) {
            line.close();
        }
    }

    pub(crate) fn renew(&mut self, lease_end_ns: u64) {
        self.lease_end_ns = lease_end_ns;
    }

    pub(crate) fn key(&self) -> &SessionKey {
        &self.key
    }

    /// A new control connection speaks for it, and no older one.
    pub(crate) fn take_over(&mut self) -> u64 {
        self.control += 1;
        self.control
    }

    pub(crate) fn is_spoken_for_by(&self, control: u64) -> bool {
        self.control == control
    }

    /// A line of a live session comes: the older ones of its slot are torn down.
    pub(crate) fn join(
        &mut self,
        ticket: u64,
        join: &Join,
        proof: &MemoryProof,
    ) -> Result<(), Refusal> {
        if !self.key.is_memory_proof(join, proof) {
            return Err(Refusal::Proof);
        }
        if join.slot >= SLOTS_MAX {
            return Err(Refusal::Busy);
        }
        let newest = self.counters.entry(join.slot).or_insert(0);
        if join.counter <= *newest {
            return Err(Refusal::Proof);
        }
        *newest = join.counter;
        for older in self.lines.values().filter(|one| one.slot == join.slot) {
            if let Some(line) = &older.line {
                line.close();
            }
        }
        self.lines.insert(
            ticket,
            Living {
                slot: join.slot,
                line: None,
            },
        );
        Ok(())
    }

    pub(crate) fn admission(&self, ticket: u64) -> Admission {
        let Some(own) = self.lines.get(&ticket).filter(|_| self.end.is_none()) else {
            return Admission::Refused(Refusal::Session);
        };
        let (mut older, mut newer) = (false, false);
        for (&other, _) in self.lines.iter().filter(|(_, one)| one.slot == own.slot) {
            older |= other < ticket;
            newer |= other > ticket;
        }
        match (newer, older) {
            (true, _) => Admission::Refused(Refusal::Session),
            (false, true) => Admission::Wait,
            (false, false) => Admission::Ready,
        }
    }

    /// The line is about to be served. One that may no longer be is torn down at once.
    pub(crate) fn served(&mut self, ticket: u64, line: L) {
        if self.admission(ticket) != Admission::Ready {
            line.close();
        }
        if let Some(living) = self.lines.get_mut(&ticket) {
            living.line = Some(line);
        }
    }

    pub(crate) fn ended(&mut self, ticket: u64) {
        self.lines.remove(&ticket);
    }

    /// A request begins to be performed.
    pub(crate) fn begin(&mut self) {
        self.requests += 1;
    }

    /// It was performed.
    pub(crate) fn done(&mut self) {
        self.requests -= 1;
    }

    pub(crate) fn lines(&self) -> usize {
        self.lines.len()
    }
}
