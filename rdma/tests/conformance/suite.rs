//! The cases.

use farcore_rdma::{
    Endpoint, PostError, QueuePairState, RemoteKey, RemoteSlice, Status, Work, WorkId, WorkRequest,
};

use crate::fixture::{Bench, DEPTH, Fixture, REGION_BYTES};

const END: u64 = REGION_BYTES as u64;

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes)
        .map(|place| (place as u8).wrapping_mul(31).wrapping_add(seed) ^ (place >> 8) as u8)
        .collect()
}

pub(crate) async fn what_is_written_is_read<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local.clone(), bench.remote.clone());
    for (round, bytes) in [1, 7, 64, 100, 1024, 1025, 65_536].into_iter().enumerate() {
        let sent = pattern(bytes as usize, round as u8);
        bench.set(&local, 3, &sent);
        let (from, to) = (bench.local(3, bytes), bench.at(100_001));
        assert_eq!(
            bench.run(Work::Write {
                local: from,
                remote: to
            }),
            Status::Success
        );
        assert_eq!(bench.get(&remote, 100_001, bytes as usize), sent);
        let back = bench.local(200_000, bytes);
        assert_eq!(
            bench.run(Work::Read {
                local: back,
                remote: to
            }),
            Status::Success
        );
        assert_eq!(bench.get(&local, 200_000, bytes as usize), sent);
    }
}

pub(crate) async fn atomics_answer_the_old_value<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local.clone(), bench.remote.clone());
    // The local buffer need not be aligned.
    let (near, far) = (bench.local(5, 8), bench.at(8));
    let add = |addend| Work::FetchAdd {
        local: near,
        remote: far,
        addend,
    };
    let swap = |expected, desired| Work::CompareAndSwap {
        local: near,
        remote: far,
        expected,
        desired,
    };
    for (work, old, new) in [
        (add(5), 0, 5),
        (swap(5, 9), 5, 9),
        (swap(5, 1), 9, 9),
        (add(u64::MAX), 9, 8),
        (swap(8, u64::MAX), 8, u64::MAX),
        (add(2), u64::MAX, 1),
    ] {
        assert_eq!(bench.run(work), Status::Success);
        assert_eq!((bench.word(&local, 5), bench.word(&remote, 8)), (old, new));
    }
}

pub(crate) async fn a_write_with_immediate_hands_over_its_word<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local.clone(), bench.remote.clone());
    bench.set(&local, 0, &pattern(5_000, 9));
    let room = bench.peers(1 << 20, 0);
    for id in [1, 2] {
        let receive = WorkRequest {
            id: WorkId(id),
            work: Work::Receive { local: room },
            signalled: true,
        };
        bench.fixture.far().post(0, receive).unwrap();
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
        bench
            .fixture
            .far()
            .post(
                0,
                WorkRequest {
                    id: WorkId(place),
                    work: receive,
                    signalled: true,
                },
            )
            .unwrap();
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
    // And the other way, on the other queue pair.
    let receive = Work::Receive {
        local: bench.local(1 << 20, 100),
    };
    bench.post(1, 20, receive);
    bench.ring(1);
    bench.set(&remote, 9, b"answer");
    let send = Work::Send {
        local: bench.peers(9, 6),
    };
    bench
        .fixture
        .far()
        .post(
            1,
            WorkRequest {
                id: WorkId(21),
                work: send,
                signalled: true,
            },
        )
        .unwrap();
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
    // What is behind it waits as well.
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
    bench
        .fixture
        .far()
        .post(
            0,
            WorkRequest {
                id: WorkId(3),
                work: receive,
                signalled: true,
            },
        )
        .unwrap();
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
    bench
        .fixture
        .far()
        .post(
            0,
            WorkRequest {
                id: WorkId(1),
                work: receive,
                signalled: true,
            },
        )
        .unwrap();
    let work = Work::Send {
        local: bench.local(0, 9),
    };
    bench.post(0, 2, work);
    bench.ring(0);
    let (near, far) = bench.wait(1, 1);
    assert_eq!((near[0].id, far[0].id), (WorkId(2), WorkId(1)));
    let refused = [Status::RemoteOperation, Status::RemoteInvalidRequest];
    assert!(refused.contains(&near[0].status), "{near:?}");
    // Soft-RoCE says the latter.
    let too_long = [Status::LocalLength, Status::LocalQueuePair];
    assert!(too_long.contains(&far[0].status), "{far:?}");
    assert_eq!(bench.get(&remote, 0, 32), [7; 32], "nothing was written");
    assert_eq!(bench.fixture.near().state(0), QueuePairState::Drained);
}

