//! Cases about READs, WRITEs and atomics.

use farcore_rdma::{Status, Work};

use super::{END, pattern};
use crate::fixture::{Bench, Fixture};

pub(crate) async fn written_bytes_are_read<F: Fixture>(mut bench: Bench<F>) {
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

pub(crate) async fn atomics_return_the_old_value<F: Fixture>(mut bench: Bench<F>) {
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

pub(crate) async fn long_transfers_arrive_whole<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local.clone(), bench.remote.clone());
    // Three long WRITEs and READs at once, with a short one in between.
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

pub(crate) async fn zero_bytes_can_be_transferred<F: Fixture>(mut bench: Bench<F>) {
    let (local, remote) = (bench.local(0, 0), bench.at(END));
    for work in [Work::Read { local, remote }, Work::Write { local, remote }] {
        assert_eq!(bench.run(work), Status::Success);
    }
}
