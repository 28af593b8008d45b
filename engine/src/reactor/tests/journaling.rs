//! Answers and the journal: none leaves before what it may depend on is durable.

use std::sync::{Arc, Mutex, PoisonError};

use super::{TestTime, alone};
use crate::disk::{Disk, DiskCompletion, DiskError, DiskRefused, DiskRequest, DiskWork};
use crate::message::operation::{Operation, RequestParts};
use crate::message::outcome::Answer;
use crate::reactor::{JournalCommand, JournalFile, JournalPort, JournalSync, Reactor};
use crate::storage::{FREE_BYTES, FileKind, FileWriter, SuperBlock};

/// What becomes of syncs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Syncs {
    Done,
    Held,
    Failed,
}

#[derive(Debug)]
struct Inside {
    syncs: Syncs,
    waiting: Vec<DiskRequest>,
}

/// A disk that performs writes at once, and syncs as the test says.
#[derive(Clone, Debug)]
struct TestDisk(Arc<Mutex<Inside>>);

impl TestDisk {
    fn new() -> Self {
        let inside = Inside {
            syncs: Syncs::Done,
            waiting: Vec::new(),
        };
        Self(Arc::new(Mutex::new(inside)))
    }

    fn set(&self, syncs: Syncs) {
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inside.syncs = syncs;
    }

    fn file(&self, generation: u64) -> Box<JournalFile> {
        let super_block = SuperBlock {
            kind: FileKind::Log,
            generation,
            shard: 0,
            shards: 1,
            salt: [7; 16],
            unix_ms: 0,
            seed: 1,
            hash_tags: false,
            free: [0; FREE_BYTES],
        };
        let disk: Box<dyn Disk + Send> = Box::new(self.clone());
        Box::new(FileWriter::new(disk, &super_block, None, 2))
    }
}

impl Disk for TestDisk {
    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn room(&self) -> usize {
        8
    }

    fn submit(&mut self, request: DiskRequest) -> Result<(), DiskRefused> {
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inside.waiting.push(request);
        Ok(())
    }

    fn poll(&mut self, each: &mut dyn FnMut(DiskCompletion)) -> usize {
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let syncs = inside.syncs;
        let is_held =
            |request: &DiskRequest| syncs == Syncs::Held && matches!(request.work, DiskWork::Sync);
        let (held, done): (Vec<_>, Vec<_>) = inside.waiting.drain(..).partition(is_held);
        inside.waiting = held;
        let count = done.len();
        for DiskRequest { token, work } in done {
            let has_failed = syncs == Syncs::Failed && matches!(work, DiskWork::Sync);
            each(DiskCompletion {
                token,
                result: match has_failed {
                    true => Err(DiskError::Io { errno: 5 }),
                    false => Ok(()),
                },
                buffer: work.into_buffer(),
            });
        }
        count
    }
}

type TestReactor = Reactor<farcore_rdma::EmbeddedEndpoint, TestTime>;

fn begin(reactor: &TestReactor, generation: u64, disk: &TestDisk) {
    let file = disk.file(generation);
    let sync = JournalSync::Always;
    reactor.command_port.journal.give(JournalCommand::Begin {
        generation,
        file,
        sync,
    });
}

fn submit(reactor: &mut TestReactor, client: u16, operation: &Operation<'_>) {
    let parts = RequestParts::plain(operation).unwrap();
    assert!(reactor.submit(client, 1, &parts));
}

/// Polls for a client for a while; how many answers it has visited, and whether the last is an
/// error.
fn poll(reactor: &mut TestReactor, time: &TestTime, client: u16) -> (usize, bool) {
    let (mut count, mut is_failed) = (0, false);
    for _ in 0..500 {
        time.0.set(time.0.get() + 1_000_000);
        count += reactor.poll_for(client, &mut |_, answer: Answer<'_>| {
            is_failed = matches!(answer, Answer::Failed(_));
        });
    }
    (count, is_failed)
}

const PUT: Operation<'static> = Operation::Put {
    key: b"key",
    value: b"value",
};
const GET: Operation<'static> = Operation::Get { key: b"key" };

