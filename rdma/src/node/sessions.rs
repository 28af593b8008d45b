//! All sessions of a memory node, as a state machine without clock, socket or task. The caller
//! passes
//! the time.
//!
//! - I1: an id is never used twice: its high half is random in each incarnation of the node, its
//!   low
//!   half counts up.
//! - I2: [`Sessions::over`] returns each opened session exactly once, after its last line has ended
//!   and its last request was performed.

use std::collections::HashMap;
use std::io;

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
    sessions: HashMap<OwnerId, Session<L>>,
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
            sessions: HashMap::new(),
        }
    }

    /// A random incarnation for a starting node.
    pub(crate) fn random_incarnation() -> io::Result<u32> {
        getrandom::u32().map_err(io::Error::other)
    }

    pub(crate) fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Sessions that are not over.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
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
        let room = self.sessions.len() < self.sessions_max;
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

    /// A request that [`Sessions::request`] accepted was performed.
    pub(crate) fn done(&mut self, speaker: Speaker) {
        if let Some(session) = self.sessions.get_mut(&speaker.session) {
            session.done();
        }
    }

    /// Ends a session. No effect if another connection has taken it over.
    pub(crate) fn bye(&mut self, speaker: Speaker) {
        if let Some(session) = self.sessions.get_mut(&speaker.session)
            && session.is_spoken_for_by(speaker.control)
        {
            session.end(End::Bye);
        }
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
        let live = self.live(session, now_ns).ok_or(Refusal::Session)?;
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

    /// Ends leases and sessions that are due, and removes those that are over.
    pub(crate) fn over(&mut self, now_ns: u64) -> Vec<Over> {
        let mut over = Vec::new();
        self.sessions.retain(|&session, one| {
            one.is_live(now_ns);
            let Some(end) = one.over() else {
                return true;
            };
            let name = std::mem::take(&mut one.name);
            over.push(Over { session, name, end });
            false
        });
        over
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::{HashMap, HashSet};
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;
    use crate::control::token::Nonces;

    const LEASE_NS: u64 = 100;

    #[derive(Clone, Debug, Default)]
    struct Wire(Rc<Cell<bool>>);

    impl Line for Wire {
        fn close(&self) {
            self.0.set(true);
        }
    }

    fn key(byte: u8) -> SessionKey {
        let nonces = Nonces {
            client: [byte; 16],
            node: [0; 16],
        };
        SessionKey::derive(b"0123456789abcdef", &nonces)
    }

    fn sessions() -> Sessions<Wire> {
        keeping(0)
    }

    fn keeping(keep_ns: u64) -> Sessions<Wire> {
        let terms = Terms {
            lease_ns: LEASE_NS,
            keep_ns,
        };
        Sessions::new(5, terms, 4)
    }

    fn join(
        sessions: &mut Sessions<Wire>,
        speaker: Speaker,
        slot: u32,
        counter: u64,
        now_ns: u64,
    ) -> Result<Ticket, Refusal> {
        let join = Join {
            session: speaker.session.get(),
            slot,
            counter,
        };
        sessions.join(&join, &key(1).memory_proof(&join), now_ns)
    }

    #[test]
    fn ids_differ_and_carry_the_incarnation() {
        let mut sessions = sessions();
        let ids: HashSet<_> = (0..4)
            .map(|_| {
                sessions
                    .open(String::new(), key(1), 0)
                    .unwrap()
                    .session
                    .get()
            })
            .collect();
        assert_eq!(ids.len(), 4);
        assert!(ids.iter().all(|id| id >> 32 == 5));
        let error = sessions.open(String::new(), key(1), 0).unwrap_err();
        assert_eq!(error, Refused::Busy { sessions_max: 4 });
        assert_eq!(sessions.over(LEASE_NS).len(), 4);
        let again = sessions.open(String::new(), key(1), 0).unwrap();
        assert!(!ids.contains(&again.session.get()));
    }

    #[test]
    fn a_join_needs_a_fresh_proof() {
        let mut sessions = sessions();
        let speaker = sessions.open(String::new(), key(1), 0).unwrap();
        join(&mut sessions, speaker, 3, 7, 0).unwrap();
        for counter in [7, 6, 0] {
            let error = join(&mut sessions, speaker, 3, counter, 0).unwrap_err();
            assert_eq!(error, Refusal::Proof, "counter {counter} again");
        }
        // Another slot has its own counter.
        join(&mut sessions, speaker, 4, 6, 0).unwrap();
        let wrong = Join {
            session: speaker.session.get(),
            slot: 3,
            counter: 8,
        };
        let proof = key(2).memory_proof(&wrong);
        assert_eq!(
            sessions.join(&wrong, &proof, 0).unwrap_err(),
            Refusal::Proof
        );
        // A wrong proof does not use up the counter.
        join(&mut sessions, speaker, 3, 8, 0).unwrap();
        let error = join(&mut sessions, speaker, 4096, 1, 0).unwrap_err();
        assert_eq!(error, Refusal::Busy);
        let error = join(&mut sessions, speaker, 3, 9, LEASE_NS).unwrap_err();
        assert_eq!(error, Refusal::Session);
    }

    #[test]
    fn a_successor_waits_for_the_end_of_its_predecessor() {
        let mut sessions = sessions();
        let speaker = sessions.open(String::new(), key(1), 0).unwrap();
        let first = join(&mut sessions, speaker, 0, 1, 0).unwrap();
        assert_eq!(sessions.admission(first), Admission::Ready);
        let wire = Wire::default();
        sessions.served(first, wire.clone());
        let second = join(&mut sessions, speaker, 0, 2, 0).unwrap();
        assert!(wire.0.get());
        assert_eq!(sessions.admission(second), Admission::Wait);
        let third = join(&mut sessions, speaker, 0, 3, 0).unwrap();
        let gone = Admission::Refused(Refusal::Session);
        assert_eq!(sessions.admission(second), gone);
        sessions.ended(first);
        assert_eq!(sessions.admission(third), Admission::Wait);
        sessions.ended(second);
        assert_eq!(sessions.admission(third), Admission::Ready);
        // It was accepted, and its session ended before its closer was known.
        sessions.bye(speaker);
        let wire = Wire::default();
        sessions.served(third, wire.clone());
        assert!(wire.0.get());
        assert_eq!(sessions.over(0), []);
        sessions.ended(third);
        assert_eq!(sessions.over(0).len(), 1);
    }

    #[test]
    fn a_session_outlives_its_control_connection_and_not_its_lease() {
        let mut sessions = sessions();
        let old = sessions.open("a".into(), key(1), 0).unwrap();
        sessions.key(old.session, 5, 50).unwrap();
        let error = sessions.key(old.session, 6, 50).unwrap_err();
        assert_eq!(error, Refused::NoSession);
        let new = sessions.resume(old.session, 50).unwrap();
        assert_eq!(sessions.request(old, 60), Err(Refused::TakenOver));
        sessions.bye(old);
        assert_eq!(sessions.request(new, 149), Ok(()));
        sessions.done(new);
        assert_eq!(sessions.request(new, 249), Err(Refused::NoSession));
        assert_eq!(sessions.resume(old.session, 249), Err(Refused::NoSession));
        let over = Over {
            session: old.session,
            name: "a".into(),
            end: End::Expired,
        };
        assert_eq!(sessions.over(249), [over]);
    }

    #[test]
    fn a_kept_session_has_no_lines_and_can_be_resumed() {
        let mut sessions = keeping(50);
        let speaker = sessions.open("a".into(), key(1), 0).unwrap();
        let (served, waiting) = (Wire::default(), Wire::default());
        let old = join(&mut sessions, speaker, 0, 1, 0).unwrap();
        sessions.served(old, served.clone());
        let late = join(&mut sessions, speaker, 1, 2, 0).unwrap();
        assert_eq!(sessions.over(LEASE_NS), []);
        assert_eq!(sessions.kept().count(), 1);
        assert!(served.0.get());
        let gone = Admission::Refused(Refusal::Session);
        assert_eq!(sessions.admission(late), gone);
        let error = join(&mut sessions, speaker, 0, 3, LEASE_NS).unwrap_err();
        assert_eq!(error, Refusal::Session);
        // It is resumed: a line admitted before is still not served, and a new one waits for its
        // end.
        sessions.request(speaker, LEASE_NS + 49).unwrap();
        sessions.done(speaker);
        assert_eq!((sessions.kept().count(), sessions.revived()), (0, 1));
        assert_eq!(sessions.admission(late), gone);
        sessions.served(late, waiting.clone());
        assert!(waiting.0.get());
        let new = join(&mut sessions, speaker, 0, 3, LEASE_NS + 49).unwrap();
        assert_eq!(sessions.admission(new), Admission::Wait);
        sessions.ended(old);
        assert_eq!(sessions.admission(new), Admission::Ready);
        sessions.ended(new);
        sessions.ended(late);
        // After the time that it is kept, it is over.
        let end_ns = LEASE_NS + 49 + LEASE_NS + 50;
        assert_eq!(sessions.over(end_ns - 1), []);
        assert_eq!(sessions.over(end_ns).len(), 1);
        let error = sessions.resume(speaker.session, end_ns).unwrap_err();
        assert_eq!(error, Refused::NoSession);
    }

    #[test]
    fn a_session_whose_client_has_closed_its_connection_is_not_kept() {
        let mut sessions = keeping(50);
        let left = sessions.open("left".into(), key(1), 0).unwrap();
        let old = sessions.open("resumed".into(), key(1), 0).unwrap();
        sessions.left(left);
        let new = sessions.resume(old.session, 0).unwrap();
        // The end of the connection that it no longer uses has no effect.
        sessions.left(old);
        let over = sessions.over(LEASE_NS);
        assert_eq!(over.len(), 1, "{over:?}");
        assert_eq!(over[0].session, left.session);
        // The end of the one that it uses has, even later.
        sessions.left(new);
        assert_eq!(sessions.over(LEASE_NS).len(), 1);
    }

    #[derive(Clone, Debug)]
    enum Act {
        Open,
        Request(usize),
        Done(usize),
        Resume(usize),
        Bye(usize),
        Join(usize, u32),
        Serve(usize),
        End(usize),
        Pass(u64),
        Sweep,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let which = 0usize..8;
        let act = prop_oneof![
            2 => Just(Act::Open),
            2 => which.clone().prop_map(Act::Request),
            2 => which.clone().prop_map(Act::Done),
            1 => which.clone().prop_map(Act::Resume),
            1 => which.clone().prop_map(Act::Bye),
            4 => (which.clone(), 0u32..2).prop_map(|(which, slot)| Act::Join(which, slot)),
            4 => which.clone().prop_map(Act::Serve),
            4 => which.prop_map(Act::End),
            2 => (1..80u64).prop_map(Act::Pass),
            3 => Just(Act::Sweep),
        ];
        prop::collection::vec(act, 1..120)
    }

    /// A line as the test sees it.
    struct Seen {
        ticket: Ticket,
        slot: u32,
        served: Option<Wire>,
    }

    proptest! {
        #[test]
        fn extents_are_reclaimed_only_from_sessions_that_are_over(
            acts in acts(),
            keep_ns in prop_oneof![Just(0), 1..150u64],
        ) {
            let mut sessions = keeping(keep_ns);
            let (mut now_ns, mut counter) = (0, 0);
            let mut speakers: Vec<Speaker> = Vec::new();
            // What a client relies on: its session lives until then, and is kept afterwards unless
            // the client ended it.
            let mut lease: HashMap<OwnerId, u64> = HashMap::new();
            let mut gone: HashSet<OwnerId> = HashSet::new();
            let mut lines: Vec<Seen> = Vec::new();
            // Requests in progress.
            let mut requests: Vec<Speaker> = Vec::new();
            let mut over: HashSet<OwnerId> = HashSet::new();
            for act in acts {
                match act {
                    Act::Open => if let Ok(speaker) = sessions.open(String::new(), key(1), now_ns) {
                        speakers.push(speaker);
                        lease.insert(speaker.session, now_ns + LEASE_NS);
                    },
                    Act::Request(which) | Act::Resume(which) if which < speakers.len() => {
                        let speaker = speakers[which];
                        let there = lease[&speaker.session] + keep_ns > now_ns
                            && !gone.contains(&speaker.session);
                        let done = if matches!(act, Act::Request(_)) {
                            sessions.request(speaker, now_ns).map(|()| requests.push(speaker))
                        } else {
                            sessions.resume(speaker.session, now_ns).map(|new| speakers[which] = new)
                        };
                        prop_assert_eq!(done.is_ok(), there);
                        if there {
                            lease.insert(speaker.session, now_ns + LEASE_NS);
                        }
                    }
                    Act::Done(which) if which < requests.len() => {
                        sessions.done(requests.swap_remove(which));
                    }
                    Act::Bye(which) if which < speakers.len() => {
                        sessions.bye(speakers[which]);
                        lease.insert(speakers[which].session, 0);
                        gone.insert(speakers[which].session);
                    }
                    Act::Join(which, slot) if which < speakers.len() => {
                        counter += 1;
                        let session = speakers[which].session;
                        let joined = join(&mut sessions, speakers[which], slot, counter, now_ns);
                        prop_assert_eq!(joined.is_ok(), lease[&session] > now_ns);
                        if let Ok(ticket) = joined {
                            lines.push(Seen { ticket, slot, served: None });
                        }
                    }
                    Act::Serve(which) if which < lines.len() && lines[which].served.is_none() => {
                        let (ticket, slot) = (lines[which].ticket, lines[which].slot);
                        if sessions.admission(ticket) == Admission::Ready {
                            let rival = lines.iter().any(|one| {
                                one.served.is_some() && one.slot == slot && one.ticket.session == ticket.session
                            });
                            prop_assert!(!rival, "two lines of one slot are served");
                            let wire = Wire::default();
                            sessions.served(ticket, wire.clone());
                            lines[which].served = Some(wire);
                        }
                    }
                    Act::End(which) if which < lines.len() => {
                        sessions.ended(lines.swap_remove(which).ticket);
                    }
                    Act::Pass(ns) => now_ns += ns,
                    Act::Sweep => {
                        let ended = sessions.over(now_ns);
                        for (id, _) in sessions.kept() {
                            let mut theirs = lines.iter().filter(|line| line.ticket.session == id);
                            prop_assert!(
                                theirs.all(|line| line.served.as_ref().is_none_or(|wire| wire.0.get())),
                                "a line of a kept session can write"
                            );
                        }
                        for one in ended {
                        prop_assert!(over.insert(one.session), "twice");
                        let kept = lease[&one.session] + keep_ns > now_ns;
                        prop_assert!(!kept || gone.contains(&one.session), "it must be kept");
                        let alive = lines.iter().any(|line| line.ticket.session == one.session);
                        prop_assert!(!alive, "a line of it lives");
                        let busy = requests.iter().any(|speaker| speaker.session == one.session);
                        prop_assert!(!busy, "a request of it is in progress");
                        }
                    },
                    _ => {}
                }
            }
            // The clients fall silent: their lines are closed, and then every session is over.
            now_ns += LEASE_NS + keep_ns;
            let early = sessions.over(now_ns);
            prop_assert!(early.iter().all(|one| !lines.iter().any(|line| line.ticket.session == one.session)));
            over.extend(early.into_iter().map(|one| one.session));
            for line in lines {
                prop_assert!(line.served.is_none_or(|wire| wire.0.get()), "not closed");
                sessions.ended(line.ticket);
            }
            for speaker in requests {
                sessions.done(speaker);
            }
            over.extend(sessions.over(now_ns).into_iter().map(|one| one.session));
            prop_assert_eq!(over.len(), lease.len());
            prop_assert_eq!((sessions.len(), sessions.lines()), (0, 0));
        }
    }
}
