//! All sessions of a memory node, as a state machine without clock, socket or task. The caller
//! passes the time.
//!
//! - I1: an id is never used twice: its high half is random in each incarnation of the node, its
//!   low half counts up.
//! - I2: [`Sessions::over`] returns each opened session exactly once, after its last line has ended
//!   and its last request was performed.
//! - I3: a session takes its place of the most that there may be until [`Sessions::reclaimed`].

use std::collections::{BTreeMap, HashSet};
use std::hint::black_box;
use std::io;

use farcore_tuning::entropy_u32;

use super::session::{Admission, End, Line, Session};
use crate::control::Refused;
use crate::control::{Join, MemoryProof, SessionKey};
use crate::pool::OwnerId;
use crate::tcp::Refusal;

/// Identifies a line of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ticket {
    pub(crate) session: OwnerId,
    number: u64,
}

/// Identifies a control connection of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Speaker {
    pub(crate) session: OwnerId,
    control: u64,
}

/// A session that is over: its extents can be reclaimed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Over {
    pub(crate) session: OwnerId,
    pub(crate) name: String,
    pub(crate) end: End,
}

/// The lifetime of sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The lease: without a request, the session lives this long.
    pub(crate) lease_ns: u64,
    /// How long it is kept after its lease.
    pub(crate) keep_ns: u64,
}

#[derive(Debug)]
pub(crate) struct Sessions<L> {
    incarnation: u32,
    terms: Terms,
    sessions_max: usize,
    opened: u32,
    /// Times that a client resumed a session whose lease had ended.
    revived: u64,
    tickets: u64,
    sessions: BTreeMap<OwnerId, Session<L>>,
    /// Sessions that are over, whose extents are being reclaimed.
    reclaiming: HashSet<OwnerId>,
}

impl<L: Line> Sessions<L> {
    pub(crate) fn new(incarnation: u32, terms: Terms, sessions_max: usize) -> Self {
        Self {
            incarnation,
            terms,
            sessions_max,
            opened: 0,
            revived: 0,
            tickets: 0,
            sessions: BTreeMap::new(),
            reclaiming: HashSet::new(),
        }
    }

    /// A random incarnation for a starting node.
    pub(crate) fn random_incarnation() -> io::Result<u32> {
        entropy_u32()
    }

