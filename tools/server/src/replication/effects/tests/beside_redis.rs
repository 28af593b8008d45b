//! Random operations of an engine, and a Redis that gets their commands: both have the same then.

use std::collections::BTreeMap;

use farcore::{
    TreeChanges, TreeCondition, TreeOp, TreeScore, TreeScoreBound, TreeScoreOnly, TreeScoreRange,
    TreeScoreRule, TreeScores, TreeValues,
};

use super::redis::{Redis, Reply};
use super::source::Source;
use super::streams;
use crate::by_hand::on_first_core;
use crate::random::Numbers;
use crate::types::element::{ElementKeys, entry_of};
use crate::types::kind::Kind;
use crate::types::sorted::member::{stored_member, value_of, whole_member};

/// Operations of a kind.
const STEPS: usize = 1500;

/// Runs steps of operations on a key of a kind beside a Redis, if it is installed.
fn beside_redis(
    kind: Kind,
    steps: usize,
    run: impl AsyncFn(&mut Source, &mut Redis, &mut Numbers) + Send + 'static,
) {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    on_first_core(1, move |bench| async move {
        let mut source = Source::new(bench, kind);
        let mut numbers = Numbers::new();
        for _ in 0..steps {
            run(&mut source, &mut redis, &mut numbers).await;
        }
    });
}

/// Carries an operation out at both.
pub(super) async fn step(source: &mut Source, redis: &mut Redis, op: TreeOp<'_>) -> Vec<u8> {
    let ran = source.run(op).await;
    redis.apply(&ran.commands);
    compare(source, redis, &format!("{op:?} as {:?}", ran.commands));
    ran.answer
}

fn compare(source: &Source, redis: &mut Redis, of: &str) {
    let (key, elements) = (&source.key[..], &source.elements);
    let shown = || &of[..of.len().min(4000)];
    match source.kind {
        Kind::List => {
            let found = redis.send(&[b"LRANGE", key, b"0", b"-1"]);
            let found: Vec<_> = found.list().iter().map(Reply::bytes).collect();
            let wanted: Vec<_> = elements.iter().map(|(_, value)| &value[..]).collect();
            assert!(found == wanted, "{}", shown());
        }
        Kind::Hash | Kind::Set => {
            let is_hash = source.kind == Kind::Hash;
            let name: &[u8] = if is_hash { b"HGETALL" } else { b"SMEMBERS" };
            let found = redis.send(&[name, key]);
            let found = found.list().chunks(1 + usize::from(is_hash));
            let value = |pair: &[_]| pair.get(1).map_or(&[][..], Reply::bytes).to_vec();
            let found: BTreeMap<_, _> = found
                .map(|pair| (pair[0].bytes().to_vec(), value(pair)))
                .collect();
            let wanted = elements.iter().map(|(key, value)| {
                let (element, value) = entry_of((key, value)).expect("an element");
                (element.to_vec(), value.to_vec())
            });
            assert!(found == wanted.collect(), "{}", shown());
        }
        Kind::SortedSet => {
            let found = redis.send(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]);
            let found: Vec<_> = found
                .list()
                .chunks(2)
                .map(|pair| {
                    let score: f64 = pair[1].text().parse().expect("a score");
                    (pair[0].bytes().to_vec(), score.to_bits())
                })
                .collect();
            let wanted = elements.iter().map(|(key, value)| {
                let (order, member) = key.split_first_chunk().expect("a member");
                let order = u64::from_be_bytes(*order);
                let sign = 1 << 63;
                let score = if order & sign == 0 {
                    !order
                } else {
                    order ^ sign
                };
                (whole_member(member, value).to_vec(), score)
            });
            assert!(found == wanted.collect::<Vec<_>>(), "{}", shown());
        }
        Kind::Stream => streams::compare(source, redis, shown()),
    }
}

/// A short text, or at times a long one.
fn text(numbers: &mut Numbers) -> Vec<u8> {
    let letter = b'a' + u8::try_from(numbers.below(12)).expect("a letter");
    let length = match numbers.below(8) {
        0 => 901 + numbers.below(1000),
        1 => 0,
        _ => 1 + numbers.below(3),
    };
    vec![letter; length]
}

fn rank(numbers: &mut Numbers, count: usize) -> u64 {
    numbers.below(count + 2) as u64
}

