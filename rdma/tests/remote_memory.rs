//! Far memory on a memory node, over sockets of this machine: chunks by request, the allocator and
//! typed pointers.
//!
//! Each test starts a node in this process.

use std::alloc::Layout;
use std::future::Future;
use std::time::Duration;

use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};
use farcore_rdma::session::{NodeSession, SessionChunks};
use farcore_rdma::tcp::{Exposed, TcpEndpoint, connect_control, connect_queue};
use farcore_rdma::{
    ChunkSource, Chunks, Initiator, InitiatorOptions, Lock, RemoteAllocator, RemoteAllocatorError,
    RemotePtr, RemotePtrError,
};
use glommio::timer::Timer;

const LIMIT: Duration = Duration::from_secs(10);
const EXTENT: u64 = 64 << 10;
const EXTENTS: u64 = 16;

fn node() -> NodeHandle {
    let memory = MemoryOptions {
        region_bytes: 8 * EXTENT,
        extent_bytes: EXTENT,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(EXTENTS * EXTENT)
    };
    let options = NodeOptions::new(([127, 0, 0, 1], 0).into(), memory);
    MemoryNode::start(options).expect("a node")
}

fn run<T>(work: impl Future<Output = T>) -> T {
    farcore_rdma::run_local(work).expect("an executor")
}

async fn session(node: &NodeHandle) -> NodeSession {
    let channel = connect_control(node.address(), LIMIT)
        .await
        .expect("a listening node");
    let opened = NodeSession::open(channel, "test", None).await;
    opened.expect("a session")
}

async fn initiator(node: &NodeHandle, session: &NodeSession) -> Initiator<TcpEndpoint> {
    let silence_ns = 10_000_000_000;
    let endpoint = TcpEndpoint::new(1, 64, silence_ns, Exposed::default());
    let joined = connect_queue(node.address(), &session.memory_request(0), LIMIT).await;
    endpoint
        .connection_slot(0)
        .offer(joined.expect("a memory connection"));
    let options = InitiatorOptions {
        lock: Lock::Off,
        ..InitiatorOptions::default()
    };
    let initiator = Initiator::new(endpoint, options).expect("scratch memory");
    initiator.renew(0);
    initiator
}

/// Waits for a condition that must become true, however long it takes.
async fn until(what: impl Fn() -> bool) {
    while !what() {
        Timer::new(Duration::from_millis(1)).await;
    }
}

#[test]
fn typed_pointers_access_allocations() {
    let node = node();
    run(async {
        let session = session(&node).await;
        let initiator = initiator(&node, &session).await;
        let source = SessionChunks::new(session, 0);
        let allocator = RemoteAllocator::new(Chunks::new(source.clone(), 4 * EXTENT));
        let table = allocator
            .allocate(Layout::array::<u64>(100).unwrap())
            .await
            .unwrap();
        let other = allocator
            .allocate(Layout::array::<u64>(100).unwrap())
            .await
            .unwrap();
        assert_eq!(node.metrics().statistics().chunks_allocated, 1);
        let words = RemotePtr::<u64>::new(&table);
        let values: Vec<u64> = (0..100).map(|value| value * value).collect();
        words.write_slice(&initiator, &values).await.unwrap();
        RemotePtr::<u64>::new(&other)
            .write(&initiator, &7)
            .await
            .unwrap();
        assert_eq!(words.index(9).read(&initiator).await.unwrap(), 81);
        let pointers: Vec<_> = (0..100).rev().map(|index| words.index(index)).collect();
        let mut seen = vec![0; 100];
        RemotePtr::read_many(&initiator, &pointers, &mut seen)
            .await
            .unwrap();
        assert!(seen.iter().rev().eq(&values));
        let word = words.index(3);
        assert_eq!(word.compare_and_swap(&initiator, 1, 5).await.unwrap(), 9);
        assert_eq!(word.compare_and_swap(&initiator, 9, 5).await.unwrap(), 9);
        assert_eq!(word.fetch_add(&initiator, u64::MAX).await.unwrap(), 5);
        let halves = word.cast::<[u32; 2]>().read(&initiator).await.unwrap();
        assert_eq!(halves, [4, 0]);
        let past = words.index(99).cast::<[u64; 2]>().read(&initiator).await;
        assert!(matches!(
            past,
            Err(RemotePtrError::OutOfBounds { limit: 800, .. })
        ));
        let crooked = words.byte_offset(4).read(&initiator).await;
        assert!(matches!(
            crooked,
            Err(RemotePtrError::Unaligned { align: 8, .. })
        ));
        assert_eq!(
            RemotePtr::<u64>::new(&other)
                .read(&initiator)
                .await
                .unwrap(),
            7
        );
        allocator.deallocate(table).await.unwrap();
        let again = allocator.deallocate(table).await;
        assert!(matches!(
            again,
            Err(RemoteAllocatorError::DoubleFree { .. })
        ));
        allocator.deallocate(other).await.unwrap();
        source.close().await.unwrap();
        until(|| node.metrics().statistics().extents_free == EXTENTS).await;
    });
    node.stop();
}

#[test]
fn calls_that_are_dropped_lose_no_chunk() {
    let node = node();
    run(async {
        let source = SessionChunks::new(session(&node).await, 0);
        let chunk = 4 * EXTENT;
        // Each call sends its request, and is dropped before the answer.
        let (mut calls, mut chunks) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let mut call = Box::pin(source.allocate(chunk));
            match futures_lite::future::poll_once(&mut call).await {
                None => calls.push(call),
                // The node was faster than this thread.
                Some(answer) => chunks.push(answer.unwrap().unwrap()),
            }
        }
        let dropped = calls.len();
        drop(calls);
        until(|| source.spare_count() == dropped).await;
        while let Some(chunk) = source.allocate(chunk).await.unwrap() {
            chunks.push(chunk);
        }
        let mut marks: Vec<u64> = chunks.iter().map(|chunk| chunk.mark).collect();
        marks.sort_unstable();
        marks.dedup();
        assert_eq!(marks.len() as u64, EXTENTS / 4);
        for chunk in chunks {
            // Not even polled.
            drop(source.free(chunk));
        }
        until(|| node.metrics().statistics().extents_free == EXTENTS).await;
        source.heartbeat().await.unwrap();
        assert_eq!(node.metrics().statistics().extents_reclaimed, 0);
        source.close().await.unwrap();
    });
    node.stop();
}

#[test]
fn a_control_connection_that_is_lost_loses_no_free() {
    let node = node();
    run(async {
        let mut first = session(&node).await;
        let run = first.allocate_chunk(EXTENT).await.unwrap();
        first.free_chunk(run).await.unwrap();
        let source = SessionChunks::new(first, 0);
        let chunk = source.allocate(EXTENT).await.unwrap().unwrap();
        // A request cut off in its middle looks like a lost connection.
        let channel = connect_control(node.address(), LIMIT).await.unwrap();
        drop(source.free(chunk));
        source.resume(channel).await.unwrap();
        let mut all = Vec::new();
        while let Some(chunk) = source.allocate(EXTENT).await.unwrap() {
            all.push(chunk);
        }
        assert_eq!(all.len() as u64, EXTENTS);
        source.close().await.unwrap();
    });
    node.stop();
}
