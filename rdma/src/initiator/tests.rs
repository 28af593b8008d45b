use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use proptest::prelude::*;

use super::*;
use crate::embedded::{EmbeddedEndpoint, EmbeddedNode};
use crate::fabric::RegisterError;
use crate::link::LinkModel;
use crate::testing::block_on;

const DEPTH: usize = 4;

fn node(latency_ns: u64) -> Arc<EmbeddedNode> {
    let region = Region::map(&RegionOptions {
        bytes: 1 << 20,
        huge_pages: false,
        lock: Lock::Off,
        prefault: false,
    })
    .expect("a megabyte");
    let link = LinkModel {
        latency_ns,
        ..LinkModel::default()
    };
    Arc::new(EmbeddedNode::new(Arc::new(region), link))
}

fn initiator(node: &Arc<EmbeddedNode>) -> Initiator<EmbeddedEndpoint> {
    let endpoint = EmbeddedEndpoint::new(std::slice::from_ref(node), 2, DEPTH, 1);
    let options = InitiatorOptions {
        scratch_bytes: 0,
        longest_bytes: 16 << 10,
        lock: Lock::Off,
        is_driven: false,
    };
    Initiator::new(endpoint, options).expect("some scratch memory")
}

fn place(node: &EmbeddedNode, offset: u64) -> RemoteSlice {
    RemoteSlice {
        key: node.remote_key(),
        offset,
    }
}

fn buffers_in_use(initiator: &Initiator<EmbeddedEndpoint>) -> u64 {
    initiator.inner().buffers.in_use_bytes()
}