/// A rank that may count from the end.
fn signed_rank(numbers: &mut Numbers, count: usize) -> i64 {
    let rank = i64::try_from(numbers.below(2 * count + 3)).expect("a rank");
    rank - i64::try_from(count).expect("a count") - 1
}

#[test]
fn lists_are_those_of_redis() {
    beside_redis(Kind::List, STEPS, async |source, redis, numbers| {
        let count = source.elements.len();
        let value = text(numbers);
        let value = &value[..];
        let op = match numbers.below(12) {
            0..4 => {
                let is_many = count < 100 && numbers.below(10) == 0;
                let length = if is_many { 2000 } else { 1 + numbers.below(5) };
                let values: Vec<_> = (0..length).map(|_| text(numbers)).collect();
                for values in values.chunks(30) {
                    let values: Vec<_> = values.iter().map(|value| &value[..]).collect();
                    let replaces = numbers.below(60) == 0;
                    let op = TreeOp::Push {
                        front: numbers.below(2) == 0,
                        exists: !replaces && numbers.below(5) == 0,
                        replaces,
                        values: TreeValues::Slices(&values),
                    };
                    step(source, redis, op).await;
                }
                return;
            }
            4 => TreeOp::Pop {
                last: numbers.below(2) == 0,
                limit: 1 + u32::try_from(numbers.below(4)).expect("a limit"),
            },
            5 => TreeOp::SetAt {
                rank: signed_rank(numbers, count),
                value,
            },
            6 | 7 => TreeOp::InsertAt {
                rank: rank(numbers, count),
                value,
            },
            8 => {
                let start = rank(numbers, count);
                let length = if numbers.below(8) == 0 { 900 } else { 4 };
                TreeOp::RemoveByRank {
                    start,
                    end: start + numbers.below(length) as u64,
                }
            }
            9 => TreeOp::TakeAt {
                rank: signed_rank(numbers, count),
            },
            10 => TreeOp::Rotate {
                last: numbers.below(2) == 0,
            },
            _ if numbers.below(4) == 0 => TreeOp::Trim {
                first: signed_rank(numbers, count),
                last: signed_rank(numbers, count),
            },
            _ => TreeOp::Trim { first: 1, last: -2 },
        };
        step(source, redis, op).await;
    });
}

async fn step_of_map(source: &mut Source, redis: &mut Redis, numbers: &mut Numbers) {
    let is_set = source.kind == Kind::Set;
    let count = source.elements.len();
    let length = match numbers.below(20) {
        0 => 700,
        _ => 1 + numbers.below(5),
    };
    let (mut keys, mut values) = (ElementKeys::default(), Vec::new());
    for number in 0..length {
        let (mut element, mut value) = (text(numbers), text(numbers));
        if length > 10 {
            // One operation sends all of them, and has few bytes.
            element = [
                &element[..element.len().min(9)],
                number.to_string().as_bytes(),
            ]
            .concat();
            value.truncate(9);
        }
        value.truncate(if is_set { 0 } else { usize::MAX });
        keys.add(&element, Some(&value));
        values.push(value);
    }
    let mut stored = |place: usize| match numbers.below(3) {
        0 => None,
        _ => Some(&values[place][..]),
    };
    let changes: Vec<_> = (0..length)
        .map(|place| keys.change(place, stored(place)))
        .collect();
    let (key, value) = (changes[0].key, keys.stored(0, &values[0]));
    let op = match numbers.below(10) {
        0..4 => TreeOp::Update {
            changes: TreeChanges::Slices(&changes),
            replaces: numbers.below(40) == 0,
        },
        4 => TreeOp::Insert {
            key,
            value,
            condition: match numbers.below(3) {
                0 => TreeCondition::Always,
                1 => TreeCondition::IfAbsent,
                _ => TreeCondition::IfPresent,
            },
        },
        5 => TreeOp::Remove { key },
        6 => {
            let found = source.elements.iter().find(|(other, _)| other == key);
            let expected = found.map(|(_, value)| value.clone());
            let op = TreeOp::CompareAndSet {
                key,
                expected: expected.as_deref(),
                value: changes[0].value,
            };
            step(source, redis, op).await;
            return;
        }
        7 => TreeOp::Draw {
            random: numbers.word(),
            removes: true,
        },
        8 => TreeOp::TakeAt {
            rank: signed_rank(numbers, count),
        },
        _ => TreeOp::Pop {
            last: numbers.below(2) == 0,
            limit: 2,
        },
    };
    step(source, redis, op).await;
}

