//! Injected faults. Each request still completes exactly once.

use proptest::prelude::*;

use super::*;

const EVERY_ONE: u32 = 1_000_000;

fn failing(sticky: bool, latency_ns: u64) -> LinkModel {
    LinkModel {
        latency_ns,
        faults: FaultPlan {
            failed_completions_per_million: EVERY_ONE,
            sticky,
            ..FaultPlan::default()
        },
        ..LinkModel::default()
    }
}

#[test]
fn a_transient_fault_fails_its_request_alone() {
    let mut bench = bench(failing(false, 0));
    let read = bench.read();
    for id in 1..=2 {
        bench.post(0, id, read);
    }
    bench.endpoint.ring_doorbell(0, 0);
    let failed = [(1, Status::RetryExceeded), (2, Status::RetryExceeded)];
    assert_eq!(bench.poll(0), failed);
    assert_eq!(bench.endpoint.state(0), QueuePairState::ReadyToSend);
}

#[test]
fn a_sticky_fault_flushes_every_posted_request() {
    for latency_ns in [0, 100] {
        let mut bench = bench(failing(true, latency_ns));
        let read = bench.read();
        bench.post(0, 1, read);
        bench.post(0, 2, read);
        bench.endpoint.ring_doorbell(0, 0);
        if latency_ns > 0 {
            bench.post(0, 3, read);
        }
        bench.post(1, 4, read);
        let mut first = [Completion::NONE];
        assert_eq!(bench.endpoint.poll(latency_ns, &mut first), 1);
        assert_eq!(
            (first[0].id, first[0].status, first[0].bytes),
            (WorkId(1), Status::RetryExceeded, 0)
        );
        assert_eq!(bench.endpoint.next_due_ns(), Some(0), "the flush is due");
        bench.endpoint.renew(0);
        let state = bench.endpoint.state(0);
        assert_eq!(state, QueuePairState::Error, "requests are left");
        let mut flushed = vec![(2, Status::Flushed)];
        if latency_ns > 0 {
            flushed.push((3, Status::Flushed));
        }
        assert_eq!(bench.poll(0), flushed);
        assert_eq!(bench.poll(0), []);
        assert_eq!(
            bench.endpoint.outstanding(),
            1,
            "one of the other queue pair"
        );
        let request = WorkRequest {
            id: WorkId(5),
            work: read,
            signalled: true,
        };
        let posted = bench.endpoint.post(0, request);
        assert_eq!(posted, Err(PostError::Down(request)));
        bench.endpoint.renew(0);
        assert_eq!(bench.endpoint.post(0, request), Ok(()));
    }
}

#[test]
fn an_unsignalled_request_that_fails_completes() {
    let mut bench = bench(failing(false, 0));
    let request = WorkRequest {
        id: WorkId(9),
        work: bench.read(),
        signalled: false,
    };
    bench.endpoint.post(0, request).unwrap();
    bench.endpoint.ring_doorbell(0, 0);
    assert_eq!(bench.poll(0), [(9, Status::RetryExceeded)]);
}

#[test]
fn a_node_is_lost_at_its_time() {
    let faults = FaultPlan {
        lost_at_ns: Some(100),
        ..FaultPlan::default()
    };
    let mut bench = bench(LinkModel {
        faults,
        ..LinkModel::default()
    });
    let read = bench.read();
    for (id, now_ns, status) in [
        (1, 99, Status::Success),
        (2, 100, Status::RetryExceeded),
        (3, 101, Status::RetryExceeded),
    ] {
        bench.post(0, id, read);
        bench.endpoint.ring_doorbell(0, now_ns);
        assert_eq!(bench.poll(now_ns), [(id, status)]);
        bench.endpoint.renew(0);
    }
}

#[derive(Clone, Debug)]
struct Act {
    queue: usize,
    signalled: bool,
    valid: bool,
    ring: bool,
    wait_ns: u64,
}

fn act() -> impl Strategy<Value = Act> {
    let valid = prop::bool::weighted(0.95);
    (0usize..2, any::<bool>(), valid, any::<bool>(), 0u64..300).prop_map(
        |(queue, signalled, valid, ring, wait_ns)| Act {
            queue,
            signalled,
            valid,
            ring,
            wait_ns,
        },
    )
}

proptest! {
    #[test]
    fn every_request_completes_exactly_once(
        seed: u64,
        sticky: bool,
        immediate: bool,
        (latency_ns, jitter_ns) in (0u64..500, 0u64..500),
        lost_at_ns in prop::option::of(0u64..20_000),
        acts in prop::collection::vec(act(), 1..200),
    ) {
        let faults = FaultPlan { seed, failed_completions_per_million: 100_000, sticky, lost_at_ns };
        let (latency_ns, jitter_ns) = if immediate { (0, 0) } else { (latency_ns, jitter_ns) };
        let link = LinkModel { latency_ns, jitter_ns, faults, ..LinkModel::default() };
        let mut bench = bench(link);
        let mut now_ns = 0;
        // The id is the index in this list of (queue pair, whether it is signalled).
        let mut sent: Vec<(usize, bool)> = Vec::new();
        let mut got: Vec<(u64, Status)> = Vec::new();
        for act in acts {
            bench.endpoint.renew(act.queue);
            let remote = bench.far(if act.valid { 0 } else { 64 << 10 });
            let work = Work::Read { local: bench.near(0, 8), remote };
            let id = WorkId(sent.len() as u64);
            let (end, queue) = (&mut bench.endpoint, act.queue);
            match end.post(queue, WorkRequest { id, work, signalled: act.signalled }) {
                Ok(()) => sent.push((queue, act.signalled)),
                Err(PostError::Full(_)) => prop_assert_eq!(end.room(queue), 0),
                Err(PostError::Down(_)) => prop_assert_eq!(end.state(queue), QueuePairState::Error),
                Err(error) => prop_assert!(false, "{:?}", error),
            }
            if act.ring {
                end.ring_doorbell(queue, now_ns);
            }
            prop_assert_eq!(end.room(queue) + end.outstanding_on(queue), 16);
            now_ns += act.wait_ns;
            got.extend(bench.poll(now_ns));
        }
        for queue in 0..2 {
            bench.endpoint.ring_doorbell(queue, now_ns);
        }
        while let Some(due_ns) = bench.endpoint.next_due_ns() {
            now_ns = now_ns.max(due_ns);
            got.extend(bench.poll(now_ns));
        }
        prop_assert_eq!(bench.endpoint.outstanding(), 0);
        let mut completed = vec![false; sent.len()];
        let mut newest = [None; 2];
        for (id, status) in got {
            let at = usize::try_from(id).unwrap();
            let (queue, signalled) = sent[at];
            prop_assert!(!std::mem::replace(&mut completed[at], true), "{} twice", id);
            prop_assert!(signalled || status != Status::Success);
            prop_assert!(newest[queue] < Some(id), "{} out of order", id);
            newest[queue] = Some(id);
        }
        for (id, (&(_, signalled), completed)) in sent.iter().zip(completed).enumerate() {
            prop_assert!(completed || !signalled, "{} never", id);
        }
    }
}
