#![allow(unsafe_code)] // tests look into the regions
mod faults;
mod order;

use super::*;
use crate::link::{FaultPlan, LinkModel};
use crate::region::{Lock, RegionOptions};
use crate::work::{LocalSlice, RemoteKey, RemoteSlice, Status, Work, WorkId};

fn region(bytes: usize) -> Arc<Region> {
    let options = RegionOptions {
        bytes,
        huge_pages: false,
        lock: Lock::Off,
        prefault: false,
    };
    Arc::new(Region::map(&options).unwrap())
}

struct Bench {
    local: Arc<Region>,
    node: Arc<EmbeddedNode>,
    endpoint: EmbeddedEndpoint,
    key: LocalKey,
}

fn bench(link: LinkModel) -> Bench {
    let (local, far) = (region(64 << 10), region(64 << 10));
    let node = Arc::new(EmbeddedNode::new(far, link));
    let mut endpoint = EmbeddedEndpoint::new(std::slice::from_ref(&node), 2, 16, 1);
    let key = endpoint.register(Arc::clone(&local)).expect("registered");
    Bench {
        local,
        node,
        endpoint,
        key,
    }
}

impl Bench {
    fn near(&self, offset: u64, bytes: u32) -> LocalSlice {
        LocalSlice {
            key: self.key,
            offset,
            bytes,
        }
    }
    fn far(&self, offset: u64) -> RemoteSlice {
        RemoteSlice {
            key: self.node.remote_key(),
            offset,
        }
    }
    fn word(&self, offset: usize) -> u64 {
        // SAFETY: inside the local region, and no request is in flight when tests read.
        unsafe {
            self.local
                .as_ptr()
                .as_ptr()
                .add(offset)
                .cast::<u64>()
                .read()
        }
    }
    fn set_word(&self, offset: usize, value: u64) {
        // SAFETY: as in `word`.
        unsafe {
            self.local
                .as_ptr()
                .as_ptr()
                .add(offset)
                .cast::<u64>()
                .write(value);
        };
    }
    fn post(&mut self, queue: usize, id: u64, work: Work) {
        let request = WorkRequest {
            id: WorkId(id),
            work,
            signalled: true,
        };
        self.endpoint.post(queue, request).unwrap();
    }
    fn read(&self) -> Work {
        Work::Read {
            local: self.near(0, 8),
            remote: self.far(0),
        }
    }
    /// All completions due by then, as id and status.
    fn poll(&mut self, now_ns: u64) -> Vec<(u64, Status)> {
        let mut completions = [Completion::NONE; 64];
        let count = self.endpoint.poll(now_ns, &mut completions);
        completions[..count]
            .iter()
            .map(|completion| (completion.id.0, completion.status))
            .collect()
    }
    fn run(&mut self, id: u64, work: Work) -> Status {
        let request = WorkRequest {
            id: WorkId(id),
            work,
            signalled: true,
        };
        self.endpoint.post(0, request).unwrap();
        self.endpoint.ring_doorbell(0, 0);
        let mut completions = [Completion::NONE; 1];
        assert_eq!(self.endpoint.poll(u64::MAX, &mut completions), 1);
        assert_eq!(completions[0].id, WorkId(id));
        completions[0].status
    }
}

#[test]
fn what_is_written_is_read() {
    let mut bench = bench(LinkModel::default());
    bench.set_word(0, 77);
    let (near, far) = (bench.near(0, 8), bench.far(4096));
    assert_eq!(
        bench.run(
            1,
            Work::Write {
                local: near,
                remote: far
            }
        ),
        Status::Success
    );
    let back = bench.near(64, 8);
    assert_eq!(
        bench.run(
            2,
            Work::Read {
                local: back,
                remote: far
            }
        ),
        Status::Success
    );
    assert_eq!(bench.word(64), 77);
}

