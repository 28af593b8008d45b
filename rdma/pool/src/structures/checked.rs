//! Tests that structures are linearizable, also where clients die in the middle of operations.
//!
//! Clients are futures that one thread polls in a random order, one request at a time; some are
//! dropped half-way, as a process dies. The history of invocations and answers must have an order
//! that a sequential model explains (the search of J. Wing and C. Gong, 1993, with the memory of
//! visited states of G. Lowe, 2017). An operation without an answer took place, or did not.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::RemotePool;

/// A sequential model of a structure.
trait Model: Clone + Debug + Default + Eq + Hash {
    type Act: Clone + Debug;
    type Outcome: PartialEq + Debug;
    fn apply(&mut self, act: &Self::Act) -> Self::Outcome;
    /// Whether an outcome says that nothing took place, for a reason that the model does not know.
    fn is_void(_outcome: &Self::Outcome) -> bool {
        false
    }
}

type Work<'a, O> = Pin<Box<dyn Future<Output = O> + 'a>>;

/// A client: the operations that it has still to begin, and the one that it performs, by its place
/// in the history.
type Client<'a, O> = (usize, Option<(usize, Work<'a, O>)>);

/// An operation of a history.
#[derive(Debug)]
struct Event<M: Model> {
    act: M::Act,
    begun: usize,
    /// When it was answered, and what.
    answered: Option<(usize, M::Outcome)>,
    is_void: bool,
}

/// Whether an order of the events explains them.
fn is_linearizable<M: Model>(events: &[Event<M>]) -> bool {
    assert!(events.len() <= 32);
    let answered = events.iter().enumerate();
    let needed = answered
        .filter(|(_, event)| event.answered.is_some())
        .fold(0_u32, |bits, (place, _)| bits | 1 << place);
    let mut visited = HashSet::new();
    let mut left = vec![(0_u32, M::default())];
    while let Some((done, model)) = left.pop() {
        if done & needed == needed {
            return true;
        }
        // What is answered before another begins comes before it.
        let open = |place: &usize| done >> place & 1 == 0;
        let first_answer = (0..events.len())
            .filter(open)
            .filter_map(|place| events[place].answered.as_ref().map(|answer| answer.0))
            .min()
            .unwrap_or(usize::MAX);
        for place in (0..events.len()).filter(open) {
            let event = &events[place];
            if event.begun > first_answer {
                continue;
            }
            let mut next = model.clone();
            let outcome = next.apply(&event.act);
            let fits = event
                .answered
                .as_ref()
                .is_none_or(|(_, found)| *found == outcome);
            let state = (done | 1 << place, next);
            if fits && visited.insert(state.clone()) {
                left.push(state);
            }
        }
    }
    false
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

const CLIENTS: usize = 4;
/// Clients that die in a run, at most: the others go on.
const DEATHS: usize = 2;
/// Polls of a run, at most.
const STEPS: usize = 20_000_000;
const ACTS: usize = 7;

/// Runs clients in a random order, and checks the history.
fn explore<M: Model, S>(
    seeds: std::ops::Range<u64>,
    make: impl Fn(&RemotePool) -> S,
    draw: impl Fn(&mut Random) -> M::Act,
    perform: impl for<'a> Fn(&'a S, M::Act) -> Work<'a, M::Outcome>,
) {
    let pool = RemotePool::embedded(256 << 20).expect("some memory");
    for seed in seeds {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let structure = make(&pool);
        let mut events: Vec<Event<M>> = Vec::new();
        let mut clients: Vec<Client<'_, M::Outcome>> = (0..CLIENTS).map(|_| (ACTS, None)).collect();
        let mut now = 0;
        let mut context = Context::from_waker(Waker::noop());
        let mut wakers = Vec::new();
        // In some runs a client goes on for long, and the others fall far behind.
        let change = [2, 16, 64][usize::try_from(seed % 3).expect("small")];
        let (mut last, mut deaths) = (None, 0);
        while let Some(drawn) = busy(&clients, &mut random) {
            let stays = random.below(change) > 0;
            let goes_on = |last: &usize| clients[*last].0 > 0 || clients[*last].1.is_some();
            let busy = last.filter(|_| stays).filter(goes_on).unwrap_or(drawn);
            last = Some(busy);
            now += 1;
            let (left, current) = &mut clients[busy];
            let (place, work) = current.get_or_insert_with(|| {
                *left -= 1;
                let act = draw(&mut random);
                events.push(Event {
                    act: act.clone(),
                    begun: now,
                    answered: None,
                    is_void: false,
                });
                (events.len() - 1, perform(&structure, act))
            });
            if let Poll::Ready(outcome) = work.as_mut().poll(&mut context) {
                let is_void = M::is_void(&outcome);
                events[*place].answered = Some((now, outcome));
                events[*place].is_void = is_void;
                *current = None;
            } else if deaths < DEATHS && random.below(60) == 0 {
                // It dies, with what it has posted.
                clients[busy] = (0, None);
                deaths += 1;
            }
            assert!(now < STEPS, "seed {seed}: no client gets on: {events:#?}");
            pool.lane().initiator().drive(&mut wakers);
            if deaths > 0 && now % 64 == 0 {
                // What the dead held is given back, as on each tick.
                pool.handle().settle();
            }
        }
        events.retain(|event| !event.is_void);
        assert!(is_linearizable(&events), "seed {seed}: {events:#?}");
    }
}

