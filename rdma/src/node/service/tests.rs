//! The state of a node without threads and sockets.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::*;
use crate::control::token::Nonces;
use crate::control::{CALL_BYTES_MAX, SessionKey};
use crate::node::memory::MemoryOptions;
use crate::node::procedures::Procedures;
use crate::region::Lock;
use crate::tcp::{Access, Attempt, Change, RemoteRange};

const EXTENT: u64 = 64 << 10;

/// A node of 8 extents without threads, whose device fails from a given swap on.
fn service() -> (Service, Arc<AtomicU32>) {
    let memory = MemoryOptions {
        region_bytes: 8 * EXTENT,
        extent_bytes: EXTENT,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(8 * EXTENT)
    };
    let options = NodeOptions::new(([127, 0, 0, 1], 0).into(), memory);
    let mut memory = NodeMemory::register(&memory, &|_| {}).expect("a few pages");
    let from = memory.fail_swaps_from();
    let terms = crate::node::sessions::Terms {
        lease_ns: nanoseconds(options.lease),
        keep_ns: nanoseconds(options.keep),
    };
    let sessions = Sessions::new(5, terms, options.sessions_max);
    (Service::new(options, memory, sessions), from)
}

fn open(service: &Service) -> Speaker {
    let nonces = Nonces {
        client: [1; 16],
        node: [2; 16],
    };
    let key = SessionKey::derive(b"0123456789abcdef", &nonces);
    let opened = service
        .sessions()
        .open("test".into(), key, service.now_ns());
    opened.expect("the first")
}

/// An isolated node of two extents of 1 MiB, and a session that owns the first.
fn isolated() -> (Arc<Service>, Speaker, ExtentRun) {
    let memory = MemoryOptions {
        region_bytes: 2 << 20,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(2 << 20)
    };
    let mut options = NodeOptions::new(([127, 0, 0, 1], 0).into(), memory);
    options.isolate = true;
    let memory = NodeMemory::register(&memory, &|_| {}).expect("some pages");
    let terms = crate::node::sessions::Terms {
        lease_ns: nanoseconds(options.lease),
        keep_ns: 0,
    };
    let sessions = Sessions::new(5, terms, options.sessions_max);
    let service = Arc::new(Service::new(options, memory, sessions));
    let speaker = open(&service);
    let run = service.allocate(speaker, 1 << 20).expect("an extent");
    (service, speaker, run)
}

fn free(service: &Service, speaker: Speaker, run: ExtentRun) -> Performed {
    let free = Request::FreeChunk(run.into()).encode();
    service.perform(speaker, &free).expect("its own")
}

fn range(service: &Service, run: ExtentRun, bytes: u32) -> RemoteRange {
    let start = service.memory.map().slice(run.first(), 0).expect("inside");
    RemoteRange {
        key: start.key,
        offset: start.offset,
        bytes,
    }
}

#[test]
fn what_was_not_written_is_freed_at_once() {
    let (service, speaker, run) = isolated();
    assert!(matches!(free(&service, speaker, run), Performed::Whole(_)));
    assert_eq!(service.memory.table().free_count(), 2);
}

#[test]
fn what_was_written_is_cleared_in_parts_between_which_others_have_their_turn() {
    let (service, speaker, run) = isolated();
    let permissions = service.exposed(speaker.session);
    let whole = range(&service, run, 1 << 20);
    let begin = || permissions.begin(Access::Write, whole).expect("its own");
    begin();
    assert!(matches!(free(&service, speaker, run), Performed::Waits));
    permissions.end(whole);
    let mut parts = 0;
    while matches!(free(&service, speaker, run), Performed::InPart) {
        assert_eq!(service.memory.table().free_count(), 1);
        parts += 1;
    }
    assert_eq!(parts, (1 << 20) / CLEAR_BYTES - 1);
    assert_eq!(service.memory.table().free_count(), 2);
    // Freeing by swaps of the owner word, of which one never clears more than a part.
    let run = service.allocate(speaker, 1 << 20).expect("an extent");
    begin();
    permissions.end(whole);
    let word = service.memory.map().owner_slice(run.first());
    let swap = Change::Swap {
        expected: speaker.session.get(),
        desired: 0,
    };
    let attempt = || permissions.atomic(word.key, word.offset, swap);
    for _ in 0..(1 << 20) / CLEAR_BYTES {
        assert_eq!(attempt(), Ok(Attempt::More));
    }
    assert_eq!(attempt(), Ok(Attempt::Done(speaker.session.get())));
}

