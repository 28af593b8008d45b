//! One session: its key, its lease and its memory connections.
//!
//! ```text
//! live --- bye, or the lease ends and it is not kept --> ending --- last line has ended ---> over:
//! its extents are reclaimed
//!  | ^                                                     ^
//!  | '-- a request or a resumption                         | kept for long enough, or its client
//!  has closed its connection
//!  '---- lease ends -------> kept -------------------------'
//! ```
//!
//! Leaving *live* closes all lines. A kept session holds its extents: a client that was only
//! stopped (a debugger, a paused machine, a cut network) finds them when it resumes. A client whose
//! process has ended has closed its control connection: its extents are reclaimed when the lease
//! ends.
//!
//! - I1: only the newest line of a slot is ever served, and only once all older ones have ended: no
//!   late WRITE of an old line lands after the new one's.
//! - I2: a session is over only when none of its lines lives, so that no request of it can reach a
//!   reclaimed extent.
//! - I3: a session is not over while extents are being claimed for it.
//! - I4: a slot accepts each counter once, in ascending order.
//! - I5: a line is served only if its session has been live without interruption since the line
//!   joined.

use std::collections::{BTreeMap, HashMap};

use crate::control::{Join, MemoryProof, SessionKey};
use crate::tcp::{Closer, Refusal};

/// A memory connection, as a session sees it: it can be closed from any thread.
pub(crate) trait Line {
    /// Closes it. Its end is reported later.
    fn close(&self);
}

/// A memory connection of a node.
#[derive(Clone, Debug)]
pub(super) enum NodeLine {
    /// A socket that carries the requests, or that set up the queue pair that does.
    Socket(Closer),
    /// One of a simulated world.
    #[cfg(feature = "simulation")]
    Simulated(crate::simulation::LineCloser),
    /// A queue pair that RDMA-CM connected.
    #[cfg(feature = "verbs")]
    Cm(super::cm::CmCloser),
}

impl Line for NodeLine {
    fn close(&self) {
        match self {
            Self::Socket(closer) => closer.close(),
            #[cfg(feature = "simulation")]
            Self::Simulated(closer) => closer.close(),
            #[cfg(feature = "verbs")]
            Self::Cm(closer) => closer.close(),
        }
    }
}

/// Limit on the slots of a session.
pub(crate) const SLOTS_MAX: u32 = 4096;

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The client ended it.
    Bye,
    /// The lease expired.
    Expired,
}

/// Whether a line may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// Not yet: an older line of its slot still lives.
    Wait,
    /// Now.
    Ready,
    /// Never.
    Refused(Refusal),
}

#[derive(Debug)]
struct Living<L> {
    slot: u32,
    /// The session's lease has ended since the line joined: the line is never served.
    stale: bool,
    /// `None` until the line is served.
    line: Option<L>,
}

#[derive(Debug)]
pub(crate) struct Session<L> {
    pub(crate) name: String,
    key: SessionKey,
    lease_end_ns: u64,
    /// How long the session is kept after its lease.
    keep_ns: u64,
    /// Whether the lease has ended and the session is kept.
    lapsed: bool,
    end: Option<End>,
    /// The control connection that the session accepts requests from.
    control: u64,
    /// Whether the client has closed that connection.
    left: bool,
    /// The lines by ticket, in ascending order.
    lines: BTreeMap<u64, Living<L>>,
    /// The highest counter accepted per slot.
    counters: HashMap<u32, u64>,
    /// Requests in progress.
    requests: u32,
    /// Whether the client has heard that the node leaves.
    has_heard: bool,
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
            has_heard: false,
        }
    }

    /// Ends the lease, and the session, if they are due.
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

    /// True until the lease ends.
    pub(crate) fn is_live(&mut self, now_ns: u64) -> bool {
        self.age(now_ns);
        self.end.is_none() && !self.lapsed
    }

    /// True while its client can resume it: it is live or kept.
    pub(crate) fn is_there(&mut self, now_ns: u64) -> bool {
        self.age(now_ns);
        self.end.is_none()
    }

    /// True while the session is kept after its lease.
    pub(crate) fn is_kept(&self) -> bool {
        self.lapsed && self.end.is_none()
    }

    /// Why it ended, once no line or request of it remains.
    pub(crate) fn over(&self) -> Option<End> {
        let has_lines =
            !self.lines.is_empty() && !farcore_tuning::mutated!("over-while-lines-live");
        let idle = !has_lines && self.requests == 0;
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

    /// Renews the lease of a live or kept session; true if the lease had ended.
    pub(crate) fn renew(&mut self, lease_end_ns: u64) -> bool {
        self.lease_end_ns = lease_end_ns;
        std::mem::take(&mut self.lapsed)
    }

    /// The client has closed a control connection.
    pub(crate) fn leave(&mut self, control: u64) {
        self.left |= control == self.control;
    }

    pub(crate) fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Accepts requests from a new control connection, and no older one. Returns its number.
    pub(crate) fn take_over(&mut self) -> u64 {
        self.control += 1;
        self.left = false;
        self.control
    }

    pub(crate) fn is_spoken_for_by(&self, control: u64) -> bool {
        self.control == control
    }

    /// Adds a line to a live session and closes the older lines of its slot.
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
            (false, true) if farcore_tuning::mutated!("served-beside-its-predecessor") => {
                Admission::Ready
            }
            (false, true) => Admission::Wait,
            (false, false) => Admission::Ready,
        }
    }

    /// The line is about to be served. It is closed at once if it may not be served any more.
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

    /// A request is in progress.
    pub(crate) fn begin(&mut self) {
        self.requests += 1;
    }

    /// A request was performed.
    pub(crate) fn done(&mut self) {
        self.requests -= 1;
    }

    /// The client has heard that the node leaves.
    pub(crate) fn hear(&mut self) {
        self.has_heard = true;
    }

    /// Whether the client need not be waited for: it has heard that the node leaves, or is silent.
    pub(crate) fn has_heard(&self) -> bool {
        self.has_heard || self.lapsed || self.end.is_some()
    }

    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    pub(crate) fn lines(&self) -> usize {
        self.lines.len()
    }
}