#[test]
fn atomics_return_the_old_value() {
    let mut bench = bench(LinkModel::default());
    let (near, far) = (bench.near(0, 8), bench.far(8));
    assert_eq!(
        bench.run(
            1,
            Work::FetchAdd {
                local: near,
                remote: far,
                addend: 5
            }
        ),
        Status::Success
    );
    let swap = |expected, desired| Work::CompareAndSwap {
        local: near,
        remote: far,
        expected,
        desired,
    };
    assert_eq!(
        (bench.run(2, swap(5, 9)), bench.word(0)),
        (Status::Success, 5)
    );
    assert_eq!(
        (bench.run(3, swap(5, 1)), bench.word(0)),
        (Status::Success, 9)
    );
    let odd = bench.far(12);
    let work = Work::FetchAdd {
        local: near,
        remote: odd,
        addend: 1,
    };
    assert_eq!(bench.run(4, work), Status::RemoteOperation);
}

#[test]
fn bounds_and_keys_are_checked() {
    let mut bench = bench(LinkModel::default());
    let near = bench.near(0, 64);
    let wrong = RemoteSlice {
        key: RemoteKey(1),
        offset: 0,
    };
    assert_eq!(
        bench.run(
            1,
            Work::Read {
                local: near,
                remote: wrong
            }
        ),
        Status::RemoteAccess
    );
    bench.endpoint.renew(0);
    let past = bench.far((64 << 10) - 63);
    assert_eq!(
        bench.run(
            2,
            Work::Write {
                local: near,
                remote: past
            }
        ),
        Status::RemoteAccess
    );
    bench.endpoint.renew(0);
    let local = bench.near((64 << 10) - 1, 2);
    let work = Work::Read {
        local,
        remote: bench.far(0),
    };
    let posted = bench.endpoint.post(
        0,
        WorkRequest {
            id: WorkId(3),
            work,
            signalled: true,
        },
    );
    assert!(matches!(posted, Err(PostError::Invalid { .. })));
    let short = bench.near(0, 4);
    let work = Work::FetchAdd {
        local: short,
        remote: bench.far(0),
        addend: 1,
    };
    let posted = bench.endpoint.post(
        0,
        WorkRequest {
            id: WorkId(4),
            work,
            signalled: true,
        },
    );
    assert!(matches!(posted, Err(PostError::Invalid { .. })));
}

#[test]
fn a_full_queue_returns_the_request_and_unsignalled_successes_free_room() {
    let mut bench = bench(LinkModel::default());
    let work = Work::Read {
        local: bench.near(0, 8),
        remote: bench.far(0),
    };
    for id in 0..16 {
        let request = WorkRequest {
            id: WorkId(id),
            work,
            signalled: id == 15,
        };
        bench.endpoint.post(0, request).unwrap();
    }
    let one_more = WorkRequest {
        id: WorkId(16),
        work,
        signalled: true,
    };
    assert_eq!(
        bench.endpoint.post(0, one_more),
        Err(PostError::Full(one_more))
    );
    let mut completions = [Completion::NONE; 32];
    assert_eq!(
        bench.endpoint.poll(0, &mut completions),
        0,
        "the doorbell has not been rung"
    );
    bench.endpoint.ring_doorbell(0, 0);
    assert_eq!(
        bench.endpoint.poll(0, &mut completions),
        1,
        "only one is signalled"
    );
    assert_eq!(bench.endpoint.room(0), 16);
}

#[test]
fn latency_and_bandwidth_delay_completions() {
    let link = LinkModel {
        latency_ns: 1_000,
        bandwidth_bytes_per_second: Some(1_000_000_000),
        ..LinkModel::default()
    };
    let mut bench = bench(link);
    let work = Work::Read {
        local: bench.near(0, 500),
        remote: bench.far(0),
    };
    for id in 0..2 {
        let request = WorkRequest {
            id: WorkId(id),
            work,
            signalled: true,
        };
        bench.endpoint.post(0, request).unwrap();
    }
    bench.endpoint.ring_doorbell(0, 100);
    let mut completions = [Completion::NONE; 4];
    assert_eq!(bench.endpoint.poll(1_599, &mut completions), 0);
    assert_eq!(bench.endpoint.poll(1_600, &mut completions), 1);
    assert_eq!(bench.endpoint.poll(2_099, &mut completions), 0);
    assert_eq!(bench.endpoint.poll(2_100, &mut completions), 1);
}

