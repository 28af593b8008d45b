//! Two connections back to back, without sockets: bytes in any pieces, cuts at any place, and
//! meaningless bytes.

#![allow(unsafe_code)] // tests read and write the regions

use std::sync::Arc;

use proptest::prelude::*;

use super::connection::Connection;
use super::exposed::Exposed;
use super::wire::{Header, Opcode, WireError};
use crate::region::{Lock, Region, RegionOptions};
use crate::work::{
    Completion, LocalKey, LocalSlice, RemoteKey, RemoteSlice, Status, Work, WorkId, WorkRequest,
};

const KEY: RemoteKey = RemoteKey(9);
const BYTES: usize = 256 << 10;
const DEPTH: usize = 8;

fn region() -> Arc<Region> {
    let options = RegionOptions {
        bytes: BYTES,
        huge_pages: false,
        lock: Lock::Off,
        prefault: false,
    };
    Arc::new(Region::map(&options).unwrap())
}

fn at(region: &Region, offset: usize) -> *mut u8 {
    assert!(offset < BYTES);
    region.as_ptr().as_ptr().wrapping_add(offset)
}

/// Moves up to `limit` bytes of one end's output into the other end; false if there were none.
fn carry(from: &mut Connection, to: &mut Connection, limit: usize) -> bool {
    let mut piece = vec![0; limit.max(1)];
    let bytes = from.output.first(&mut piece);
    let (target, room, direct) = to.spare();
    let bytes = bytes.min(room);
    // SAFETY: the connection provided a place for this many bytes.
    unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), target, bytes) };
    if direct {
        to.filled_direct(bytes);
    } else {
        to.filled(bytes);
    }
    from.output.advance(bytes);
    bytes > 0
}

#[derive(Clone, Debug)]
struct Act {
    kind: u8,
    place: u16,
    bytes: u32,
    signalled: bool,
    ring: bool,
    steps: Vec<(bool, usize)>,
}

fn act() -> impl Strategy<Value = Act> {
    let bytes = prop_oneof![4 => 0u32..200, 2 => 900u32..1200, 1 => 8_000u32..70_000];
    let steps = prop::collection::vec(
        (
            any::<bool>(),
            prop_oneof![1usize..60, 100usize..5_000, Just(200_000usize)],
        ),
        0..12,
    );
    (0u8..6, 0u16..64, bytes, any::<bool>(), any::<bool>(), steps).prop_map(
        |(kind, place, bytes, signalled, ring, steps)| Act {
            kind,
            place,
            bytes,
            signalled,
            ring,
            steps,
        },
    )
}

fn work(act: &Act) -> Work {
    let offset = u64::from(act.place) * 1024;
    let local = LocalSlice {
        key: LocalKey(0),
        offset,
        bytes: act.bytes,
    };
    let word = LocalSlice { bytes: 8, ..local };
    let remote = RemoteSlice { key: KEY, offset };
    match act.kind {
        0 | 1 => Work::Read { local, remote },
        2 => Work::Write { local, remote },
        3 => Work::FetchAdd {
            local: word,
            remote,
            addend: 3,
        },
        4 => Work::CompareAndSwap {
            local: word,
            remote,
            expected: 0,
            desired: 7,
        },
        // Rarely a request that is refused.
        _ if act.place < 3 => Work::Read {
            local: word,
            remote: RemoteSlice {
                key: KEY,
                offset: BYTES as u64,
            },
        },
        _ => Work::Write {
            local: word,
            remote,
        },
    }
}

