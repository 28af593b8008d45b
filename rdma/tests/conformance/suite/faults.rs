//! Cases about nodes that die, and queue pairs in error.

use farcore_rdma::{Endpoint, PostError, QueuePairState, Status, Work};

use super::END;
use crate::fixture::{Bench, Fixture};

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

pub(crate) async fn a_restored_node_serves_again<F: Fixture>(mut bench: Bench<F>) {
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
            "a lost request was not performed"
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
