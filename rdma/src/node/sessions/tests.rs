//! Sessions through their lifetime, by cases and against a model under random steps.

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
    let over = sessions.over(LEASE_NS);
    assert_eq!(over.len(), 4);
    // They have their places until their extents are free.
    let error = sessions.open(String::new(), key(1), 0).unwrap_err();
    assert_eq!(error, Refused::Busy { sessions_max: 4 });
    assert!(over.iter().all(|one| sessions.holds(one.session)));
    for one in &over {
        sessions.reclaimed(one.session);
    }
    assert!(!over.iter().any(|one| sessions.holds(one.session)));
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
    sessions.bye(speaker).unwrap();
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
    assert_eq!(sessions.bye(old), Err(Refused::TakenOver));
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
                    let known = sessions.holds(speakers[which].session);
                    prop_assert_eq!(sessions.bye(speakers[which]).is_ok(), known);
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
                    prop_assert!(sessions.holds(one.session), "it still owns extents");
                    sessions.reclaimed(one.session);
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
        over.iter().for_each(|&one| sessions.reclaimed(one));
        prop_assert_eq!((sessions.len(), sessions.lines()), (0, 0));
    }
}