pub(crate) async fn requests_of_a_queue_pair_keep_their_order<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local.clone(), bench.remote.clone());
    for round in 0..50u64 {
        // Write a word, add to it, swap it, read it, write over it: each sees the one before.
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

pub(crate) async fn only_what_is_signalled_completes<F: Fixture>(mut bench: Bench<F>) {
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
            "silence frees its place"
        );
        assert_eq!(bench.fixture.near().outstanding(), 0);
    }
}

pub(crate) async fn a_full_queue_hands_the_request_back<F: Fixture>(mut bench: Bench<F>) {
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
    // The other queue pair has room of its own.
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

pub(crate) async fn a_full_receive_queue_hands_the_request_back<F: Fixture>(mut bench: Bench<F>) {
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

async fn refused<F: Fixture>(
    mut bench: Bench<F>,
    works: impl Fn(&Bench<F>) -> Vec<Work>,
    statuses: &[Status],
) {
    let remote = bench.remote.clone();
    bench.set(&remote, 0, &[5; 64]);
    for work in works(&bench) {
        let read = Work::Read {
            local: bench.local(512, 8),
            remote: bench.at(0),
        };
        bench.post(0, 1, read);
        bench.post(0, 2, work);
        bench.post(
            0,
            3,
            Work::Write {
                local: bench.local(0, 8),
                remote: bench.at(0),
            },
        );
        bench.post(0, 4, read);
        bench.ring(0);
        let (near, _) = bench.wait(4, 0);
        assert!(near.iter().map(|done| done.id.0).eq(1..=4), "{near:?}");
        assert!(statuses.contains(&near[1].status), "{work:?}: {near:?}");
        let others = [0, 2, 3].map(|place| near[place].status);
        let flushed = Status::Flushed;
        assert_eq!(others, [Status::Success, flushed, flushed], "{work:?}");
        assert_eq!(bench.fixture.near().state(0), QueuePairState::Drained);
        assert!(matches!(
            bench.try_post(0, 5, read),
            Err(PostError::Down(_))
        ));
        assert_eq!(
            bench.get(&remote, 0, 64),
            [5; 64],
            "nothing after it was performed"
        );
        bench.fixture.revive().await;
        assert_eq!(bench.run(read), Status::Success);
    }
}

pub(crate) async fn a_wrong_key_is_refused<F: Fixture>(bench: Bench<F>) {
    let works = |bench: &Bench<F>| {
        let local = bench.local(0, 8);
        let remote = RemoteSlice {
            key: RemoteKey(bench.fixture.key().0 ^ 1),
            offset: 0,
        };
        vec![
            Work::Read { local, remote },
            Work::Write { local, remote },
            Work::FetchAdd {
                local,
                remote,
                addend: 1,
            },
            Work::CompareAndSwap {
                local,
                remote,
                expected: 0,
                desired: 1,
            },
        ]
    };
    refused(bench, works, &[Status::RemoteAccess]).await;
}

pub(crate) async fn out_of_bounds_is_refused<F: Fixture>(bench: Bench<F>) {
    let works = |bench: &Bench<F>| {
        let mut works = Vec::new();
        for offset in [END - 7, END, u64::MAX - 3, u64::MAX] {
            let (local, remote) = (bench.local(0, 8), bench.at(offset));
            works.push(Work::Read { local, remote });
            works.push(Work::Write { local, remote });
        }
        let (local, remote) = (bench.local(0, 8), bench.at(END));
        works.push(Work::FetchAdd {
            local,
            remote,
            addend: 1,
        });
        works
    };
    refused(bench, works, &[Status::RemoteAccess]).await;
}

pub(crate) async fn an_unaligned_atomic_is_refused<F: Fixture>(bench: Bench<F>) {
    let works = |bench: &Bench<F>| {
        let (local, remote) = (bench.local(0, 8), bench.at(12));
        vec![
            Work::FetchAdd {
                local,
                remote,
                addend: 1,
            },
            Work::CompareAndSwap {
                local,
                remote,
                expected: 0,
                desired: 1,
            },
        ]
    };
    // Soft-RoCE does not even answer, or ends the queue pair first.
    let statuses = [
        Status::RemoteOperation,
        Status::RemoteInvalidRequest,
        Status::RetryExceeded,
        Status::Flushed,
    ];
    refused(bench, works, &statuses).await;
}

pub(crate) async fn local_bounds_are_checked_before_anything_is_sent<F: Fixture>(
    mut bench: Bench<F>,
) {
    let remote = bench.at(0);
    let mut unknown = bench.local(0, 8);
    unknown.key.0 += 100;
    for local in [bench.local(END - 7, 8), bench.local(u64::MAX, 8), unknown] {
        for work in [
            Work::Read { local, remote },
            Work::Write { local, remote },
            Work::Send { local },
            Work::Receive { local },
        ] {
            let posted = bench.try_post(0, 1, work);
            assert!(
                matches!(posted, Err(PostError::Invalid { .. })),
                "{work:?}: {posted:?}"
            );
        }
    }
    let short = bench.local(0, 4);
    let posted = bench.try_post(
        0,
        1,
        Work::FetchAdd {
            local: short,
            remote,
            addend: 1,
        },
    );
    assert!(matches!(posted, Err(PostError::Invalid { .. })));
    assert_eq!(bench.fixture.near().outstanding(), 0);
    let work = Work::Read {
        local: bench.local(0, 8),
        remote,
    };
    assert_eq!(bench.run(work), Status::Success);
}

pub(crate) async fn long_transfers_arrive_whole<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local.clone(), bench.remote.clone());
    // Three long WRITEs and READs at once, with a short one between.
    let sent = pattern(3 << 20, 1);
    bench.set(&local, 0, &sent);
    for part in 0..3u64 {
        let work = Work::Write {
            local: bench.local(part << 20, 1 << 20),
            remote: bench.at(part << 20),
        };
        bench.post(0, part, work);
        bench.post(
            0,
            10 + part,
            Work::Write {
                local: bench.local(7, 3),
                remote: bench.at((3 << 20) + 10 * part),
            },
        );
    }
    bench.ring(0);
    bench.wait(6, 0);
    assert!(bench.get(&remote, 0, 3 << 20) == sent);
    assert_eq!(bench.get(&remote, (3 << 20) + 10, 3), sent[7..10]);
    bench.set(&local, 0, &vec![0; 3 << 20]);
    for part in 0..3u64 {
        let work = Work::Read {
            local: bench.local(part << 20, 1 << 20),
            remote: bench.at(part << 20),
        };
        bench.post(part as usize % 2, part, work);
    }
    bench.ring(0);
    bench.ring(1);
    bench.wait(3, 0);
    assert!(bench.get(&local, 0, 3 << 20) == sent);
}