fn take(connection: &mut Connection, into: &mut Vec<Completion>) {
    while let Some(completion) = connection.take_completion() {
        into.push(completion);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn whatever_happens_each_request_completes_once_and_in_order(
        acts in prop::collection::vec(act(), 1..60),
        cut in prop::option::of(0usize..60),
    ) {
        let (local, remote) = (region(), region());
        let mut near = Connection::new(DEPTH, Exposed::default());
        let mut far = Connection::new(0, Exposed::new(vec![(KEY, Arc::clone(&remote))]));
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        let mut down = false;
        for (number, act) in acts.iter().enumerate() {
            let request = WorkRequest { id: WorkId(number as u64), work: work(act), signalled: act.signalled };
            let offset = usize::try_from(request.work.local().offset).unwrap();
            if near.post(request, at(&local, offset)).is_ok() {
                sent.push(request);
            }
            if act.ring {
                near.ring();
            }
            for &(there, bytes) in &act.steps {
                if there {
                    carry(&mut near, &mut far, bytes);
                    prop_assert_eq!(far.process(), Ok(()));
                } else {
                    carry(&mut far, &mut near, bytes);
                    prop_assert_eq!(near.process(), Ok(()));
                }
            }
            take(&mut near, &mut got);
            if cut == Some(number) || near.is_refused() {
                near.fail(if near.is_refused() { Status::Flushed } else { Status::RetryExceeded });
                down = true;
                break;
            }
        }
        near.ring();
        while !down && (carry(&mut near, &mut far, 100_000) | carry(&mut far, &mut near, 100_000)) {
            prop_assert_eq!(far.process(), Ok(()));
            prop_assert_eq!(near.process(), Ok(()));
            take(&mut near, &mut got);
            if near.is_refused() {
                near.fail(Status::Flushed);
                down = true;
            }
        }
        take(&mut near, &mut got);
        prop_assert_eq!(near.outstanding(), 0);
        let mut next = 0;
        for completion in &got {
            // In order, each once; those in between were unsignalled successes.
            let place = sent[next..].iter().position(|request| request.id == completion.id);
            prop_assert!(place.is_some(), "{:?} is unknown, twice or out of order", completion);
            let place = next + place.unwrap();
            prop_assert!(sent[next..place].iter().all(|request| !request.signalled));
            prop_assert!(completion.status != Status::Success || sent[place].signalled);
            next = place + 1;
        }
        prop_assert!(sent[next..].iter().all(|request| !request.signalled));
        if !down {
            prop_assert!(got.iter().all(|completion| completion.status == Status::Success));
        }
    }

    #[test]
    fn random_bytes_are_an_error_and_not_a_crash(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20),
        opcodes in prop::collection::vec(any::<u8>(), 0..20),
        depth in 0usize..3,
        posted in any::<bool>(),
    ) {
        let (local, remote) = (region(), region());
        let mut connection = Connection::new(depth, Exposed::new(vec![(KEY, remote)]));
        if posted {
            let act = Act { kind: 0, place: 1, bytes: 100, signalled: true, ring: true, steps: vec![] };
            let request = WorkRequest { id: WorkId(1), work: work(&act), signalled: true };
            let _ = connection.post(request, at(&local, 1024));
            connection.ring();
        }
        for (place, mut piece) in pieces.into_iter().enumerate() {
            // Some that begin like a frame.
            if let (Some(&opcode), Some(first)) = (opcodes.get(place), piece.first_mut()) {
                *first = opcode % 70;
                for byte in piece.iter_mut().skip(4).take(4) {
                    *byte = 0;
                }
                for byte in piece.iter_mut().skip(13).take(3) {
                    *byte = 0;
                }
            }
            for part in piece.chunks(33) {
                let spare = connection.spare_buffer();
                if spare.len() < part.len() {
                    return Ok(());
                }
                spare[..part.len()].copy_from_slice(part);
                connection.filled(part.len());
                if connection.process().is_err() {
                    connection.fail(Status::RetryExceeded);
                    prop_assert_eq!(connection.outstanding(), usize::from(connection.has_completions()));
                    return Ok(());
                }
            }
        }
    }
}

fn write(bytes: u32) -> WorkRequest {
    let local = LocalSlice {
        key: LocalKey(0),
        offset: 0,
        bytes,
    };
    let remote = RemoteSlice {
        key: KEY,
        offset: 0,
    };
    WorkRequest {
        id: WorkId(1),
        work: Work::Write { local, remote },
        signalled: true,
    }
}

fn deliver(connection: &mut Connection, header: &Header) {
    let bytes = header.encode();
    connection.spare_buffer()[..bytes.len()].copy_from_slice(&bytes);
    connection.filled(bytes.len());
}

#[test]
fn an_unsent_request_cannot_be_acknowledged() {
    let local = region();
    let mut near = Connection::new(DEPTH, Exposed::default());
    near.post(write(100_000), at(&local, 0)).unwrap();
    near.ring();
    near.output.advance(50_000);
    deliver(&mut near, &Header::new(Opcode::Acknowledge, 0));
    assert_eq!(near.process(), Err(WireError::Sequence(0)));
    assert!(!near.has_completions());
}

