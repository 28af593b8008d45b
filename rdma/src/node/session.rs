//! One session: a client's stay at a memory node, with its key, its lease and its memory
//! connections.
//!
//! ```text
//! live --- bye, lease ends and it is not kept ---> ending --- last line has ended ---> over: its extents are taken back
//!  | ^                                               ^
//!  | '-- a request or a resumption                   | kept for long enough, or its client has closed its connection
//!  '---- lease ends -------> kept -------------------'
//! ```
//!
//! Leaving *live* closes all lines. A kept session holds its extents: a client that was only
//! stopped (a debugger, a paused machine, a cut network) finds them when it comes back. A client
//! whose process has ended has closed its control connection, so what it held is not kept from
//! others for longer than a lease.
//!
//! - I1: of the lines of one slot only the newest is ever served, and only once all older ones have
//!   ended: no late write of an old one lands after the new one's.
//! - I2: a session is over only when none of its lines lives, so that nothing of it can still reach
//!   an extent that is taken back.
//! - I3: the same holds while extents are being claimed for it.
//! - I4: a slot takes each counter once, and only upwards.
//! - I5: a line of a session is served only if the session was live without a break since the line
//!   joined.

use std::collections::{BTreeMap, HashMap};

use crate::control::{Join, MemoryProof, SessionKey};
use crate::tcp::{Closer, Refusal};

/// A memory connection, as far as a session is concerned: something that can be torn down from any
/// thread.
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
    /// Its session's lease has ended since it joined: it is never served any more.
    stale: bool,
    /// None until it is served.
    line: Option<L>,
}

#[derive(Debug)]
pub(crate) struct Session<L> {
    pub(crate) name: String,
    key: SessionKey,
    lease_end_ns: u64,
    /// How long after its lease it is kept.
    keep_ns: u64,
    /// Its lease has ended, and it is kept.
    lapsed: bool,
    end: Option<End>,
    /// The control connection that speaks for it.
    control: u64,
    /// Its client has closed that.
    left: bool,
    /// Lines by ticket, which count up.
    lines: BTreeMap<u64, Living<L>>,
    /// The highest counter of each slot.
    counters: HashMap<u32, u64>,
    /// Requests that are being performed.
    requests: u32,
}

impl<L: Line> Session<L> {
    pub(crate) fn new(name: String, key: SessionKey, lease_end_ns: u64, keep_ns: u64) -> Self {
        Self {
            name,
            key,
            lease_end_ns,
            keep_ns,
            lapsed: false,
            end: None,
            control: 0,
            left: false,
            lines: BTreeMap::new(),
            counters: HashMap::new(),
            requests: 0,
        }
    }

    /// Ends its lease, and itself, if it is time.
    fn age(&mut self, now_ns: u64) {
        if self.end.is_some() || now_ns < self.lease_end_ns {
            return;
        }
        if !self.lapsed {
            self.lapsed = true;
            self.close_lines();
        }
        if self.left || now_ns >= self.lease_end_ns.saturating_add(self.keep_ns) {
            self.end(End::Expired);
        }
    }

    /// True while its lease goes on.
    pub(crate) fn is_live(&mut self, now_ns: u64) -> bool {
        self.age(now_ns);
        self.end.is_none() && !self.lapsed
    }

    /// True while its client can go on with it: it is live or kept.
    pub(crate) fn is_there(&mut self, now_ns: u64) -> bool {
        self.age(now_ns);
        self.end.is_none()
    }

    /// True while it is kept after its lease.
    pub(crate) fn is_kept(&self) -> bool {
        self.lapsed && self.end.is_none()
    }

    /// Why it ended, once nothing of it lives.
    pub(crate) fn over(&self) -> Option<End> {
        let idle = self.lines.is_empty() && self.requests == 0;
        self.end.filter(|_| idle)
    }

    pub(crate) fn end(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.close_lines();
    }

    fn close_lines(&mut self) {
        for line in self.lines.values_mut() {
            line.stale = true;
            if let Some(line) = &line.line {
                line.close();
            }
        }
    }

    /// Renews the lease of one that is there; true if it had ended.
    pub(crate) fn renew(&mut self, lease_end_ns: u64) -> bool {
        self.lease_end_ns = lease_end_ns;
        std::mem::take(&mut self.lapsed)
    }

    /// Its client has closed a control connection.
    pub(crate) fn leave(&mut self, control: u64) {
        self.left |= control == self.control;
    }

    pub(crate) fn key(&self) -> &SessionKey {
        &self.key
    }

    /// A new control connection speaks for it, and no older one.
    pub(crate) fn take_over(&mut self) -> u64 {
        self.control += 1;
        self.left = false;
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
                stale: false,
                line: None,
            },
        );
        Ok(())
    }

    pub(crate) fn admission(&self, ticket: u64) -> Admission {
        let Some(own) = self.lines.get(&ticket).filter(|own| !own.stale) else {
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
