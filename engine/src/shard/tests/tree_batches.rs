//! Operations on trees in batches, where each may use what look-ahead or the operation before has
//! found: they answer what they would one by one.

use std::collections::BTreeMap;

use super::{Owned, Random, Reactor, Setting, seeds};
use crate::message::operation::Operation;
use crate::tree::{TreeCondition, TreeGuard, TreeOp, TreeValues};

const KEYS: [&[u8]; 3] = [b"one", b"other", b"third"];
/// Keys of elements of a map.
const ELEMENTS: u64 = 150;

type Element = [u8; 8];

/// One request of a batch.
#[derive(Clone, Copy, Debug)]
enum Call {
    Insert(Element, Element),
    Remove(Element),
    Get(Element),
    Rank(Element),
    Push(Element),
    Pop,
    /// Deletes the key.
    Delete,
    /// The key becomes a list of one value.
    Replace(Element),
}

fn call_of(random: &mut Random) -> Call {
    let element = (random.below(ELEMENTS) << 40).to_be_bytes();
    let value = random.next().to_be_bytes();
    match random.below(40) {
        0..14 => Call::Insert(element, value),
        14..22 => Call::Remove(element),
        22..32 => Call::Get(element),
        32 => Call::Rank(element),
        33..36 => Call::Push(value),
        36..38 => Call::Pop,
        38 if random.below(20) == 0 => Call::Delete,
        39 if random.below(20) == 0 => Call::Replace(value),
        _ => Call::Get(element),
    }
}

/// What a key holds.
#[derive(Clone, Debug, Default)]
enum Held {
    #[default]
    Nothing,
    Map(BTreeMap<Element, Element>),
    List(Vec<Element>),
}

/// What a call answers: the bytes of a value, or none. `Err` if the collection is of another kind.
fn expected(held: &mut Held, call: Call) -> Result<Option<Vec<u8>>, ()> {
    match (call, &mut *held) {
        (Call::Delete, _) => {
            *held = Held::Nothing;
            return Ok(None);
        }
        (Call::Replace(value), _) => *held = Held::List(vec![value]),
        (Call::Insert(..), Held::Nothing) => *held = Held::Map(BTreeMap::new()),
        (Call::Push(_), Held::Nothing) => *held = Held::List(Vec::new()),
        _ => {}
    }
    let answer = match (call, &mut *held) {
        (_, Held::Nothing) => None,
        (Call::Replace(_), Held::List(list)) => Some((list.len() as u64).to_le_bytes().to_vec()),
        (Call::Insert(element, value), Held::Map(map)) => Some(match map.insert(element, value) {
            Some(before) => [&[1][..], &before].concat(),
            None => vec![0],
        }),
        (Call::Remove(element), Held::Map(map)) => map.remove(&element).map(Vec::from),
        (Call::Get(element), Held::Map(map)) => map.get(&element).map(|value| value.to_vec()),
        (Call::Rank(element), Held::Map(map)) => map.contains_key(&element).then(|| {
            let before = map.range(..element).count() as u64;
            before.to_le_bytes().to_vec()
        }),
        (Call::Push(value), Held::List(list)) => {
            list.push(value);
            Some((list.len() as u64).to_le_bytes().to_vec())
        }
        (Call::Pop, Held::List(list)) => Some(page_of(&[], &list.remove(0), !list.is_empty())),
        (Call::Pop, Held::Map(map)) => {
            let (element, value) = map.pop_first().expect("it has an element");
            Some(page_of(&element, &value, !map.is_empty()))
        }
        _ => return Err(()),
    };
    let is_empty = match &held {
        Held::Nothing => false,
        Held::Map(map) => map.is_empty(),
        Held::List(list) => list.is_empty(),
    };
    if is_empty {
        *held = Held::Nothing;
    }
    Ok(answer)
}

/// A page of one element.
fn page_of(key: &[u8], value: &[u8], has_more: bool) -> Vec<u8> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_le_bytes();
    let lengths = [length(key), length(value)].concat();
    [&[u8::from(has_more)][..], &lengths, key, value].concat()
}

fn push(reactor: &mut Reactor, token: u64, key: &[u8], call: Call) {
    let mut offer = |op: TreeOp<'_>| {
        let guard = TreeGuard::default();
        reactor.push(token, Operation::Tree { key, op, guard });
    };
    let pushed = |value, replaces| TreeOp::Push {
        front: false,
        exists: false,
        replaces,
        values: TreeValues::Slices(value),
    };
    match call {
        Call::Insert(element, value) => offer(TreeOp::Insert {
            key: &element,
            value: &value,
            condition: TreeCondition::Always,
        }),
        Call::Remove(element) => offer(TreeOp::Remove { key: &element }),
        Call::Get(element) => offer(TreeOp::Get { key: &element }),
        Call::Rank(element) => offer(TreeOp::Rank { key: &element }),
        Call::Push(value) => offer(pushed(&[&value], false)),
        Call::Replace(value) => offer(pushed(&[&value], true)),
        Call::Pop => offer(TreeOp::Pop {
            last: false,
            limit: 1,
        }),
        Call::Delete => reactor.push(token, Operation::Delete { key }),
    }
}

fn compare(answer: Owned, wanted: Result<Option<Vec<u8>>, ()>, call: Call) {
    match (answer, wanted) {
        (Owned::Value(_, value), Ok(Some(wanted))) => assert_eq!(value, wanted, "{call:?}"),
        (Owned::Absent | Owned::Deleted, Ok(None)) => {}
        (Owned::Value(_, page), Ok(None)) if matches!(call, Call::Pop) => assert_eq!(page, [0]),
        (Owned::Failed(_), Err(())) => {}
        (answer, wanted) => panic!("{call:?}: {answer:?}, not {wanted:?}"),
    }
}

#[test]
fn requests_of_a_batch_answer_what_they_would_one_by_one() {
    for seed in seeds() {
        let mut random = Random(seed);
        let mut reactor = Reactor::new(&Setting::default());
        reactor.shard.trees.set_entries_max(4);
        reactor
            .shard
            .trees
            .set_inline_bytes([0, 80][random.below(2) as usize]);
        let mut held: [Held; KEYS.len()] = Default::default();
        for _ in 0..400 {
            // Mostly one key, so that a request follows another one of its key.
            let usual = random.below(KEYS.len() as u64) as usize;
            let calls: Vec<_> = (0..1 + random.below(60))
                .map(|_| match random.below(8) {
                    0 => (
                        random.below(KEYS.len() as u64) as usize,
                        call_of(&mut random),
                    ),
                    _ => (usual, call_of(&mut random)),
                })
                .collect();
            for (token, (key, call)) in (0..).zip(&calls) {
                push(&mut reactor, token, KEYS[*key], *call);
            }
            let served = reactor.serve_pushed();
            let mut answers = std::mem::take(&mut *reactor.inbox.answers.borrow_mut());
            answers.sort_by_key(|answer| answer.0);
            assert_eq!(answers.len(), served, "all is local");
            for ((_, answer), (key, call)) in answers.into_iter().zip(calls) {
                compare(answer, expected(&mut held[key], call), call);
            }
            reactor.advance();
            reactor.check_small();
        }
        reactor.check();
    }
}
