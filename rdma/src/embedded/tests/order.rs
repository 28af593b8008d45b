//! The times and order in which requests complete.

use super::*;

#[test]
fn queue_pairs_overtake_each_other_but_not_themselves() {
    let mut overtaken = 0;
    for seed in 0..64 {
        let link = LinkModel {
            latency_ns: 10,
            jitter_ns: 100,
            faults: FaultPlan {
                seed,
                ..FaultPlan::default()
            },
            ..LinkModel::default()
        };
        let mut bench = bench(link);
        let read = bench.read();
        for (queue, id) in [(0, 1), (0, 2), (1, 11), (1, 12)] {
            bench.post(queue, id, read);
            bench.endpoint.ring_doorbell(queue, 0);
        }
        let mut ids = Vec::new();
        while let Some(due_ns) = bench.endpoint.next_due_ns() {
            ids.extend(bench.poll(due_ns).into_iter().map(|(id, _)| id));
        }
        let of = |queue: u64| ids.iter().copied().filter(move |id| id / 10 == queue);
        assert!(of(0).eq([1, 2]) && of(1).eq([11, 12]), "{ids:?}");
        overtaken += u32::from(ids[0] == 11);
    }
    assert!((1..64).contains(&overtaken), "{overtaken} of 64");
}

#[test]
fn a_poll_at_the_next_due_time_finds_a_completion() {
    let link = LinkModel {
        latency_ns: 1_000,
        ..LinkModel::default()
    };
    let mut bench = bench(link);
    let read = bench.read();
    bench.post(0, 1, read);
    assert_eq!(bench.endpoint.next_due_ns(), None, "no doorbell yet");
    bench.endpoint.ring_doorbell(0, 50);
    bench.post(1, 2, read);
    bench.endpoint.ring_doorbell(1, 20);
    assert_eq!(bench.endpoint.next_due_ns(), Some(1_020));
    assert_eq!(bench.poll(1_019), []);
    assert_eq!(bench.poll(1_020), [(2, Status::Success)]);
    assert_eq!(bench.endpoint.next_due_ns(), Some(1_050));
    assert_eq!(bench.poll(1_050), [(1, Status::Success)]);
    assert_eq!(bench.endpoint.next_due_ns(), None);
    // The largest time does not overflow.
    bench.post(0, 3, read);
    bench.endpoint.ring_doorbell(0, u64::MAX);
    assert_eq!(bench.poll(u64::MAX), [(3, Status::Success)]);
}

#[test]
fn far_memory_is_read_when_the_completion_is_delivered() {
    let link = LinkModel {
        latency_ns: 10,
        ..LinkModel::default()
    };
    let mut bench = bench(link);
    let (near, back, far) = (bench.near(0, 8), bench.near(64, 8), bench.far(0));
    let (write, read) = (
        Work::Write {
            local: near,
            remote: far,
        },
        Work::Read {
            local: back,
            remote: far,
        },
    );
    bench.set_word(0, 7);
    bench.post(0, 1, read);
    bench.endpoint.ring_doorbell(0, 5);
    bench.post(1, 2, write);
    bench.endpoint.ring_doorbell(1, 0);
    assert_eq!(bench.poll(10), [(2, Status::Success)]);
    assert_eq!(bench.word(64), 0);
    assert_eq!(bench.poll(15), [(1, Status::Success)]);
    assert_eq!(bench.word(64), 7, "the write was done before");
}

#[test]
fn no_queue_pair_starves_another() {
    let mut bench = bench(LinkModel::default());
    let read = bench.read();
    bench.post(1, 100, read);
    bench.endpoint.ring_doorbell(1, 0);
    let mut ids = Vec::new();
    for id in 0..4 {
        bench.post(0, id, read);
        bench.endpoint.ring_doorbell(0, 0);
        let mut one = [Completion::NONE];
        assert_eq!(bench.endpoint.poll(0, &mut one), 1);
        ids.push(one[0].id.0);
    }
    assert!(ids[..2].contains(&100), "{ids:?}");
    assert_eq!(bench.endpoint.poll(0, &mut []), 0);
}