#[test]
fn hashes_are_those_of_redis() {
    beside_redis(Kind::Hash, STEPS, step_of_map);
}

#[test]
fn sets_are_those_of_redis() {
    beside_redis(Kind::Set, STEPS, step_of_map);
}

fn score(numbers: &mut Numbers) -> f64 {
    let few = [
        0.0,
        -0.0,
        1.0,
        1.5,
        -2.0,
        1e17,
        5e-324,
        -1e-7,
        4_054_803_462_927_619.0,
        f64::MAX,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    match numbers.below(4) {
        0 => f64::from_bits(numbers.word()),
        _ => few[numbers.below(few.len())],
    }
}

/// Gives some members scores, and removes some.
async fn step_of_scores(source: &mut Source, redis: &mut Redis, numbers: &mut Numbers) {
    let length = match numbers.below(20) {
        0 => 400,
        _ => 1 + numbers.below(5),
    };
    let mut members: Vec<_> = (0..length)
        .map(|number| {
            let mut member = text(numbers);
            member.truncate(if length > 10 { 9 } else { usize::MAX });
            if length > 10 || member.len() > 900 {
                // A long member comes once, and none begins as another one.
                let word = numbers.word();
                member.splice(0..0, format!("{number} {word}").bytes());
            }
            member
        })
        .collect();
    for (key, value) in source
        .elements
        .iter()
        .filter(|(_, value)| value.len() > 900)
    {
        if numbers.below(4) == 0 {
            members.push(whole_member(&key[8..], value).to_vec());
        }
    }
    let stored: Vec<_> = members.iter().map(|one| stored_member(one)).collect();
    let changes = stored.iter().zip(&members).map(|(stored, member)| {
        let score = Some(score(numbers)).filter(|_| numbers.below(4) > 0);
        TreeScore {
            member: stored,
            score,
            value: score.map_or(&[], |_| value_of(member)),
        }
    });
    let changes: Vec<_> = changes.collect();
    let rule = TreeScoreRule {
        condition: match numbers.below(6) {
            0 => TreeCondition::IfAbsent,
            1 => TreeCondition::IfPresent,
            _ => TreeCondition::Always,
        },
        only: match numbers.below(6) {
            0 => TreeScoreOnly::Greater,
            1 => TreeScoreOnly::Less,
            _ => TreeScoreOnly::Any,
        },
        adds: changes.len() == 1 && numbers.below(2) == 0,
    };
    let op = TreeOp::Score {
        changes: TreeScores::Slices(&changes),
        rule,
        replaces: numbers.below(60) == 0,
    };
    step(source, redis, op).await;
}

#[test]
fn sorted_sets_are_those_of_redis() {
    beside_redis(Kind::SortedSet, STEPS, async |source, redis, numbers| {
        let count = source.elements.len();
        let op = match numbers.below(12) {
            0..6 => {
                step_of_scores(source, redis, numbers).await;
                return;
            }
            6 => TreeOp::Pop {
                last: numbers.below(2) == 0,
                limit: 2,
            },
            7 => TreeOp::Draw {
                random: numbers.word(),
                removes: true,
            },
            8 => TreeOp::TakeAt {
                rank: signed_rank(numbers, count),
            },
            9 => {
                let start = rank(numbers, count);
                TreeOp::RemoveByRank {
                    start,
                    end: start + numbers.below(if count > 300 { 200 } else { 4 }) as u64,
                }
            }
            10 => TreeOp::ScoreRemove {
                range: match numbers.below(2) {
                    0 => TreeScoreRange::Ranks {
                        first: signed_rank(numbers, count),
                        last: signed_rank(numbers, count),
                    },
                    _ => TreeScoreRange::Scores {
                        from: TreeScoreBound::Included(1.0),
                        to: TreeScoreBound::Excluded(1e17),
                    },
                },
            },
            _ => TreeOp::Trim {
                first: i64::try_from(numbers.below(3)).expect("a rank"),
                last: -1 - i64::try_from(numbers.below(3)).expect("a rank"),
            },
        };
        step(source, redis, op).await;
    });
}

#[test]
fn streams_are_those_of_redis() {
    beside_redis(Kind::Stream, STEPS, streams::step);
}
