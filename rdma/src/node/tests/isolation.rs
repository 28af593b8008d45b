//! Sessions of a node that keeps each to its own extents.

use super::*;
use crate::pool::ExtentRun;

fn isolated() -> NodeHandle {
    MemoryNode::start(NodeOptions {
        isolate: true,
        ..options()
    })
    .unwrap()
}

/// Options of an isolated node whose memory is one extent.
fn of_one_extent(bytes: u32) -> NodeOptions {
    let options = options();
    NodeOptions {
        isolate: true,
        memory: MemoryOptions {
            extent_bytes: bytes.into(),
            region_bytes: bytes.into(),
            memory_bytes: bytes.into(),
            ..options.memory
        },
        ..options
    }
}

fn swap(local: LocalSlice, remote: RemoteSlice, expected: u64, desired: u64) -> Work {
    Work::CompareAndSwap {
        local: LocalSlice { bytes: 8, ..local },
        remote,
        expected,
        desired,
    }
}

#[test]
fn an_isolated_session_reaches_its_extents_and_the_table() {
    let node = isolated();
    run(async {
        let mut owner = session(&node).await;
        let chunk = owner.allocate_chunk(EXTENT).await.unwrap();
        let remote = owner.map().slice(chunk.first(), 64).unwrap();
        let free_word = owner.map().owner_slice(chunk.first() + 1);
        let bitmap = owner.map().bitmap_slice(0);
        let (mut mine, local) = endpoint(&node, &owner.memory_request(0)).await;
        let id = owner.owner().get();
        let table = Work::Read {
            local,
            remote: bitmap,
        };
        for (what, work) in [
            ("its extent", Work::Write { local, remote }),
            ("its extent", Work::Read { local, remote }),
            ("its extent", swap(local, remote, 0, 1)),
            ("the table", table),
            ("a bit", swap(local, bitmap, 0, 0b10)),
            ("a claim", swap(local, free_word, 0, id)),
            ("a free", swap(local, free_word, id, 0)),
        ] {
            let status = perform(&mut mine, work).await;
            assert_eq!(status, Status::Success, "{what}: {work:?}");
        }
    });
    node.stop();
}

#[test]
fn an_isolated_session_reaches_nothing_else() {
    let node = isolated();
    run(async {
        let (mut owner, other) = (session(&node).await, session(&node).await);
        let chunk = owner.allocate_chunk(EXTENT).await.unwrap();
        let map = owner.map().clone();
        let remote = map.slice(chunk.first(), 64).unwrap();
        let free = map.slice(chunk.first() + 1, 0).unwrap();
        let word = map.owner_slice(chunk.first());
        let free_word = map.owner_slice(chunk.first() + 1);
        let bitmap = map.bitmap_slice(0);
        let (id, stranger) = (owner.owner().get(), other.owner().get());
        type Forbidden<'a> = (&'a str, &'a dyn Fn(LocalSlice) -> Work);
        let forbidden: [Forbidden<'_>; 9] = [
            ("an extent", &|local| Work::Read { local, remote }),
            ("an extent", &|local| Work::Write { local, remote }),
            ("an extent", &|local| swap(local, remote, 0, 1)),
            ("its word", &|local| swap(local, word, id, 0)),
            ("its word", &|local| swap(local, word, id, stranger)),
            ("a claim for it", &|local| swap(local, free_word, 0, id)),
            ("no one's", &|local| Work::Read {
                local,
                remote: free,
            }),
            ("the table", &|local| Work::Write {
                local,
                remote: word,
            }),
            ("bits past the end", &|local| {
                swap(local, bitmap, 1, 1 | 1 << EXTENTS)
            }),
        ];
        for (what, work) in forbidden {
            // A refusal ends the connection.
            let (mut theirs, local) = endpoint(&node, &other.memory_request(0)).await;
            let work = work(local);
            let status = perform(&mut theirs, work).await;
            assert_eq!(status, Status::RemoteAccess, "{what}: {work:?}");
        }
        owner.heartbeat().await.unwrap();
    });
    node.stop();
}

#[test]
fn an_isolated_session_frees_nothing_of_another() {
    let node = isolated();
    run(async {
        let (mut owner, mut other) = (session(&node).await, session(&node).await);
        let chunk = owner.allocate_chunk(EXTENT).await.unwrap();
        let remote = owner.map().slice(chunk.first(), 64).unwrap();
        let (mut mine, local) = endpoint(&node, &owner.memory_request(0)).await;
        let (mut theirs, their_local) = endpoint(&node, &other.memory_request(0)).await;
        let word = owner.map().owner_slice(chunk.first());
        for _ in 0..100 {
            let free = swap(their_local, word, other.owner().get(), 0);
            // It finds another owner, as any swap of a word that has changed.
            assert_eq!(perform(&mut theirs, free).await, Status::Success);
            let error = other.free_chunk(chunk).await.unwrap_err();
            assert!(error.to_string().contains("do not belong"), "{error}");
            let read = Work::Read { local, remote };
            assert_eq!(perform(&mut mine, read).await, Status::Success);
        }
        let past = ExtentRun::new(u32::try_from(EXTENTS).unwrap(), 1).unwrap();
        assert!(other.free_chunk(past).await.is_err());
        owner.free_chunk(chunk).await.unwrap();
    });
    node.stop();
}