    pub(crate) fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Sessions that may own extents: those that are not over, or are being reclaimed.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len() + self.reclaiming.len()
    }

    /// Whether a session may own extents.
    pub(crate) fn holds(&self, session: OwnerId) -> bool {
        self.sessions.contains_key(&session) || self.reclaiming.contains(&session)
    }

    /// Each session that is not over.
    pub(crate) fn each(&self, each: impl FnMut(OwnerId)) {
        self.sessions.keys().copied().for_each(each);
    }

    /// The sessions that are kept after their lease, with their clients' names.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (OwnerId, &str)> {
        let kept = self.sessions.iter().filter(|(_, one)| one.is_kept());
        kept.map(|(&session, one)| (session, one.name.as_str()))
    }

    /// Times that a client resumed a kept session.
    pub(crate) fn revived(&self) -> u64 {
        self.revived
    }

    /// Lines of all sessions, waiting ones included.
    pub(crate) fn lines(&self) -> usize {
        self.sessions.values().map(Session::lines).sum()
    }

    fn live(&mut self, session: OwnerId, now_ns: u64) -> Option<&mut Session<L>> {
        let session = self.sessions.get_mut(&session)?;
        session.is_live(now_ns).then_some(session)
    }

    /// A session that is live or kept.
    fn there(&mut self, session: OwnerId, now_ns: u64) -> Option<&mut Session<L>> {
        let session = self.sessions.get_mut(&session)?;
        session.is_there(now_ns).then_some(session)
    }

    /// Renews the lease of a session that is live or kept.
    fn renew(&mut self, session: OwnerId, now_ns: u64) -> Option<&mut Session<L>> {
        let lease_end_ns = now_ns.saturating_add(self.terms.lease_ns);
        // Borrowed again: the count lies beside the sessions.
        let revived = self.there(session, now_ns)?.renew(lease_end_ns);
        self.revived += u64::from(revived);
        self.sessions.get_mut(&session)
    }

    /// Opens a session.
    pub(crate) fn open(
        &mut self,
        name: String,
        key: SessionKey,
        now_ns: u64,
    ) -> Result<Speaker, Refused> {
        let next = self.opened.checked_add(1);
        let room = self.len() < self.sessions_max;
        let (Some(next), true) = (next, room) else {
            return Err(Refused::Busy {
                sessions_max: self.sessions_max as u64,
            });
        };
        self.opened = next;
        let id = u64::from(self.incarnation) << 32 | u64::from(next);
        let session = OwnerId::new(id).ok_or(Refused::Stopping)?;
        let Terms { lease_ns, keep_ns } = self.terms;
        let lease_end_ns = now_ns.saturating_add(lease_ns);
        let mut opened = Session::new(name, key, lease_end_ns, keep_ns);
        let control = opened.take_over();
        self.sessions.insert(session, opened);
        Ok(Speaker { session, control })
    }

    /// The key whose knowledge a client must prove to resume a session.
    pub(crate) fn key(
        &mut self,
        session: OwnerId,
        incarnation: u32,
        now_ns: u64,
    ) -> Result<SessionKey, Refused> {
        let ours = incarnation == self.incarnation;
        let there = self.there(session, now_ns).filter(|_| ours);
        there
            .map(|there| there.key().clone())
            .ok_or(Refused::NoSession)
    }

    /// Resumes a session over another control connection; its key was proved.
    pub(crate) fn resume(&mut self, session: OwnerId, now_ns: u64) -> Result<Speaker, Refused> {
        let renewed = self.renew(session, now_ns).ok_or(Refused::NoSession)?;
        let control = renewed.take_over();
        Ok(Speaker { session, control })
    }

    /// A request arrived: renews the lease, and keeps the session from being over until
    /// [`Sessions::done`].
    pub(crate) fn request(&mut self, speaker: Speaker, now_ns: u64) -> Result<(), Refused> {
        let there = self
            .there(speaker.session, now_ns)
            .ok_or(Refused::NoSession)?;
        if !there.is_spoken_for_by(speaker.control) {
            return Err(Refused::TakenOver);
        }
        let renewed = self.renew(speaker.session, now_ns);
        renewed.ok_or(Refused::NoSession)?.begin();
        Ok(())
    }

    /// Keeps a session that is there from being over until [`Sessions::release`]. Its lease is not
    /// renewed.
    pub(crate) fn hold(&mut self, session: OwnerId, now_ns: u64) -> bool {
        let there = self.there(session, now_ns);
        there.map(Session::begin).is_some()
    }

    /// Ends [`Sessions::hold`].
    pub(crate) fn release(&mut self, session: OwnerId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.done();
        }
    }

    /// The requests of a session that are being performed.
    pub(crate) fn requests(&self, session: OwnerId) -> u32 {
        self.sessions.get(&session).map_or(0, Session::requests)
    }

    /// The client of a session has heard that the node leaves.
    pub(crate) fn hear(&mut self, session: OwnerId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.hear();
        }
    }

    /// Whether each client that is not silent has heard that the node leaves.
    pub(crate) fn have_heard(&self) -> bool {
        self.sessions.values().all(Session::has_heard)
    }

    /// A request that [`Sessions::request`] accepted was performed.
    pub(crate) fn done(&mut self, speaker: Speaker) {
        self.release(speaker.session);
    }

    /// Ends a session.
    ///
    /// # Errors
    /// Another connection has taken it over, or it is over: nothing is changed.
    pub(crate) fn bye(&mut self, speaker: Speaker) -> Result<(), Refused> {
        let session = self.sessions.get_mut(&speaker.session);
        let session = session.ok_or(Refused::NoSession)?;
        if !session.is_spoken_for_by(speaker.control) {
            return Err(Refused::TakenOver);
        }
        session.end(End::Bye);
        Ok(())
    }

    /// A client has closed a control connection. If the session still used it, it is not kept after
    /// its lease: the client's process has ended, or will soon resume over another connection.
    pub(crate) fn left(&mut self, speaker: Speaker) {
        if let Some(session) = self.sessions.get_mut(&speaker.session) {
            session.leave(speaker.control);
        }
    }

    /// A line requests to be served. A line with a ticket counts as living until
    /// [`Sessions::ended`].
    pub(crate) fn join(
        &mut self,
        join: &Join,
        proof: &MemoryProof,
        now_ns: u64,
    ) -> Result<Ticket, Refusal> {
        let session = OwnerId::new(join.session).ok_or(Refusal::Session)?;
        self.tickets += 1;
        let number = self.tickets;
        let Some(live) = self.live(session, now_ns) else {
            // The time that a refusal takes does not show whether there is a session.
            black_box(SessionKey::of_none().is_memory_proof(join, proof));
            return Err(Refusal::Session);
        };
        live.join(number, join, proof)?;
        Ok(Ticket { session, number })
    }

    /// Whether the line may be served now.
    pub(crate) fn admission(&self, ticket: Ticket) -> Admission {
        self.sessions
            .get(&ticket.session)
            .map_or(Admission::Refused(Refusal::Session), |session| {
                session.admission(ticket.number)
            })
    }

    /// The line is served from now on; `line` closes it.
    pub(crate) fn served(&mut self, ticket: Ticket, line: L) {
        match self.sessions.get_mut(&ticket.session) {
            Some(session) => session.served(ticket.number, line),
            None => line.close(),
        }
    }

    /// A line has ended: no request of it is performed any more.
    pub(crate) fn ended(&mut self, ticket: Ticket) {
        if let Some(session) = self.sessions.get_mut(&ticket.session) {
            session.ended(ticket.number);
        }
    }

    /// Ends leases and sessions that are due, and returns those that are over. The caller reclaims
    /// their extents and says so.
    pub(crate) fn over(&mut self, now_ns: u64) -> Vec<Over> {
        let mut over = Vec::new();
        self.sessions.retain(|&session, one| {
            one.is_live(now_ns);
            let Some(end) = one.over() else {
                return true;
            };
            let name = std::mem::take(&mut one.name);
            over.push(Over { session, name, end });
            self.reclaiming.insert(session);
            false
        });
        over
    }

    /// The extents of a session that was over are free, or were left to be retried.
    pub(crate) fn reclaimed(&mut self, session: OwnerId) {
        self.reclaiming.remove(&session);
    }
}

#[cfg(test)]
mod tests;
