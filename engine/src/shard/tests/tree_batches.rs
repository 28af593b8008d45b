//! Operations on trees in batches, where each may use what look-ahead or the operation before has
//! found: they answer what they would one by one.

use std::collections::BTreeMap;

use super::tree_scores::order_of;
use super::{Owned, Random, Reactor, Setting, seeds};
use crate::message::operation::Operation;
use crate::tree::{
    TreeCondition, TreeGuard, TreeOp, TreeScore, TreeScoreRule, TreeScores, TreeValues,
};

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
    /// Gives a member a score, or removes it.
    Score(Element, Option<i8>),
    ScoreRank(Element),
    ScoredValue(Element),
    Pop,
    /// Deletes the key.
    Delete,
    /// The key becomes a list of one value.
    Replace(Element),
}

fn call_of(random: &mut Random) -> Call {
    let element = (random.below(ELEMENTS) << 40).to_be_bytes();
    let value = random.next().to_be_bytes();
    match random.below(64) {
        40..50 => Call::Score(element, Some(value[0].cast_signed() / 16)),
        50..54 => Call::Score(element, None),
        54..60 => Call::ScoreRank(element),
        60..64 => Call::ScoredValue(element),
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
    Scored(BTreeMap<Element, f64>),
}

/// The members in the order of their scores.
fn by_score(scores: &BTreeMap<Element, f64>) -> Vec<(f64, Element)> {
    let mut all: Vec<_> = scores
        .iter()
        .map(|(&member, &score)| (score, member))
        .collect();
    all.sort_by(|one, other| one.partial_cmp(other).expect("numbers"));
    all
}

/// Gives a member a score, or removes it; returns what is answered.
fn scored(scores: &mut BTreeMap<Element, f64>, (member, score): (Element, Option<i8>)) -> Vec<u8> {
    let before = match score {
        Some(score) => scores.insert(member, f64::from(score)),
        None => scores.remove(&member),
    };
    let score = score.map(f64::from);
    let counts = [
        u64::from(score.is_some() && before.is_none()),
        u64::from(before.is_some() && score.is_some_and(|score| before != Some(score))),
        u64::from(score.is_none() && before.is_some()),
        1,
        scores.len() as u64,
        u64::from(score.is_some()),
    ];
    let score = score.unwrap_or(0.0).to_le_bytes();
    [&counts.map(u64::to_le_bytes).concat()[..], &score].concat()
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
        (Call::Score(..), Held::Nothing) => *held = Held::Scored(BTreeMap::new()),
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
        (Call::Pop, Held::Scored(scores)) => {
            let (score, member) = by_score(scores)[0];
            scores.remove(&member);
            let key = [order_of(score), member].concat();
            Some(page_of(&key, &[], !scores.is_empty()))
        }
        (Call::Score(member, score), Held::Scored(scores)) => Some(scored(scores, (member, score))),
        (Call::ScoredValue(member), Held::Scored(scores)) => scores
            .get(&member)
            .map(|score| score.to_le_bytes().to_vec()),
        (Call::ScoreRank(member), Held::Scored(scores)) => scores.get(&member).map(|score| {
            let before = by_score(scores).into_iter();
            let rank = before.take_while(|&(_, other)| other != member).count() as u64;
            [rank.to_le_bytes(), score.to_le_bytes()].concat()
        }),
        _ => return Err(()),
    };
    let is_empty = match &held {
        Held::Nothing => false,
        Held::Map(map) => map.is_empty(),
        Held::List(list) => list.is_empty(),
        Held::Scored(scores) => scores.is_empty(),
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
        Call::Score(member, score) => {
            let change = TreeScore {
                member: &member,
                score: score.map(f64::from),
                value: &[],
            };
            offer(TreeOp::Score {
                changes: TreeScores::Slices(&[change]),
                rule: TreeScoreRule::default(),
                replaces: false,
            });
        }
        Call::ScoreRank(member) => offer(TreeOp::ScoreRank {
            member: &member,
            reverse: false,
        }),
        Call::ScoredValue(member) => offer(TreeOp::ScoredValue { member: &member }),
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