/// A client that has something to do.
fn busy<T>(clients: &[(usize, Option<T>)], random: &mut Random) -> Option<usize> {
    let busy = clients.iter().enumerate();
    let busy: Vec<_> = busy
        .filter(|(_, (left, current))| *left > 0 || current.is_some())
        .map(|(place, _)| place)
        .collect();
    let drawn = random.below(busy.len().max(1) as u64);
    busy.get(usize::try_from(drawn).ok()?).copied()
}

const SEEDS: u64 = 6000;

/// Nodes: few, so that they are used again soon.
const FEW: usize = 4;
/// What a push answers that found no node.
const FULL: Option<u32> = Some(u32::MAX);

#[derive(Clone, Debug)]
enum Access {
    Push(u32),
    Pop,
}

fn access(random: &mut Random) -> Access {
    match random.below(2) {
        0 => Access::Push(u32::try_from(random.below(1000)).expect("small")),
        _ => Access::Pop,
    }
}

/// Values in the order in which they were pushed; a queue takes the first, a stack the last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Pushed<const FIRST: bool>(VecDeque<u32>);

impl<const FIRST: bool> Model for Pushed<FIRST> {
    type Act = Access;
    type Outcome = Option<u32>;

    /// No node is free: others hold them.
    fn is_void(outcome: &Option<u32>) -> bool {
        *outcome == FULL
    }

    fn apply(&mut self, act: &Access) -> Option<u32> {
        match act {
            Access::Push(value) => {
                self.0.push_back(*value);
                None
            }
            Access::Pop if FIRST => self.0.pop_front(),
            Access::Pop => self.0.pop_back(),
        }
    }
}

fn pushed(pushed: crate::error::Result<bool>) -> Option<u32> {
    if pushed.expect("no fault") {
        return None;
    }
    FULL
}

#[test]
fn a_stack_is_linearizable() {
    explore::<Pushed<false>, _>(
        0..SEEDS,
        |pool| RemoteStack::create(pool, FEW).wait().expect("room"),
        access,
        |stack: &RemoteStack<u32>, act| {
            Box::pin(async move {
                match act {
                    Access::Push(value) => pushed(stack.push(&value).bare().await),
                    Access::Pop => stack.pop().bare().await.expect("no fault"),
                }
            })
        },
    );
}

