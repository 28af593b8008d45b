//! Cases about a queue pair's order, completions and room.

use farcore_rdma::{Endpoint, PostError, Status, Work, WorkId, WorkRequest};

use crate::fixture::{Bench, DEPTH, Fixture};

pub(crate) async fn requests_of_a_queue_pair_keep_their_order<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local.clone(), bench.remote.clone());
    for round in 0..50u64 {
        // Write a word, add to it, swap it, read it, overwrite it: each operation sees the
        // previous.
        let first = round * 1000;
        bench.set(&local, 0, &first.to_le_bytes());
        bench.set(&local, 8, &(first + 7).to_le_bytes());
        let at = bench.at(64 + 8 * round);
        let chain = [
            Work::Write {
                local: bench.local(0, 8),
                remote: at,
            },
            Work::FetchAdd {
                local: bench.local(16, 8),
                remote: at,
                addend: 1,
            },
            Work::CompareAndSwap {
                local: bench.local(24, 8),
                remote: at,
                expected: first + 1,
                desired: first + 2,
            },
            Work::Read {
                local: bench.local(32, 8),
                remote: at,
            },
            Work::Write {
                local: bench.local(8, 8),
                remote: at,
            },
            Work::Read {
                local: bench.local(40, 8),
                remote: at,
            },
        ];
        for (id, work) in (0..).zip(chain) {
            bench.post(0, id, work);
        }
        bench.ring(0);
        let (near, _) = bench.wait(6, 0);
        assert!(near.iter().map(|done| done.id.0).eq(0..6));
        let seen = [16, 24, 32, 40].map(|offset| bench.word(&local, offset));
        assert_eq!(seen, [first, first + 1, first + 2, first + 7]);
        assert_eq!(bench.word(&remote, 64 + 8 * round as usize), first + 7);
    }
}

pub(crate) async fn only_signalled_requests_produce_completions<F: Fixture>(mut bench: Bench<F>) {
    for round in 0..20u64 {
        for id in 0..DEPTH as u64 {
            let (near, far) = (bench.local(8 * id, 8), bench.at(8 * id));
            let work = if id % 2 == 0 {
                Work::Write {
                    local: near,
                    remote: far,
                }
            } else {
                Work::Read {
                    local: near,
                    remote: far,
                }
            };
            let signalled = id + 1 == DEPTH as u64;
            bench
                .fixture
                .near()
                .post(
                    0,
                    WorkRequest {
                        id: WorkId(round * 100 + id),
                        work,
                        signalled,
                    },
                )
                .unwrap();
        }
        bench.ring(0);
        let (near, _) = bench.wait(1, 0);
        assert_eq!(near[0].id, WorkId(round * 100 + DEPTH as u64 - 1));
        assert_eq!(
            bench.fixture.near().room(0),
            DEPTH,
            "an unsignalled success frees its place"
        );
        assert_eq!(bench.fixture.near().outstanding(), 0);
    }
}

pub(crate) async fn a_full_queue_returns_the_request<F: Fixture>(mut bench: Bench<F>) {
    let work = Work::Read {
        local: bench.local(0, 8),
        remote: bench.at(0),
    };
    for id in 0..DEPTH as u64 {
        bench.post(0, id, work);
    }
    assert_eq!(bench.fixture.near().room(0), 0);
    let more = Bench::<F>::request(99, work);
    assert_eq!(bench.try_post(0, 99, work), Err(PostError::Full(more)));
    // The other queue pair has its own room.
    bench.post(1, 50, work);
    bench.wait_in_vain();
    bench.ring(0);
    bench.ring(1);
    let (near, _) = bench.wait(DEPTH + 1, 0);
    assert!(
        near.iter()
            .filter(|done| done.id.0 != 50)
            .map(|done| done.id.0)
            .eq(0..DEPTH as u64)
    );
    bench.post(0, 100, work);
}

pub(crate) async fn a_full_receive_queue_returns_the_request<F: Fixture>(mut bench: Bench<F>) {
    let work = Work::Receive {
        local: bench.local(0, 8),
    };
    for id in 0..DEPTH as u64 {
        bench.post(0, id, work);
    }
    let more = Bench::<F>::request(99, work);
    assert_eq!(bench.try_post(0, 99, work), Err(PostError::Full(more)));
    let read = Work::Read {
        local: bench.local(0, 8),
        remote: bench.at(0),
    };
    assert_eq!(
        bench.run(read),
        Status::Success,
        "receives take no room of the send queue"
    );
}