/// Polls once.
fn once<T>(call: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    call.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn words_and_bytes_arrive() {
    for latency_ns in [0, 2000] {
        let node = node(latency_ns);
        let initiator = initiator(&node);
        block_on(async {
            let far = place(&node, 64);
            initiator.write(0, far, b"far memory").await.unwrap();
            let mut back = [0; 10];
            initiator.read(1, far, &mut back).await.unwrap();
            assert_eq!(&back, b"far memory");
            let word = place(&node, 8);
            assert_eq!(initiator.fetch_add(0, word, 7).await, Ok(0));
            assert_eq!(initiator.compare_and_swap(0, word, 6, 9).await, Ok(7));
            assert_eq!(initiator.compare_and_swap(0, word, 7, 9).await, Ok(7));
            assert_eq!(initiator.fetch_add(0, word, 0).await, Ok(9));
            initiator.read(0, word, &mut []).await.unwrap();
        });
        assert_eq!(buffers_in_use(&initiator), 0);
    }
}

#[test]
fn more_than_the_queue_holds_waits_and_arrives() {
    let node = node(1000);
    let initiator = initiator(&node);
    block_on(async {
        for index in 0..100u8 {
            let far = place(&node, u64::from(index));
            initiator.write(0, far, &[index]).await.unwrap();
        }
        let mut bytes = [[0u8; 1]; 100];
        let mut reads: Vec<_> = (0..)
            .zip(&mut bytes)
            .map(|(offset, into)| ReadInto {
                remote: place(&node, offset),
                into,
            })
            .collect();
        initiator.read_many(0, &mut reads).await.unwrap();
        assert!((0..100).zip(&bytes).all(|(index, byte)| byte[0] == index));
    });
    assert_eq!(buffers_in_use(&initiator), 0);
}

#[test]
fn a_call_that_is_dropped_keeps_its_buffer_until_the_fabric_is_done() {
    let node = node(u64::MAX / 2);
    let initiator = initiator(&node);
    let mut into = [0; 100];
    {
        let mut call = pin!(initiator.read(0, place(&node, 0), &mut into));
        assert!(once(call.as_mut()).is_pending());
    }
    // The fabric still owns the buffer: it is not allocated again.
    assert_eq!(buffers_in_use(&initiator), 128);
    {
        let mut call = pin!(initiator.write(0, place(&node, 0), &[1; 100]));
        assert!(once(call.as_mut()).is_pending());
        assert_eq!(buffers_in_use(&initiator), 256);
    }
    // Time passes for the fabric only.
    initiator.inner().take_in(u64::MAX);
    assert_eq!(buffers_in_use(&initiator), 0);
    assert_eq!(initiator.inner().endpoint.outstanding(), 0);
}

#[test]
fn a_call_that_is_dropped_when_done_gives_its_buffer_back() {
    let node = node(u64::MAX / 2);
    let initiator = initiator(&node);
    {
        let mut call = pin!(initiator.fetch_add(0, place(&node, 0), 1));
        assert!(once(call.as_mut()).is_pending());
        initiator.inner().take_in(u64::MAX);
        assert_eq!(buffers_in_use(&initiator), 64);
    }
    assert_eq!(buffers_in_use(&initiator), 0);
}

#[test]
fn mistakes_and_faults_are_named() {
    let node = node(0);
    let initiator = initiator(&node);
    block_on(async {
        let error = initiator.read(2, place(&node, 0), &mut []).await;
        let (queue, queues) = (2, 2);
        assert_eq!(error, Err(InitiatorError::NoQueue { queue, queues }));
        let mut long = vec![0; (16 << 10) + 1];
        let error = initiator
            .read(0, place(&node, 0), &mut long)
            .await
            .unwrap_err();
        let (bytes, limit) = ((16 << 10) + 1, 16 << 10);
        assert_eq!(error, InitiatorError::TooLong { bytes, limit });
        assert!(error.to_string().contains("16385") && error.to_string().contains("16384"));
        initiator
            .read(0, place(&node, 0), &mut long[1..])
            .await
            .unwrap();
        let outside = place(&node, 1 << 20);
        let failed = |status| Err(InitiatorError::Failed { queue: 0, status });
        let error = initiator.read(0, outside, &mut [0]).await;
        assert_eq!(error, failed(Status::RemoteAccess));
        let down = initiator.write(0, place(&node, 0), &[1]).await;
        let state = QueuePairState::Drained;
        assert_eq!(down, Err(InitiatorError::Down { queue: 0, state }));
        // The other queue pair continues, and this one after it was renewed.
        initiator.write(1, place(&node, 0), &[1]).await.unwrap();
        assert_eq!(initiator.renew(0), Some(QueuePairState::ReadyToSend));
        assert_eq!(initiator.renew(2), None);
        initiator.write(0, place(&node, 0), &[1]).await.unwrap();
        let error = initiator.fetch_add(0, place(&node, 4), 1).await;
        assert_eq!(
            error,
            Err(InitiatorError::Failed {
                queue: 0,
                status: Status::RemoteOperation
            })
        );
    });
    assert_eq!(buffers_in_use(&initiator), 0);
}

#[test]
fn a_batch_that_fails_in_the_middle_leaves_nothing_behind() {
    for latency_ns in [0, 1000] {
        let node = node(latency_ns);
        let initiator = initiator(&node);
        let mut bytes = [[0u8; 8]; 10];
        let mut reads: Vec<_> = (0..)
            .zip(&mut bytes)
            .map(|(index, into)| ReadInto {
                remote: place(&node, if index == 2 { u64::MAX } else { 0 }),
                into,
            })
            .collect();
        let error = block_on(initiator.read_many(0, &mut reads)).unwrap_err();
        assert!(
            matches!(
                error,
                InitiatorError::Failed { .. } | InitiatorError::Down { .. }
            ),
            "{error}"
        );
        assert_eq!(initiator.renew(0), Some(QueuePairState::ReadyToSend));
        block_on(initiator.write(0, place(&node, 0), &[1])).unwrap();
        assert_eq!(buffers_in_use(&initiator), 0);
    }
}

/// A step of a task in the test below, which has a byte of far memory of its own.
#[derive(Clone, Copy, Debug)]
enum Act {
    Write(u8),
    Read,
    Drop,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn calls_side_by_side_do_not_mix(acts in prop::collection::vec((0u64..6, prop_oneof![any::<u8>().prop_map(Act::Write), Just(Act::Read), Just(Act::Drop)]), 1..120), latency_ns in prop_oneof![Just(0u64), Just(2000)]) {
        let node = node(latency_ns);
        let initiator = &initiator(&node);
        let mut tasks = Vec::new();
        for task in 0..6 {
            let acts: Vec<Act> = acts.iter().filter(|(of, _)| *of == task).map(|(_, act)| *act).collect();
            let far = place(&node, task * 8);
            tasks.push(Box::pin(async move {
                // A dropped write may still be performed, but only before later ones: a queue keeps
                // its order.
                let mut may_be = vec![0];
                for act in acts {
                    match act {
                        Act::Write(byte) => {
                            initiator.write(0, far, &[byte; 8]).await.expect("no faults");
                            may_be = vec![byte];
                        }
                        Act::Read => {
                            let mut into = [0; 8];
                            initiator.read(0, far, &mut into).await.expect("no faults");
                            assert!(into.iter().all(|byte| *byte == into[0]));
                            assert!(may_be.contains(&into[0]));
                        }
                        Act::Drop => {
                            let byte = may_be[0] ^ 0x55;
                            may_be.push(byte);
                            let bytes = [byte; 8];
                            let mut call = pin!(initiator.write(0, far, &bytes));
                            let _polled = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
                        }
                    }
                }
            }));
        }
        let mut tasks: HashMap<usize, _> = tasks.into_iter().enumerate().collect();
        while !tasks.is_empty() {
            tasks.retain(|_, task| once(task.as_mut()).is_pending());
        }
        // Buffers of dropped calls are freed as completions are polled.
        block_on(poll_fn(|_| {
            initiator.renew(0);
            if initiator.inner().endpoint.outstanding() == 0 { Poll::Ready(()) } else { Poll::Pending }
        }));
        prop_assert_eq!(buffers_in_use(initiator), 0);
    }
}

/// Counts its wakes.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_driver_wakes_the_calls_that_it_ends() {
    let node = node(0);
    let endpoint = EmbeddedEndpoint::new(std::slice::from_ref(&node), 1, 2, 1);
    let options = InitiatorOptions {
        lock: Lock::Off,
        is_driven: true,
        ..InitiatorOptions::default()
    };
    let initiator = Initiator::new(endpoint, options).expect("some scratch memory");
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    let mut bytes = [[0; 8]; 5];
    let mut reads: Vec<_> = (0..)
        .zip(&mut bytes)
        .map(|(word, into)| ReadInto {
            remote: place(&node, word * 8),
            into,
        })
        .collect();
    // Five requests on a queue pair two deep, and one beside them that finds no room.
    let mut many = pin!(initiator.read_many(0, &mut reads));
    let mut one = pin!(initiator.fetch_add(0, place(&node, 0), 7));
    assert!(many.as_mut().poll(&mut context).is_pending());
    assert!(one.as_mut().poll(&mut context).is_pending());
    assert_eq!(bell.0.load(Ordering::Relaxed), 0);
    let mut wakers = Vec::new();
    let (mut many_done, mut one_done) = (false, false);
    while !many_done || !one_done {
        let driven = initiator.drive(&mut wakers);
        assert!(driven.completed > 0 && driven.outstanding == 0);
        assert!(bell.0.swap(0, Ordering::Relaxed) > 0);
        many_done = many_done || many.as_mut().poll(&mut context).is_ready();
        one_done = one_done || one.as_mut().poll(&mut context).is_ready();
    }
}