#[test]
fn an_isolated_extent_is_cleared_before_another_owns_it() {
    let node = isolated();
    run(async {
        let (mut owner, mut other) = (session(&node).await, session(&node).await);
        let chunk = owner.allocate_chunk(EXTENT).await.unwrap();
        let remote = owner.map().slice(chunk.first(), 64).unwrap();
        let (mut mine, local) = endpoint(&node, &owner.memory_request(0)).await;
        let written = perform(&mut mine, swap(local, remote, 0, u64::MAX)).await;
        assert_eq!(written, Status::Success);
        owner.free_chunk(chunk).await.unwrap();
        let again = other.allocate_chunk(EXTENT * 5).await.unwrap();
        assert!(again.extents().any(|extent| extent == chunk.first()));
        let mut stream = raw_connection(&node, &other.memory_request(0));
        let read = header(Opcode::Read, 0, remote, 512);
        stream.write_all(&read.encode()).unwrap();
        let mut answer = [1; wire::HEADER_BYTES + 512];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[wire::HEADER_BYTES..], [0; 512]);
    });
    node.stop();
}

#[test]
fn an_extent_with_a_write_in_progress_is_freed_after_it() {
    let node = isolated();
    run(async {
        let mut owner = session(&node).await;
        let chunk = owner.allocate_chunk(EXTENT).await.unwrap();
        let remote = owner.map().slice(chunk.first(), 0).unwrap();
        let mut stream = raw_connection(&node, &owner.memory_request(0));
        let write = header(Opcode::Write, 0, remote, 64);
        stream.write_all(&write.encode()).unwrap();
        stream.write_all(&[7; 32]).unwrap();
        until(&node, |now| now.writes == 1).await;
        let free_before = node.metrics().statistics().extents_free;
        let mut freed = std::pin::pin!(owner.free_chunk(chunk));
        for _ in 0..20 {
            assert!(poll_once(freed.as_mut()).await.is_none());
            Timer::new(Duration::from_millis(1)).await;
        }
        assert_eq!(node.metrics().statistics().extents_free, free_before);
        stream.write_all(&[7; 32]).unwrap();
        freed.await.unwrap();
        assert_eq!(node.metrics().statistics().extents_free, free_before + 1);
    });
    node.stop();
}

#[test]
fn a_long_extent_that_was_written_is_zero_for_its_next_owner() {
    const LONG: u32 = 1 << 20;
    let node = MemoryNode::start(NodeOptions {
        mend_pace: Duration::from_millis(1),
        ..of_one_extent(LONG)
    })
    .unwrap();
    run(async {
        let (mut owner, mut other) = (session(&node).await, session(&node).await);
        let chunk = owner.allocate_chunk(1).await.unwrap();
        let remote = owner.map().slice(chunk.first(), 0).unwrap();
        let mut stream = raw_connection(&node, &owner.memory_request(0));
        let write = header(Opcode::Write, 0, remote, LONG);
        let free = Header {
            first: owner.owner().get(),
            ..header(
                Opcode::CompareAndSwap,
                1,
                owner.map().owner_slice(chunk.first()),
                8,
            )
        };
        stream.write_all(&write.encode()).unwrap();
        stream.write_all(&vec![7; LONG as usize]).unwrap();
        stream.write_all(&free.encode()).unwrap();
        let mut answer = [0; wire::HEADER_BYTES];
        loop {
            stream.read_exact(&mut answer).unwrap();
            let answer = Header::decode(&answer).unwrap();
            if answer.opcode == Opcode::AtomicAnswer {
                assert_eq!(answer.first, owner.owner().get());
                break;
            }
        }
        // A swap of the bit is its client's: the sweep does it for the node.
        let again = loop {
            match other.allocate_chunk(1).await {
                Ok(again) => break again,
                Err(SessionError::Exhausted { .. }) => Timer::new(Duration::from_millis(1)).await,
                Err(error) => panic!("{error}"),
            };
        };
        assert_eq!(again, chunk);
        let mut stream = raw_connection(&node, &other.memory_request(0));
        let read = header(Opcode::Read, 0, remote, LONG);
        stream.write_all(&read.encode()).unwrap();
        let mut answer = vec![1; wire::HEADER_BYTES + LONG as usize];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer[wire::HEADER_BYTES..].iter().all(|&byte| byte == 0));
    });
    node.stop();
}

#[test]
fn what_a_session_wrote_is_cleared_and_free_when_it_has_its_farewell() {
    const LONG: u32 = 16 << 20;
    let node = MemoryNode::start(of_one_extent(LONG)).unwrap();
    run(async {
        let mut owner = session(&node).await;
        let chunk = owner.allocate_chunk(1).await.unwrap();
        let remote = owner.map().slice(chunk.first(), 0).unwrap();
        let mut stream = raw_connection(&node, &owner.memory_request(0));
        stream
            .write_all(&header(Opcode::Write, 0, remote, LONG).encode())
            .unwrap();
        stream.write_all(&vec![7; LONG as usize]).unwrap();
        let mut answer = [0; wire::HEADER_BYTES];
        stream.read_exact(&mut answer).unwrap();
        owner.bye().await.unwrap();
        let seen = node.metrics().statistics();
        assert_eq!((seen.sessions, seen.extents_free), (0, 1), "{seen:?}");
        assert_eq!((seen.extents_reclaimed, seen.sessions_kept), (1, 0));
    });
    node.stop();
}
