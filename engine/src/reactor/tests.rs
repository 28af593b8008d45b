//! Tests of a reactor with a time of its own.

mod journaling;
mod sections;

use std::cell::Cell;
use std::rc::Rc;

use farcore_rdma::{
    EmbeddedEndpoint, EmbeddedNode, LinkModel, Lock, Region, RegionOptions, RemoteSlice,
};

use super::turn_clock::TURNS_A_READING;
use super::*;
use crate::config::Config;
use crate::error::Error;
use crate::far_memory::{FarChange, far_events};
use crate::message::change::{Change, Condition};
use crate::message::expiry::Expiry;
use crate::message::hash::KeyHasher;
use crate::message::operation::Operation;
use crate::shard::{Extents, NodeId, QUEUES_PER_NODE, ShardOptions};
use crate::transport::lane::lane;

const PAGE_BYTES: u32 = 64 << 10;

/// A time that stands still until a test advances it.
#[derive(Clone, Debug, Default)]
struct TestTime(Rc<Cell<u64>>);

impl Time for TestTime {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }

    fn system_ns(&self) -> u64 {
        self.0.get()
    }
}

fn region(bytes: usize) -> Arc<Region> {
    let options = RegionOptions {
        bytes,
        huge_pages: false,
        lock: Lock::Off,
        prefault: false,
    };
    Arc::new(Region::map(&options).unwrap())
}

/// The reactor of an engine with one core and one embedded node.
fn alone(time: TestTime) -> Reactor<EmbeddedEndpoint, TestTime> {
    with_lanes(time, Vec::new(), (1, 0))
}

/// The reactor of an engine with one core, with lanes to handles and this many extents of an
/// embedded node some nanoseconds away.
fn with_lanes(
    time: TestTime,
    servers: Vec<Option<LaneServer>>,
    (extent_count, latency_ns): (u64, u64),
) -> Reactor<EmbeddedEndpoint, TestTime> {
    let link = LinkModel {
        latency_ns,
        ..LinkModel::default()
    };
    let nodes = [Arc::new(EmbeddedNode::new(region(4 << 20), link))];
    let mut extents = Extents::new(vec!["node".into()], PAGE_BYTES, 64);
    for place in 0..extent_count {
        let piece = RemoteSlice {
            key: nodes[0].remote_key(),
            offset: place * u64::from(PAGE_BYTES),
        };
        extents.add(NodeId::new(0), piece).unwrap();
    }
    let metrics = Arc::new(CoreMetrics::new(1));
    let hasher = Hasher128::new(1);
    let shard = Shard::new(ShardOptions {
        shard: 0,
        local_bytes: 3 << 20,
        page_bytes: PAGE_BYTES,
        keys_expected: 1_000,
        cipher: None,
        epoch: 1,
        endpoint: EmbeddedEndpoint::new(&nodes, QUEUES_PER_NODE, 64, 5),
        arena: region(3 << 20),
        extents,
        metrics: Arc::clone(&metrics),
        tuning: Config::default().tuning(),
        evicts: false,
        forgets_lost: false,
        key_hasher: KeyHasher::new(move |key| hasher.hash(key).index),
        loads: false,
    });
    Reactor::new(ReactorOptions {
        shard: shard.unwrap(),
        own: 0,
        shards: 1,
        hasher,
        command_port: Arc::default(),
        servers,
        lanes: vec![None],
        metrics,
        time,
        section_ns: 100_000_000,
        sampler: Sampler::new(farcore_tuning::Clock::new()),
    })
}

#[test]
fn a_core_with_a_far_event_neither_sleeps_nor_leaves_it() {
    let mut reactor = alone(TestTime::default());
    let (events, queue) = far_events(|| {});
    reactor.receive_far_events(queue);
    while !reactor.is_quiet() {
        reactor.turn_alone();
    }
    assert!(!reactor.has_news());
    let replied = events.post(FarChange::Room);
    assert!(!reactor.is_quiet() && reactor.has_news());
    for _ in 0..TURNS_A_READING {
        reactor.turn_alone();
    }
    assert!(reactor.is_quiet() && !reactor.has_news());
    assert_eq!(replied.try_recv(), Ok(63));
}

/// The lane of the only handle.
const HANDLE_LANE: u8 = 1;
/// Values that local memory has no room for.
const VALUES: u64 = 3_000;

fn key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// The first byte of a number's value.
fn first_byte(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

/// Sends a get over the handle's lane.
fn send_get(handle: &mut LaneClient, hasher: Hasher128, number: u64) {
    let key = key(number);
    let parts = RequestParts::plain(&Operation::Get { key: &key }).unwrap();
    let origin = Origin::new(0, RequestFlags::NONE);
    let hash = hasher.hash(&key).index;
    assert!(handle.requests.push(hash, number, origin, &parts));
    handle.requests.publish();
}

/// The answers that have arrived at the handle: their tokens and the first bytes of their values.
fn receive(handle: &mut LaneClient) -> Vec<(u64, u8)> {
    let mut answers = Vec::new();
    handle.answers.refresh();
    let visit = |_, token, answer: Answer<'_>| answers.push((token, answer.value()[0]));
    handle.answers.receive(visit);
    answers
}

/// Stores values through a client on the core until the first are far, and lets all work end.
fn load(reactor: &mut Reactor<EmbeddedEndpoint, TestTime>, time: &TestTime, client: u16) {
    for number in 0..VALUES {
        let (key, value) = (key(number), [first_byte(number); 1000]);
        let put = Operation::Put {
            key: &key,
            value: &value,
        };
        let parts = RequestParts::plain(&put).unwrap();
        assert!(reactor.submit(client, number, &parts));
        let mut stored = 0;
        while stored == 0 {
            time.0.set(time.0.get() + 100);
            stored = reactor.poll_for(client, &mut |_, answer: Answer<'_>| {
                assert!(matches!(answer, Answer::Stored { .. }), "{answer:?}");
            });
        }
    }
    while !reactor.is_quiet() {
        time.0.set(time.0.get() + 100);
        reactor.turn_alone();
    }
}