#[test]
fn a_starved_call_is_woken_when_a_buffer_is_free() {
    let node = node(0);
    let endpoint = EmbeddedEndpoint::new(std::slice::from_ref(&node), 1, 8, 1);
    let options = InitiatorOptions {
        scratch_bytes: 0,
        longest_bytes: 64 << 10,
        lock: Lock::Off,
        is_driven: true,
    };
    let initiator = Initiator::new(endpoint, options).expect("some scratch memory");
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    // As many long transfers as there are buffers for, and one more.
    let mut long = vec![vec![0; 64 << 10]; 4];
    let mut calls: Vec<_> = long
        .iter_mut()
        .map(|into| Box::pin(initiator.read(0, place(&node, 0), into)))
        .collect();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    assert!(initiator.counts(0).posted < 4, "one has found no buffer");
    let mut left = calls.len();
    let mut last = calls.pop().expect("there are four");
    let mut wakers = Vec::new();
    while left > 0 {
        initiator.drive(&mut wakers);
        // The one that starves is polled first, while the others hold their buffers.
        bell.0.store(0, Ordering::Relaxed);
        if last.as_mut().poll(&mut context).is_ready() {
            break;
        }
        let before = calls.len();
        calls.retain_mut(|call| call.as_mut().poll(&mut context).is_pending());
        left -= before - calls.len();
        if calls.len() < before {
            assert!(
                bell.0.load(Ordering::Relaxed) > 0,
                "a buffer is free, and it sleeps"
            );
        }
    }
}

