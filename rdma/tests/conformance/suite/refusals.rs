//! Cases about refused requests: keys, bounds, alignment.

use farcore_rdma::{
    Endpoint, LocalSlice, PostError, QueuePairState, RemoteKey, RemoteSlice, Status, Work,
};

use super::END;
use crate::fixture::{Bench, Fixture};

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

/// One atomic of each kind.
fn atomics(local: LocalSlice, remote: RemoteSlice) -> [Work; 2] {
    let add = Work::FetchAdd {
        local,
        remote,
        addend: 1,
    };
    let swap = Work::CompareAndSwap {
        local,
        remote,
        expected: 0,
        desired: 1,
    };
    [add, swap]
}

pub(crate) async fn a_wrong_key_is_refused<F: Fixture>(bench: Bench<F>) {
    let works = |bench: &Bench<F>| {
        let local = bench.local(0, 8);
        let remote = RemoteSlice {
            key: RemoteKey(bench.fixture.key().0 ^ 1),
            offset: 0,
        };
        let [add, swap] = atomics(local, remote);
        vec![
            Work::Read { local, remote },
            Work::Write { local, remote },
            add,
            swap,
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
        works.extend(atomics(local, remote));
        works
    };
    refused(bench, works, &[Status::RemoteAccess]).await;
}

pub(crate) async fn an_unaligned_atomic_is_refused<F: Fixture>(bench: Bench<F>) {
    let works = |bench: &Bench<F>| {
        let (local, remote) = (bench.local(0, 8), bench.at(12));
        atomics(local, remote).to_vec()
    };
    // Soft-RoCE does not answer at all, or ends the queue pair first.
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