#[test]
fn an_owner_word_that_names_no_session_is_swept() {
    let (service, _) = service();
    let speaker = open(&service);
    let allocate = Request::AllocateChunk { bytes: 3 * EXTENT }.encode();
    service.perform(speaker, &allocate).expect("memory");
    service.memory.table().plant(6, u64::MAX);
    service.memory.table().plant(7, 12345);
    service.free_unknown_owners(&MaintenanceState::default());
    let seen = service.memory.table().audit();
    assert_eq!((seen.owned, seen.owners_without_bit), (3, 0));
    assert_eq!(service.statistics().extents_reclaimed, 2);
    assert_eq!(service.memory.table().owned_count(speaker.session), 3);
}

#[test]
fn extents_that_the_device_could_not_free_are_counted_and_freed_later() {
    let (service, from) = service();
    let speaker = open(&service);
    let allocate = Request::AllocateChunk { bytes: 3 * EXTENT }.encode();
    service.perform(speaker, &allocate).expect("memory");
    service
        .perform(speaker, &Request::Bye.encode())
        .expect("a farewell");
    from.store(0, Ordering::Relaxed);
    let mut state = MaintenanceState::default();
    service.maintain(&mut state);
    let seen = service.statistics();
    assert_eq!((seen.sessions, seen.extents_free), (0, 5));
    assert_eq!((seen.extents_stuck, seen.take_backs_failed), (3, 1));
    service.free_stuck(&mut state);
    let seen = service.statistics();
    assert_eq!((seen.extents_stuck, seen.take_backs_failed), (3, 2));
    from.store(u32::MAX, Ordering::Relaxed);
    service.free_stuck(&mut state);
    let seen = service.statistics();
    assert_eq!((seen.extents_stuck, seen.take_backs_failed), (0, 2));
    assert_eq!((seen.extents_free, seen.extents_reclaimed), (8, 3));
    assert!(state.stuck.is_empty());
}

#[test]
fn a_session_whose_bytes_the_host_uses_is_not_over() {
    let (service, _) = service();
    let service = Arc::new(service);
    let (speaker, other) = (open(&service), open(&service));
    let run = service.allocate(speaker, EXTENT).expect("an extent");
    let range = range(&service, run, 8);
    let new = |session| NodeBytes::new(service.keeper(), session, Access::Write, range);
    let bytes = new(speaker.session).expect("its own");
    assert!(new(other.session).is_none(), "another's");
    service.sessions().bye(speaker).expect("it is open");
    assert!(new(speaker.session).is_none(), "it has ended");
    let over = || service.sessions().over(service.now_ns()).len();
    assert_eq!(over(), 0);
    bytes.write(0, &[1; 8]).expect("inside");
    drop(bytes);
    assert_eq!(over(), 1);
}

#[test]
fn a_session_has_a_few_calls_and_each_is_counted_until_it_ends() {
    let (mut service, _) = service();
    service.options.procedures = Procedures::new().with("any", |_, _| Ok(Vec::new()));
    let service = Arc::new(service);
    let (speaker, other) = (open(&service), open(&service));
    let call = |procedure: &str, bytes| Call {
        procedure: procedure.to_owned(),
        argument: vec![0; bytes],
        target: None,
        limit_ms: 0,
    };
    let accept = |speaker| service.accept(speaker, call("any", 0));
    let few = (0..SESSION_CALLS_MAX).map(|_| accept(speaker).expect("one of a few"));
    let mut jobs: Vec<_> = few.collect();
    let calls_max = u64::from(SESSION_CALLS_MAX);
    assert_eq!(
        accept(speaker).err(),
        Some(Refused::TooManyCalls { calls_max })
    );
    jobs.push(accept(other).expect("the first of another session"));
    assert_eq!(jobs.pop().map(Job::run), Some(Ok(Vec::new())));
    jobs.clear();
    assert_eq!(
        service.accept(other, call("none", 0)).err(),
        Some(Refused::NoProcedure)
    );
    assert_eq!(service.calls.load(Ordering::Relaxed), 0);
    assert_eq!(service.sessions().requests(speaker.session), 0);
    let long = service.accept(other, call("any", CALL_BYTES_MAX + 1));
    assert!(long.expect("it is refused when run").run().is_err());
    service.stop();
    assert_eq!(accept(speaker).err(), Some(Refused::Stopping));
}

#[test]
fn what_another_session_still_accesses_is_not_freed_with_its_owner() {
    let (service, speaker, run) = isolated();
    let permissions = service.exposed(speaker.session);
    let word = range(&service, run, 8);
    permissions.begin(Access::Write, word).expect("its own");
    service.sessions().bye(speaker).expect("it is open");
    let mut state = MaintenanceState::default();
    service.maintain(&mut state);
    let owner = || service.memory.table().owner(run.first());
    assert_eq!(owner(), Some(speaker.session));
    service.free_stuck(&mut state);
    service.free_unknown_owners(&state);
    assert_eq!(owner(), Some(speaker.session));
    permissions.end(word);
    service.free_stuck(&mut state);
    assert_eq!(owner(), None);
    assert_eq!(service.memory.table().free_count(), 2);
}
