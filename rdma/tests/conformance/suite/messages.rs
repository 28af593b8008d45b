//! Cases about messages, and about the immediate word of a WRITE.

use farcore_rdma::{Endpoint, QueuePairState, Status, Work, WorkId};

use super::pattern;
use crate::fixture::{Bench, Fixture};

pub(crate) async fn a_write_with_immediate_delivers_its_word<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local.clone(), bench.remote.clone());
    bench.set(&local, 0, &pattern(5_000, 9));
    let room = bench.peers(1 << 20, 0);
    for id in [1, 2] {
        bench.post_far(0, id, Work::Receive { local: room });
    }
    for (id, word) in [(11, 7), (12, u32::MAX)] {
        let work = Work::WriteImmediate {
            local: bench.local(0, 5_000),
            remote: bench.at(64),
            immediate: word,
        };
        bench.post(0, id, work);
    }
    bench.ring(0);
    let (near, far) = bench.wait(2, 2);
    assert!(
        near.iter()
            .map(|done| (done.id.0, done.status))
            .eq([(11, Status::Success), (12, Status::Success)])
    );
    assert!(
        far.iter()
            .map(|done| (done.id.0, done.immediate))
            .eq([(1, Some(7)), (2, Some(u32::MAX))])
    );
    assert_eq!(bench.get(&remote, 64, 5_000), pattern(5_000, 9));
}

pub(crate) async fn messages_arrive_in_order<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local.clone(), bench.remote.clone());
    for place in 0..4u64 {
        let receive = Work::Receive {
            local: bench.peers(4096 * place, 4096),
        };
        bench.post_far(0, place, receive);
    }
    for (place, bytes) in [(0, 10), (1, 4096), (2, 0), (3, 333)] {
        bench.set(
            &local,
            4096 * place as usize,
            &pattern(bytes as usize, place as u8),
        );
        let work = Work::Send {
            local: bench.local(4096 * place, bytes),
        };
        bench.post(0, 10 + place, work);
    }
    bench.ring(0);
    let (near, far) = bench.wait(4, 4);
    assert!(near.iter().map(|done| done.id.0).eq(10..14));
    assert!(far.iter().map(|done| (done.id.0, done.bytes)).eq([
        (0, 10),
        (1, 4096),
        (2, 0),
        (3, 333)
    ]));
    for (place, bytes) in [(0, 10), (1, 4096), (3, 333)] {
        assert_eq!(
            bench.get(&remote, 4096 * place, bytes),
            pattern(bytes, place as u8)
        );
    }
    // The other direction, on the other queue pair.
    let receive = Work::Receive {
        local: bench.local(1 << 20, 100),
    };
    bench.post(1, 20, receive);
    bench.ring(1);
    bench.set(&remote, 9, b"answer");
    let send = Work::Send {
        local: bench.peers(9, 6),
    };
    bench.post_far(1, 21, send);
    let (near, far) = bench.wait(1, 1);
    assert_eq!(
        (near[0].id, near[0].bytes, far[0].id),
        (WorkId(20), 6, WorkId(21))
    );
    assert_eq!(bench.get(&local, 1 << 20, 6), b"answer");
}

pub(crate) async fn a_message_waits_for_its_receive<F: Fixture>(mut bench: Bench<F>) {
    let work = Work::Send {
        local: bench.local(0, 8),
    };
    bench.post(0, 1, work);
    // Requests behind it wait too.
    let read = Work::Read {
        local: bench.local(64, 8),
        remote: bench.at(0),
    };
    bench.post(0, 2, read);
    bench.ring(0);
    bench.wait_in_vain();
    let receive = Work::Receive {
        local: bench.peers(0, 8),
    };
    bench.post_far(0, 3, receive);
    let (near, far) = bench.wait(2, 1);
    assert!(near.iter().map(|done| done.id.0).eq([1, 2]));
    assert_eq!(far[0].id, WorkId(3));
}

pub(crate) async fn a_message_that_is_too_long_fails_at_both_ends<F: Fixture>(mut bench: Bench<F>) {
    let remote = bench.remote.clone();
    bench.set(&remote, 0, &[7; 32]);
    let receive = Work::Receive {
        local: bench.peers(0, 8),
    };
    bench.post_far(0, 1, receive);
    let work = Work::Send {
        local: bench.local(0, 9),
    };
    bench.post(0, 2, work);
    bench.ring(0);
    let (near, far) = bench.wait(1, 1);
    assert_eq!((near[0].id, far[0].id), (WorkId(2), WorkId(1)));
    let refused = [Status::RemoteOperation, Status::RemoteInvalidRequest];
    assert!(refused.contains(&near[0].status), "{near:?}");
    // Soft-RoCE reports the latter.
    let too_long = [Status::LocalLength, Status::LocalQueuePair];
    assert!(too_long.contains(&far[0].status), "{far:?}");
    assert_eq!(bench.get(&remote, 0, 32), [7; 32], "nothing was written");
    assert_eq!(bench.fixture.near().state(0), QueuePairState::Drained);
}

/// For a far side that accepts no messages.
pub(crate) async fn a_message_without_a_receiver_is_refused<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local(0, 8), bench.at(0));
    let word = Work::WriteImmediate {
        local,
        remote,
        immediate: 1,
    };
    for work in [Work::Send { local }, word] {
        assert_eq!(bench.run(work), Status::RemoteOperation);
        bench.fixture.revive().await;
    }
}