#[test]
fn a_call_of_another_session_posts_nothing() {
    let node = node(0);
    let initiator = initiator(&node);
    let of = |session| QueueOf {
        queue: 0,
        session: Some(session),
    };
    block_on(async {
        let refused = Err(InitiatorError::OtherSession { queue: 0 });
        assert_eq!(initiator.write(of(1), place(&node, 0), &[1]).await, refused);
        initiator.renew_for(0, 1);
        initiator.write(of(1), place(&node, 0), &[1]).await.unwrap();
        initiator.renew_for(0, 2);
        assert_eq!(initiator.write(of(1), place(&node, 0), &[2]).await, refused);
        let mut byte = [0];
        initiator
            .read(of(2), place(&node, 0), &mut byte)
            .await
            .unwrap();
        assert_eq!(byte, [1]);
    });
}

/// A fabric that hands out as many completions as the test lets it, and counts doorbells.
struct Trickle {
    inner: EmbeddedEndpoint,
    allowed: usize,
    doorbells: usize,
}

impl Endpoint for Trickle {
    fn register(&mut self, region: Arc<Region>) -> Result<LocalKey, RegisterError> {
        self.inner.register(region)
    }

    fn queues(&self) -> usize {
        self.inner.queues()
    }

    fn post(&mut self, queue: usize, request: WorkRequest) -> Result<(), PostError> {
        self.inner.post(queue, request)
    }

    fn ring_doorbell(&mut self, queue: usize, now_ns: u64) {
        self.doorbells += 1;
        self.inner.ring_doorbell(queue, now_ns);
    }

    fn room(&self, queue: usize) -> usize {
        self.inner.room(queue)
    }

    fn state(&self, queue: usize) -> QueuePairState {
        self.inner.state(queue)
    }

    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        let most = self.allowed.min(completions.len());
        let count = match most {
            0 => 0,
            _ => self.inner.poll(now_ns, &mut completions[..most]),
        };
        self.allowed -= count;
        count
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.inner.next_due_ns()
    }

    fn outstanding(&self) -> usize {
        self.inner.outstanding()
    }

    fn outstanding_on(&self, queue: usize) -> usize {
        self.inner.outstanding_on(queue)
    }

    fn renew(&mut self, queue: usize) {
        self.inner.renew(queue);
    }
}

#[test]
fn a_call_that_is_longer_than_the_queue_keeps_it_full() {
    let node = node(0);
    let endpoint = Trickle {
        inner: EmbeddedEndpoint::new(std::slice::from_ref(&node), 1, 4 * REFILL, 1),
        allowed: 0,
        doorbells: 0,
    };
    let options = InitiatorOptions {
        lock: Lock::Off,
        is_driven: true,
        ..InitiatorOptions::default()
    };
    let initiator = Initiator::new(endpoint, options).expect("some scratch memory");
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    let mut wakers = Vec::new();
    let doorbells = || initiator.with_endpoint(|endpoint| std::mem::take(&mut endpoint.doorbells));
    let mut land = |count| {
        initiator.with_endpoint(|endpoint| endpoint.allowed = count);
        initiator.drive(&mut wakers);
        bell.0.swap(0, Ordering::Relaxed)
    };
    let mut bytes = [[0; 8]; 8 * REFILL];
    let mut reads: Vec<_> = (0..)
        .zip(&mut bytes)
        .map(|(word, into)| ReadInto {
            remote: place(&node, word * 8),
            into,
        })
        .collect();
    let (half, _) = reads.split_at_mut(4 * REFILL);
    let mut short = Box::pin(initiator.read_many(0, half));
    assert!(short.as_mut().poll(&mut context).is_pending());
    assert_eq!(doorbells(), 1, "there is room for all");
    assert_eq!(land(4 * REFILL), 1);
    assert!(short.as_mut().poll(&mut context).is_ready());
    drop(short);

    let mut long = pin!(initiator.read_many(0, &mut reads));
    assert!(long.as_mut().poll(&mut context).is_pending());
    assert_eq!(
        doorbells(),
        4,
        "the first are served while others are posted"
    );
    assert_eq!(
        land(REFILL - 1),
        0,
        "a few free places are not worth a send"
    );
    assert_eq!(land(1), 1);
    let posted = initiator.counts(0).posted;
    assert!(long.as_mut().poll(&mut context).is_pending());
    assert_eq!(initiator.counts(0).posted - posted, REFILL as u64);
    assert_eq!(doorbells(), 1);
    let mut is_done = false;
    for _ in 0..8 * REFILL {
        land(1);
        is_done = is_done || long.as_mut().poll(&mut context).is_ready();
    }
    assert!(is_done);
}