pub(crate) async fn nothing_at_all_can_be_transferred<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local(0, 0), bench.at(END));
    for work in [Work::Read { local, remote }, Work::Write { local, remote }] {
        assert_eq!(bench.run(work), Status::Success);
    }
}

pub(crate) async fn a_node_that_dies_fails_what_is_in_flight_once<F: Fixture>(mut bench: Bench<F>) {
    bench.fixture.kill();
    let work = Work::Read {
        local: bench.local(0, 8),
        remote: bench.at(0),
    };
    let mut posted = 0;
    for id in 0..10 {
        posted += usize::from(bench.try_post((id % 2) as usize, id, work).is_ok());
    }
    bench.ring(0);
    bench.ring(1);
    let (near, _) = bench.wait(posted, 0);
    let mut ids: Vec<_> = near.iter().map(|done| done.id.0).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), posted, "each once: {near:?}");
    assert!(
        near.iter()
            .all(|done| matches!(done.status, Status::RetryExceeded | Status::Flushed)),
        "{near:?}"
    );
    bench.wait_in_vain();
    for queue in 0..2 {
        assert_eq!(bench.fixture.near().state(queue), QueuePairState::Drained);
        assert!(matches!(
            bench.try_post(queue, 1, work),
            Err(PostError::Down(_))
        ));
    }
}