#[test]
fn neither_a_change_nor_what_has_seen_it_is_answered_before_it_is_durable() {
    let time = TestTime::default();
    let mut reactor = alone(time.clone());
    let (writer, reader) = (
        reactor.replies().add_client().unwrap(),
        reactor.replies().add_client().unwrap(),
    );
    let disk = TestDisk::new();
    begin(&reactor, 1, &disk);
    // What depends on nothing is answered.
    submit(&mut reactor, reader, &GET);
    assert_eq!(poll(&mut reactor, &time, reader), (1, false));
    disk.set(Syncs::Held);
    submit(&mut reactor, writer, &PUT);
    submit(&mut reactor, reader, &GET);
    assert_eq!(poll(&mut reactor, &time, writer).0, 0);
    assert_eq!(poll(&mut reactor, &time, reader).0, 0);
    disk.set(Syncs::Done);
    assert_eq!(poll(&mut reactor, &time, writer), (1, false));
    assert_eq!(poll(&mut reactor, &time, reader), (1, false));
}

#[test]
fn a_file_whose_sync_has_failed_holds_its_answers_until_a_base_has_them() {
    let time = TestTime::default();
    let mut reactor = alone(time.clone());
    let client = reactor.replies().add_client().unwrap();
    let disk = TestDisk::new();
    begin(&reactor, 1, &disk);
    poll(&mut reactor, &time, client);
    disk.set(Syncs::Failed);
    submit(&mut reactor, client, &PUT);
    assert_eq!(poll(&mut reactor, &time, client).0, 0);
    assert!(reactor.command_port.journal.is_lost());
    let appended = reactor.command_port.journal.appended();
    begin(&reactor, 2, &TestDisk::new());
    assert_eq!(poll(&mut reactor, &time, client).0, 0);
    // The keeper does not wait for what is given up.
    assert!(reactor.command_port.journal.synced() >= appended);
    let settled = JournalCommand::Settled { generation: 2 };
    reactor.command_port.journal.give(settled);
    assert_eq!(poll(&mut reactor, &time, client), (1, false));
    assert!(!reactor.command_port.journal.is_failing());
    submit(&mut reactor, client, &PUT);
    assert_eq!(poll(&mut reactor, &time, client), (1, false));
}

#[test]
fn syncs_are_timed_and_what_waits_for_one_is_counted() {
    let time = TestTime::default();
    let mut reactor = alone(time.clone());
    let client = reactor.replies().add_client().unwrap();
    let disk = TestDisk::new();
    begin(&reactor, 1, &disk);
    poll(&mut reactor, &time, client);
    let port = Arc::clone(&reactor.command_port.journal);
    let count = |port: &JournalPort| port.sync_times().unwrap().count();
    assert_eq!((count(&port), port.unsynced(time.0.get())), (0, (0, 0)));
    disk.set(Syncs::Held);
    submit(&mut reactor, client, &PUT);
    poll(&mut reactor, &time, client);
    let (bytes, age_ns) = port.unsynced(time.0.get());
    // A poll is 500 ms long.
    assert!(bytes > 0 && age_ns > 400_000_000, "{bytes} {age_ns}");
    assert_eq!(count(&port), 0);
    disk.set(Syncs::Done);
    assert_eq!(poll(&mut reactor, &time, client), (1, false));
    assert_eq!((count(&port), port.unsynced(time.0.get())), (1, (0, 0)));
    assert!(port.last_sync_ns() > 400_000_000);
    assert_eq!(port.sync_times().unwrap().max(), port.last_sync_ns());
    // A sync that fails is none, and what it should have made durable still waits.
    disk.set(Syncs::Failed);
    submit(&mut reactor, client, &PUT);
    poll(&mut reactor, &time, client);
    assert!(port.is_lost() && port.unsynced(time.0.get()).1 > 400_000_000);
    assert_eq!(count(&port), 1);
    begin(&reactor, 2, &TestDisk::new());
    poll(&mut reactor, &time, client);
    reactor
        .command_port
        .journal
        .give(JournalCommand::Settled { generation: 2 });
    poll(&mut reactor, &time, client);
    assert_eq!(port.unsynced(time.0.get()), (0, 0));
}