#[test]
fn a_borrower_goes_on_with_what_waits_for_the_fabric() {
    let (mut handle, server) = lane(64 << 10, 1 << 20, None);
    let time = TestTime::default();
    let mut reactor = with_lanes(time.clone(), vec![None, Some(server)], (64, 2_000));
    let client = reactor.replies().add_client().unwrap();
    load(&mut reactor, &time, client);
    assert_eq!(reactor.serve_lent(HANDLE_LANE), LoanOutcome::All);

    send_get(&mut handle, reactor.hasher, 0);
    assert_eq!(reactor.serve_lent(HANDLE_LANE), LoanOutcome::Waiting);
    assert!(receive(&mut handle).is_empty(), "the value is far");
    // The core may sleep no more, and lend.
    assert!(!reactor.is_quiet() && reactor.has_news() && reactor.may_be_lent());
    send_get(&mut handle, reactor.hasher, VALUES - 1);
    assert_eq!(reactor.serve_lent(HANDLE_LANE), LoanOutcome::Waiting);
    let newest = first_byte(VALUES - 1);
    assert_eq!(receive(&mut handle), [(VALUES - 1, newest)]);
    time.0.set(time.0.get() + 2_000);
    assert_ne!(reactor.serve_lent(HANDLE_LANE), LoanOutcome::Waiting);
    assert_eq!(receive(&mut handle), [(0, 0)]);
    assert!(!reactor.has_news());
}

#[test]
fn a_core_whose_own_client_waits_for_the_fabric_is_not_lent() {
    let time = TestTime::default();
    let mut reactor = with_lanes(time.clone(), Vec::new(), (64, 2_000));
    let client = reactor.replies().add_client().unwrap();
    load(&mut reactor, &time, client);
    assert!(reactor.may_be_lent());
    let key = key(1);
    let parts = RequestParts::plain(&Operation::Get { key: &key }).unwrap();
    assert!(reactor.submit(client, 1, &parts));
    assert!(!reactor.may_be_lent(), "it waits to be served");
    assert_eq!(reactor.poll_for(client, &mut |_, _| {}), 0);
    assert!(!reactor.may_be_lent(), "it waits for the fabric");
    time.0.set(time.0.get() + 2_000);
    assert_eq!(reactor.poll_for(client, &mut |_, _| {}), 1);
}

#[test]
fn a_long_value_is_not_kept_for_a_client_that_wants_none_while_another_polls() {
    let mut reactor = alone(TestTime::default());
    let client = reactor.replies().add_client().unwrap();
    let other = reactor.replies().add_client().unwrap();
    for (token, bytes) in [(1, 10), (2, 11)] {
        let (key, value) = (key(token), vec![7; bytes]);
        let (key, value) = (&key[..], &value[..]);
        let parts = RequestParts::plain(&Operation::Put { key, value }).unwrap();
        assert!(reactor.submit(client, token, &parts));
    }
    assert_eq!(reactor.poll_for(client, &mut |_, _| {}), 2);
    reactor.replies().limit_kept(client, 10);
    let read_by = |reactor: &mut Reactor<_, _>, polling| {
        for token in [1, 2] {
            let key = key(token);
            let parts = RequestParts::plain(&Operation::Get { key: &key }).unwrap();
            assert!(reactor.submit(client, token, &parts));
        }
        reactor.poll_for(polling, &mut |_, _| {});
        let mut lengths = Vec::new();
        reactor.poll_for(client, &mut |token, answer| match answer {
            Answer::Value { value, .. } => lengths.push((token, Ok(value.len()))),
            Answer::Failed(Error::LongValue { bytes, .. }) => lengths.push((token, Err(*bytes))),
            _ => {}
        });
        lengths
    };
    assert_eq!(read_by(&mut reactor, other), [(1, Ok(10)), (2, Err(11))]);
    // One that polls visits it where it lies.
    let mut visited = Vec::new();
    let key = key(2);
    let parts = RequestParts::plain(&Operation::Get { key: &key }).unwrap();
    assert!(reactor.submit(client, 3, &parts));
    reactor.poll_for(client, &mut |token, answer| {
        visited.push((token, answer.value().len()));
    });
    assert_eq!(visited, [(3, 11)]);
}

#[test]
fn the_first_request_of_a_core_may_name_an_expiry_from_now() {
    // Years after 1970.
    let time = TestTime(Rc::new(Cell::new(1_700_000_000_000_000_000)));
    let mut reactor = alone(time);
    let client = reactor.replies().add_client().unwrap();
    let change = Change::Put {
        value: b"value",
        expiry: Expiry::In(60_000),
        condition: Condition::Always,
        previous: false,
    };
    let mut scratch = Vec::new();
    for (token, operation) in [
        (
            1,
            Operation::Change {
                key: b"key",
                change,
            },
        ),
        (2, Operation::Get { key: b"key" }),
    ] {
        let parts = RequestParts::of(&operation, &mut scratch);
        assert!(reactor.submit(client, token, &parts));
        let mut answers = Vec::new();
        while answers.is_empty() {
            reactor.poll_for(client, &mut |token, answer: Answer<'_>| {
                answers.push((token, answer.value().to_vec(), answer == Answer::Absent));
            });
        }
        let expected = if token == 2 { &b"value"[..] } else { b"" };
        assert_eq!(answers, [(token, expected.to_vec(), false)]);
    }
}