pub(crate) async fn a_node_that_is_back_serves_again<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local.clone(), bench.remote.clone());
    for round in 0..5u64 {
        bench.set(&local, 0, &(round + 1).to_le_bytes());
        let work = Work::Write {
            local: bench.local(0, 8),
            remote: bench.at(0),
        };
        assert_eq!(bench.run(work), Status::Success);
        bench.fixture.kill();
        bench.set(&local, 8, &[9; 8]);
        for queue in 0..2 {
            let lost = Work::Write {
                local: bench.local(8, 8),
                remote: bench.at(0),
            };
            bench.post(queue, 5, lost);
            bench.ring(queue);
        }
        bench.wait(2, 0);
        bench.fixture.revive().await;
        let work = Work::Read {
            local: bench.local(16, 8),
            remote: bench.at(0),
        };
        assert_eq!(bench.run(work), Status::Success);
        let seen = (bench.word(&local, 16), bench.word(&remote, 0));
        assert_eq!(
            seen,
            (round + 1, round + 1),
            "what was lost was not performed"
        );
    }
}

pub(crate) async fn receives_are_flushed<F: Fixture>(mut bench: Bench<F>) {
    let receive = Work::Receive {
        local: bench.local(0, 8),
    };
    bench.post(0, 1, receive);
    bench.post(0, 2, receive);
    let wrong = Work::Read {
        local: bench.local(64, 8),
        remote: bench.at(END),
    };
    bench.post(0, 3, wrong);
    bench.ring(0);
    let (near, _) = bench.wait(3, 0);
    let mut got: Vec<_> = near.iter().map(|done| (done.id.0, done.status)).collect();
    got.sort_unstable_by_key(|&(id, _)| id);
    assert_eq!(
        got,
        [
            (1, Status::Flushed),
            (2, Status::Flushed),
            (3, Status::RemoteAccess)
        ]
    );
}

pub(crate) async fn one_queue_pair_in_error_leaves_the_other_alone<F: Fixture>(
    mut bench: Bench<F>,
) {
    let wrong = Work::Read {
        local: bench.local(64, 8),
        remote: bench.at(END),
    };
    let right = Work::Read {
        local: bench.local(64, 8),
        remote: bench.at(0),
    };
    bench.post(0, 1, wrong);
    bench.post(1, 2, right);
    bench.ring(0);
    bench.ring(1);
    let (near, _) = bench.wait(2, 0);
    for done in near {
        let expected = if done.id.0 == 1 {
            Status::RemoteAccess
        } else {
            Status::Success
        };
        assert_eq!(done.status, expected);
    }
    bench.post(1, 3, right);
    bench.ring(1);
    assert_eq!(bench.wait(1, 0).0[0].status, Status::Success);
}

/// Of a far side that takes no messages.
pub(crate) async fn a_message_that_nobody_takes_is_refused<F: Fixture>(mut bench: Bench<F>) {
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