#[test]
fn a_refusal_ends_the_connection_before_the_rest_of_its_payload_is_sent() {
    let local = region();
    let mut near = Connection::new(DEPTH, Exposed::default());
    near.post(write(100_000), at(&local, 0)).unwrap();
    near.ring();
    near.output.advance(50_000);
    let refusal = Header {
        status: 1,
        ..Header::new(Opcode::Refuse, 0)
    };
    deliver(&mut near, &refusal);
    assert_eq!(near.process(), Ok(()));
    assert_eq!(
        near.take_completion().map(|one| one.status),
        Some(Status::RemoteAccess)
    );
    assert!(near.is_over() && !near.output.is_empty());
}

#[test]
fn requests_of_its_own_hold_up_no_request_of_an_equal_peer() {
    const OWN: usize = 5_000;
    let memory = region();
    let end = || {
        let exposed = Exposed::new(vec![(KEY, Arc::clone(&memory))]);
        Connection::new(OWN, exposed)
    };
    let (mut near, mut far) = (end(), end());
    let read = |id: usize| WorkRequest {
        id: WorkId(id as u64),
        work: Work::Read {
            local: LocalSlice {
                key: LocalKey(0),
                offset: 0,
                bytes: 8,
            },
            remote: RemoteSlice {
                key: KEY,
                offset: 1024,
            },
        },
        signalled: true,
    };
    for end in [&mut near, &mut far] {
        for id in 0..OWN {
            end.post(read(id), at(&memory, 0)).unwrap();
        }
        end.ring();
    }
    assert!(near.held_bytes() > 128 << 10, "more than a node lets wait");
    // A peer that waits for its own output to leave takes in no more: neither would ever go on.
    for _ in 0..100 {
        carry(&mut near, &mut far, 4 << 10);
        carry(&mut far, &mut near, 4 << 10);
        near.process().unwrap();
        far.process().unwrap();
        assert!(!near.is_held() && !far.is_held());
    }
    for end in [&mut near, &mut far] {
        let mut done = Vec::new();
        take(end, &mut done);
        assert!(!done.is_empty() && done.iter().all(|one| one.status == Status::Success));
    }
}

/// A node's end of a connection, with requests for READs that have arrived.
fn with_reads(depth: usize, reads: u32, bytes: u32) -> Connection {
    let mut far = Connection::new(depth, Exposed::new(vec![(KEY, region())]));
    for sequence in 0..reads {
        let read = Header {
            key: KEY,
            bytes,
            ..Header::new(Opcode::Read, sequence)
        };
        deliver(&mut far, &read);
    }
    far
}

#[test]
fn long_answers_wait_although_they_take_no_memory() {
    const LONG: u32 = 200 << 10;
    let mut far = with_reads(0, 100, LONG);
    let mut served = 0;
    while served < 100 {
        far.process_within(usize::MAX).unwrap();
        let waiting = far.output.waiting_bytes();
        assert!(waiting <= (1 << 20) + 2 * LONG as usize, "{waiting}");
        far.output.advance(waiting);
        let more = far.take_served().reads;
        assert!(more > 0 && (served + more == 100) != far.is_held());
        served += more;
    }
}

#[test]
fn an_equal_peer_that_reads_no_answers_is_closed() {
    const READS: u32 = 1_000;
    let mut far = with_reads(DEPTH, 0, 0);
    let mut sequence = 0;
    let (mut seen, mut ended) = (0, None);
    while ended.is_none() {
        // Each kind of request that has an answer of its own.
        for opcode in [Opcode::Read, Opcode::FetchAdd].repeat(READS as usize / 2) {
            let request = Header {
                key: KEY,
                bytes: 8,
                ..Header::new(opcode, sequence)
            };
            deliver(&mut far, &request);
            sequence += 1;
        }
        ended = far.process().err();
        seen = far.held_bytes();
        assert!(seen < 4 << 20, "{seen} bytes");
    }
    assert_eq!(ended, Some(WireError::Unread(seen)));
    // A peer that is many times as deep as this side and reads late is honest.
    assert!(sequence > 8 * READS, "{sequence} requests");
}

#[test]
fn the_bytes_of_a_write_count_when_they_have_arrived() {
    const BYTES: u32 = 1_000;
    let mut far = with_reads(0, 0, 0);
    let write = Header {
        key: KEY,
        bytes: BYTES,
        ..Header::new(Opcode::Write, 0)
    };
    deliver(&mut far, &write);
    let mut arrive = |bytes: usize| {
        far.spare_buffer()[..bytes].fill(7);
        far.filled(bytes);
        far.process_within(usize::MAX).unwrap();
        let served = far.take_served();
        (served.writes, served.write_bytes)
    };
    assert_eq!(arrive(999), (1, 0));
    assert_eq!(arrive(1), (0, u64::from(BYTES)));
}