#[test]
fn a_lost_node_fails_requests_until_it_is_back() {
    let mut bench = bench(LinkModel::default());
    let work = Work::Read {
        local: bench.near(0, 8),
        remote: bench.far(0),
    };
    bench.node.lose();
    assert_eq!(bench.run(1, work), Status::RetryExceeded);
    let request = WorkRequest {
        id: WorkId(2),
        work,
        signalled: true,
    };
    assert_eq!(
        bench.endpoint.post(0, request),
        Err(PostError::Down(request))
    );
    bench.node.restore();
    bench.endpoint.renew(0);
    assert_eq!(bench.run(3, work), Status::Success);
}

#[test]
fn invalid_requests_are_returned() {
    let mut bench = bench(LinkModel::default());
    let (near, far) = (bench.near(0, 8), bench.far(0));
    let unknown = LocalSlice {
        key: LocalKey(bench.key.0 + 1),
        ..near
    };
    let wrapping = bench.near(u64::MAX, 8);
    for work in [
        Work::Send { local: near },
        Work::Receive { local: near },
        Work::WriteImmediate {
            local: near,
            remote: far,
            immediate: 1,
        },
        Work::Read {
            local: unknown,
            remote: far,
        },
        Work::Write {
            local: wrapping,
            remote: far,
        },
    ] {
        let request = WorkRequest {
            id: WorkId(1),
            work,
            signalled: true,
        };
        let posted = bench.endpoint.post(0, request);
        assert!(
            matches!(posted, Err(PostError::Invalid { request: back, .. }) if back == request),
            "{work:?}"
        );
    }
    assert_eq!(bench.endpoint.outstanding(), 0);
    let wrapping = bench.far(u64::MAX);
    let work = Work::Read {
        local: near,
        remote: wrapping,
    };
    assert_eq!(bench.run(2, work), Status::RemoteAccess);
}

#[test]
fn a_node_region_may_be_local_too() {
    let far = region(4096);
    let node = Arc::new(EmbeddedNode::new(Arc::clone(&far), LinkModel::default()));
    let mut endpoint = EmbeddedEndpoint::new(std::slice::from_ref(&node), 1, 4, 0);
    let key = endpoint.register(Arc::clone(&far)).expect("registered");
    for byte in 0..64u8 {
        // SAFETY: inside the region, and nothing is in flight.
        unsafe { far.as_ptr().add(usize::from(byte)).write(byte) };
    }
    let request = WorkRequest {
        id: WorkId(1),
        work: Work::Write {
            local: LocalSlice {
                key,
                offset: 0,
                bytes: 64,
            },
            remote: RemoteSlice {
                key: node.remote_key(),
                offset: 8,
            },
        },
        signalled: true,
    };
    endpoint.post(0, request).unwrap();
    endpoint.ring_doorbell(0, 0);
    assert_eq!(endpoint.poll(0, &mut [Completion::NONE]), 1);
    // SAFETY: no request is in flight.
    let copy = unsafe { node.copy_for_inspection() };
    assert!(copy[8..72].iter().copied().eq(0..64));
}

#[test]
fn far_atomics_hold_between_threads() {
    let node = Arc::new(EmbeddedNode::new(region(4096), LinkModel::default()));
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let node = Arc::clone(&node);
            scope.spawn(move || {
                let mut endpoint = EmbeddedEndpoint::new(std::slice::from_ref(&node), 1, 1, seed);
                let key = endpoint.register(region(4096)).expect("registered");
                let local = LocalSlice {
                    key,
                    offset: 0,
                    bytes: 8,
                };
                let remote = RemoteSlice {
                    key: node.remote_key(),
                    offset: 64,
                };
                for id in 0..20_000 {
                    let request = WorkRequest {
                        id: WorkId(id),
                        work: Work::FetchAdd {
                            local,
                            remote,
                            addend: 1,
                        },
                        signalled: true,
                    };
                    endpoint.post(0, request).unwrap();
                    endpoint.ring_doorbell(0, 0);
                    assert_eq!(endpoint.poll(0, &mut [Completion::NONE]), 1);
                }
            });
        }
    });
    // SAFETY: no request is in flight.
    let copy = unsafe { node.copy_for_inspection() };
    assert_eq!(u64::from_le_bytes(copy[64..72].try_into().unwrap()), 40_000);
}