#[test]
fn a_queue_is_linearizable() {
    explore::<Pushed<true>, _>(
        0..SEEDS,
        |pool| RemoteQueue::create(pool, FEW).wait().expect("room"),
        access,
        |queue: &RemoteQueue<u32>, act| {
            Box::pin(async move {
                match act {
                    Access::Push(value) => pushed(queue.push(&value).bare().await),
                    Access::Pop => queue.pop().bare().await.expect("no fault"),
                }
            })
        },
    );
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Counted(u64);

impl Model for Counted {
    type Act = u64;
    type Outcome = u64;

    fn apply(&mut self, act: &u64) -> u64 {
        let before = self.0;
        self.0 += act;
        before
    }
}

#[test]
fn a_counter_is_linearizable() {
    explore::<Counted, _>(
        0..SEEDS,
        |pool| RemoteCounter::create(pool, 0).wait().expect("room"),
        |random| random.below(3),
        |counter: &RemoteCounter, act| {
            Box::pin(async move {
                match act {
                    0 => counter.get().bare().await.expect("no fault"),
                    more => counter.add(more).bare().await.expect("no fault"),
                }
            })
        },
    );
}

#[derive(Clone, Debug)]
enum Entry {
    Set(u8, u32),
    Get(u8),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Once(BTreeMap<u8, u32>);

impl Model for Once {
    type Act = Entry;
    type Outcome = Option<u32>;

    fn apply(&mut self, act: &Entry) -> Option<u32> {
        match act {
            Entry::Set(key, value) => match self.0.get(key) {
                Some(found) => Some(*found),
                None => {
                    self.0.insert(*key, *value);
                    None
                }
            },
            Entry::Get(key) => self.0.get(key).copied(),
        }
    }
}

#[test]
fn a_once_table_is_linearizable() {
    explore::<Once, _>(
        0..SEEDS,
        |pool| RemoteOnceTable::create(pool, 40).wait().expect("room"),
        |random| {
            let key = u8::try_from(random.below(3)).expect("small");
            match random.below(2) {
                0 => Entry::Set(key, u32::try_from(random.below(1000)).expect("small")),
                _ => Entry::Get(key),
            }
        },
        |table: &RemoteOnceTable<u8, u32>, act| {
            Box::pin(async move {
                match act {
                    Entry::Set(key, value) => table.set(&key, &value).bare().await,
                    Entry::Get(key) => table.get(&key).bare().await,
                }
                .expect("no fault")
            })
        },
    );
}

#[derive(Clone, Debug)]
enum Edit {
    Insert(u16, u32),
    Add(u16),
    Remove(u16),
    Get(u16),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Mapped(BTreeMap<u16, u32>);

impl Default for Mapped {
    /// The keys that are there from the start: changed while an insertion of another has it grow.
    fn default() -> Self {
        Self(BTreeMap::from([(0, 0), (1, 0)]))
    }
}

impl Model for Mapped {
    type Act = Edit;
    type Outcome = Option<u32>;

    fn apply(&mut self, act: &Edit) -> Option<u32> {
        match act {
            Edit::Insert(key, value) => self.0.insert(*key, *value),
            Edit::Add(key) => {
                let old = self.0.get(key).copied();
                self.0.insert(*key, old.unwrap_or(0) + 1);
                old
            }
            Edit::Remove(key) => self.0.remove(key),
            Edit::Get(key) => self.0.get(key).copied(),
        }
    }
}

fn edit(random: &mut Random) -> Edit {
    let key = u16::try_from(random.below(3)).expect("small");
    match random.below(5) {
        0 => Edit::Insert(key, u32::try_from(random.below(1000)).expect("small")),
        1 => Edit::Add(key),
        2 => Edit::Remove(key),
        _ => Edit::Get(key),
    }
}

fn edited<'a>(map: &'a RemoteMap<u16, u32>, act: Edit) -> Work<'a, Option<u32>> {
    Box::pin(async move {
        match act {
            Edit::Insert(key, value) => map.insert(&key, &value).bare().await,
            Edit::Add(key) => {
                let add = |old: Option<u32>| Change::Set(old.unwrap_or(0) + 1);
                map.update(&key, add).bare().await
            }
            Edit::Remove(key) => map.remove(&key).bare().await,
            Edit::Get(key) => map.get(&key).bare().await,
        }
        .expect("no fault")
    })
}

#[test]
fn a_map_is_linearizable() {
    let make = |pool: &RemotePool| {
        let map = RemoteMap::create(pool, 40).wait().expect("room");
        for (key, value) in Mapped::default().0 {
            map.insert(&key, &value).wait().expect("room");
        }
        map
    };
    explore::<Mapped, _>(0..SEEDS / 12, make, edit, edited);
}

#[test]
fn a_map_that_grows_is_linearizable() {
    let make = |pool: &RemotePool| {
        // Other keys fill it: the first key that is inserted has it grow.
        let map = RemoteMap::create(pool, 1).wait().expect("room");
        let entries = map.figures().entries;
        for key in [0, 1]
            .into_iter()
            .chain(100..)
            .take(usize::try_from(entries).expect("few"))
        {
            map.insert(&key, &0_u32).wait().expect("room");
            if map.figures().entries > entries {
                break;
            }
        }
        map
    };
    explore::<Mapped, _>(0..SEEDS / 12, make, edit, edited);
}

#[test]
fn a_history_that_no_order_explains_is_found() {
    let event = |act, begun, answered| Event::<Pushed<true>> {
        act,
        begun,
        answered: Some(answered),
        is_void: false,
    };
    // The second value leaves first, although both pushes were answered one after the other.
    let wrong = [
        event(Access::Push(1), 0, (1, None)),
        event(Access::Push(2), 2, (3, None)),
        event(Access::Pop, 4, (5, Some(2))),
    ];
    assert!(!is_linearizable(&wrong));
    let right = [
        event(Access::Push(1), 0, (3, None)),
        event(Access::Push(2), 1, (3, None)),
        event(Access::Pop, 4, (5, Some(2))),
    ];
    assert!(is_linearizable(&right));
}

#[test]
fn what_the_dead_kept_is_repaired() {
    let pool = RemotePool::embedded(1 << 20).expect("some memory");
    let queue = RemoteQueue::create(&pool, 3).wait().expect("room");
    let stack = RemoteStack::create(&pool, 3).wait().expect("room");
    // Each push dies after its first few requests.
    for polls in 3..6 {
        let mut pushes: [Work<'_, _>; 2] = [
            Box::pin(queue.push(&7_u64).bare()),
            Box::pin(stack.push(&7_u64).bare()),
        ];
        for push in &mut pushes {
            for _ in 0..polls {
                let _ = push.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                pool.lane().initiator().drive(&mut Vec::new());
            }
        }
    }
    assert!(!queue.push(&1).wait().expect("no fault"));
    assert!(!stack.push(&1).wait().expect("no fault"));
    assert_eq!(queue.pop().wait().expect("no fault"), None);
    assert_eq!(queue.repair().wait().expect("no fault"), 3);
    assert_eq!(stack.repair().wait().expect("no fault"), 3);
    for value in 0..3 {
        assert!(queue.push(&value).wait().expect("no fault"));
        assert!(stack.push(&value).wait().expect("no fault"));
    }
    assert!(!queue.push(&9).wait().expect("no fault"));
    assert_eq!(queue.pop().wait().expect("no fault"), Some(0));
    assert_eq!(stack.pop().wait().expect("no fault"), Some(2));
}

#[test]
fn a_change_that_dies_at_any_moment_leaves_the_old_value_or_the_new_one() {
    let pool = RemotePool::embedded(16 << 20).expect("some memory");
    let map = RemoteMap::create(&pool, 40).wait().expect("room");
    map.insert(&1_u64, &[10_u64, 10]).wait().expect("room");
    let mut old = [10, 10];
    for polls in 1..12 {
        let new = [100 + polls, 200 + polls];
        {
            let mut insert: Work<'_, _> = Box::pin(map.insert(&1, &new).bare());
            for _ in 0..polls {
                let mut context = Context::from_waker(Waker::noop());
                if insert.as_mut().poll(&mut context).is_ready() {
                    break;
                }
                pool.lane().initiator().drive(&mut Vec::new());
            }
        }
        let found = map.get(&1).wait().expect("no fault").expect("it is there");
        assert!(found == old || found == new, "{polls}: {found:?}");
        // The lock is given back.
        old = [polls, polls];
        map.insert(&1, &old).wait().expect("no fault");
    }
}
