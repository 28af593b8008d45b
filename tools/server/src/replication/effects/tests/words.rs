//! The words that are sent for effects on hashes, sets, lists and sorted sets.

use farcore::{
    TreeChanges, TreeCondition, TreeEffect, TreeKind, TreeOp, TreeScore, TreeScoreOnly,
    TreeScoreRange, TreeScoreRule, TreeScores, TreeValues,
};

use super::source::put_element;
use crate::replication::effects::{NoCommand, commands};
use crate::types::element::ElementKeys;
use crate::types::kind::Kind;
use crate::types::sorted::member::{stored_member, value_of};

/// An effect on a list or a set of five elements, or another collection, of which one is left.
pub(super) fn effect(kind: Kind, op: TreeOp<'_>) -> TreeEffect<'_> {
    TreeEffect {
        kind: match kind {
            Kind::List => TreeKind::List,
            Kind::SortedSet => TreeKind::Scored,
            _ => TreeKind::Map,
        },
        tag: kind.tag(),
        begins: false,
        before: 5,
        after: 1,
        op,
        answer: &[],
        removed: &[],
    }
}

/// The words of all commands, those of one in a line. Of a long word there are its first letter and
/// its length, and `MARK` stands for the mark of lists.
pub(super) fn sent(effect: &TreeEffect<'_>) -> Result<Vec<String>, NoCommand> {
    let mut lines = Vec::new();
    commands(b"key", effect, &mut |words| {
        let words = words.iter().map(|word| match word.len() {
            0 => "''".to_owned(),
            length if length > 60 => format!("{}*{length}", char::from(word[0])),
            _ if word.starts_with(b"farcore-mark-") => "MARK".to_owned(),
            _ => String::from_utf8_lossy(word).into_owned(),
        });
        lines.push(words.collect::<Vec<_>>().join(" "));
    })?;
    Ok(lines)
}

#[track_caller]
pub(super) fn check(effect: &TreeEffect<'_>, wanted: &[&str]) {
    assert_eq!(sent(effect).expect("commands"), wanted);
}

pub(super) fn numbers(all: &[u64]) -> Vec<u8> {
    all.iter().flat_map(|number| number.to_le_bytes()).collect()
}

pub(super) fn page(elements: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut page = vec![0];
    for (key, value) in elements {
        put_element(key, value, &mut page);
    }
    page
}

pub(super) const LONG: &[u8] = &[b'm'; 901];

#[test]
fn changes_of_maps_are_joined_in_their_order_as_far_as_they_were_made() {
    let mut keys = ElementKeys::default();
    for element in [&b"a"[..], b"b", LONG, b"c", b"d"] {
        keys.add(element, Some(b"1"));
    }
    let (value, none) = (Some(&b"1"[..]), None);
    let changes = [
        keys.change(0, value),
        keys.change(1, value),
        keys.change(0, none),
        keys.change(2, none),
        keys.change(2, value),
        keys.change(3, none),
        keys.change(4, value),
    ];
    let op = TreeOp::Update {
        changes: TreeChanges::Slices(&changes),
        replaces: false,
    };
    let answer = numbers(&[3, 2, 6, 9]);
    let removed = page(&[(keys.key(2), keys.stored(2, b"0"))]);
    let mut of = effect(Kind::Hash, op);
    (of.answer, of.removed) = (&answer, &removed);
    let wanted = [
        "HSET key a 1 b 1",
        "HDEL key a m*901",
        "HSET key m*901 1",
        "HDEL key c",
    ];
    check(&of, &wanted);
    of.tag = Kind::Set.tag();
    let wanted = [
        "SADD key a b",
        "SREM key a m*901",
        "SADD key m*901",
        "SREM key c",
    ];
    check(&of, &wanted);
    // A long one that was not there is not known, and nothing is to be removed.
    of.removed = &[];
    check(
        &of,
        &["SADD key a b", "SREM key a", "SADD key m*901", "SREM key c"],
    );
    of.begins = true;
    of.op = TreeOp::Update {
        changes: TreeChanges::Slices(&changes),
        replaces: true,
    };
    let answer = numbers(&[1, 0, 1, 1]);
    of.answer = &answer;
    check(&of, &["DEL key", "SADD key a"]);
}

#[test]
fn single_changes_of_maps_are_single_commands() {
    let mut keys = ElementKeys::default();
    keys.add(b"a", Some(b"1"));
    keys.add(LONG, Some(b"1"));
    let [key, long] = [0, 1].map(|place| keys.key(place));
    let stored = keys.stored(1, b"1");
    let insert = |key, value| TreeOp::Insert {
        key,
        value,
        condition: TreeCondition::IfAbsent,
    };
    check(&effect(Kind::Hash, insert(key, b"1")), &["HSET key a 1"]);
    check(
        &effect(Kind::Hash, insert(long, stored)),
        &["HSET key m*901 1"],
    );
    check(&effect(Kind::Set, insert(key, b"")), &["SADD key a"]);
    check(&effect(Kind::Hash, TreeOp::Remove { key }), &["HDEL key a"]);
    let of = effect(Kind::Hash, TreeOp::Remove { key: long });
    check(
        &TreeEffect {
            answer: stored,
            ..of
        },
        &["HDEL key m*901"],
    );
    let swap = |key, expected, value| TreeOp::CompareAndSet {
        key,
        expected,
        value,
    };
    let op = swap(key, None, Some(&b"2"[..]));
    check(&effect(Kind::Hash, op), &["HSET key a 2"]);
    let op = swap(long, Some(stored), None);
    check(&effect(Kind::Hash, op), &["HDEL key m*901"]);
    let answer = page(&[(key, b"1"), (long, stored)]);
    for op in [
        TreeOp::Draw {
            random: 1,
            removes: true,
        },
        TreeOp::TakeAt { rank: 0 },
        TreeOp::Pop {
            last: true,
            limit: 2,
        },
    ] {
        let of = effect(Kind::Set, op);
        let of = TreeEffect {
            answer: &answer,
            ..of
        };
        check(&of, &["SREM key a m*901"]);
    }
}

#[test]
fn many_elements_are_several_commands() {
    let values: Vec<_> = (0..1000).map(|number: u32| number.to_string()).collect();
    let values: Vec<_> = values.iter().map(String::as_bytes).collect();
    let op = TreeOp::Push {
        front: true,
        exists: false,
        replaces: true,
        values: TreeValues::Slices(&values),
    };
    let mut counts = Vec::new();
    let done = commands(b"key", &effect(Kind::List, op), &mut |words| {
        counts.push(words.len());
    });
    assert_eq!((done, counts), (Ok(()), vec![2, 514, 490]));
    let long = [&[b'v'; 40_000][..]; 3];
    let op = TreeOp::Push {
        front: false,
        exists: false,
        replaces: false,
        values: TreeValues::Slices(&long),
    };
    check(&effect(Kind::List, op), &["RPUSH key v*40000"; 3]);
}

#[test]
fn lists_change_at_their_ends_or_by_a_mark() {
    let answered = |op, answer: &[u8], wanted: &[&str]| {
        let of = effect(Kind::List, op);
        check(&TreeEffect { answer, ..of }, wanted);
    };
    let popped = page(&[(b"", b"a"), (b"", b"b")]);
    let pop = |last| TreeOp::Pop { last, limit: 9 };
    answered(pop(false), &popped, &["LPOP key 2"]);
    answered(pop(true), &popped, &["RPOP key 2"]);
    let op = TreeOp::SetAt {
        rank: -2,
        value: b"v",
    };
    answered(op, b"old", &["LSET key -2 v"]);
    answered(
        TreeOp::Rotate { last: true },
        &popped,
        &["LMOVE key key RIGHT LEFT"],
    );
    answered(
        TreeOp::Rotate { last: false },
        &popped,
        &["LMOVE key key LEFT RIGHT"],
    );
    let insert = |rank| TreeOp::InsertAt { rank, value: b"v" };
    let inserted = [&numbers(&[6])[..], b"old"].concat();
    answered(insert(0), &inserted, &["LPUSH key v"]);
    answered(insert(5), &inserted[..8], &["RPUSH key v"]);
    let wanted = [
        "LSET key 2 MARK",
        "LINSERT key BEFORE MARK v",
        "LSET key 3 old",
    ];
    answered(insert(2), &inserted, &wanted);
    let remove = |start| TreeOp::RemoveByRank {
        start,
        end: u64::MAX,
    };
    answered(remove(0), &numbers(&[2, 1]), &["LTRIM key 2 4"]);
    answered(remove(3), &numbers(&[2, 0]), &["LTRIM key 0 2"]);
    answered(remove(0), &numbers(&[5, 0]), &["DEL key"]);
    let wanted = ["LSET key 1 MARK", "LSET key 2 MARK", "LREM key 2 MARK"];
    answered(remove(1), &numbers(&[2, 1]), &wanted);
    let take = |rank| TreeOp::TakeAt { rank };
    answered(take(-1), &popped, &["LTRIM key 0 3"]);
    answered(take(-4), &popped, &["LSET key 1 MARK", "LREM key 1 MARK"]);
    let trim = TreeOp::Trim { first: 2, last: -2 };
    answered(trim, &numbers(&[3, 0, 2, 0, 2]), &["LTRIM key 2 3"]);
    // It ended behind the slice, and in the middle of what is before it.
    answered(trim, &numbers(&[1, 2, 4, 1, 4]), &["LTRIM key 0 3"]);
    answered(trim, &numbers(&[2, 1, 3, 1, 3]), &["LTRIM key 1 3"]);
    let all = TreeOp::Trim { first: 4, last: 1 };
    answered(all, &numbers(&[5, 1, 1, 0, 0]), &["DEL key"]);
    answered(all, &numbers(&[3, 1, 1, 1, 2]), &["LTRIM key 0 1"]);
}

#[test]
fn scores_follow_their_rule_or_are_those_that_were_answered() {
    let stored = stored_member(LONG);
    let change = |member, score, value| TreeScore {
        member,
        score,
        value,
    };
    let changes = [
        change(b"a", Some(1.5), &[]),
        change(&stored, Some(-0.0), value_of(LONG)),
        change(b"b", None, &[]),
        change(&stored, None, &[]),
        change(b"c", Some(f64::NAN), &[]),
        change(b"c", Some(1e300), &[]),
        change(b"d", Some(2.0), &[]),
    ];
    let removed = page(&[(&stored, LONG)]);
    let score = |changes, rule, replaces| TreeOp::Score {
        changes: TreeScores::Slices(changes),
        rule,
        replaces,
    };
    let answered = |op, answer: &[u64], wanted: &[&str]| {
        let mut of = effect(Kind::SortedSet, op);
        let answer = numbers(answer);
        (of.answer, of.removed) = (&answer, &removed);
        check(&of, wanted);
    };
    let any = TreeScoreRule::default();
    let all = [1, 1, 2, 6, 9, 1, 0];
    let wanted = [
        "ZADD key 1.5 a 0 m*901",
        "ZREM key b m*901",
        "ZADD key 1e300 c",
    ];
    answered(score(&changes, any, false), &all, &wanted);
    for (condition, only, words) in [
        (TreeCondition::IfAbsent, TreeScoreOnly::Less, "NX"),
        (TreeCondition::IfPresent, TreeScoreOnly::Greater, "XX GT"),
        (TreeCondition::Always, TreeScoreOnly::Less, "LT"),
    ] {
        let rule = TreeScoreRule {
            condition,
            only,
            adds: false,
        };
        let op = score(&changes[..2], rule, true);
        let wanted = format!("ZADD key {words} 1.5 a 0 m*901");
        answered(op, &all, &["DEL key", &wanted]);
    }
    let adds = TreeScoreRule { adds: true, ..any };
    let sum = |score: f64| [0, 1, 0, 1, 5, 1, score.to_bits()];
    let op = score(&changes[..1], adds, false);
    answered(op, &sum(f64::NEG_INFINITY), &["ZADD key -inf a"]);
    answered(op, &sum(-0.0), &["ZADD key 0 a"]);
    answered(op, &[0, 0, 0, 1, 5, 2, 0], &[]);
    answered(
        score(&changes[2..3], any, false),
        &[0, 0, 1, 1, 5, 0, 0],
        &["ZREM key b"],
    );
    let several = effect(Kind::SortedSet, score(&changes[..2], adds, false));
    let answer = &numbers(&[0, 2, 0, 2, 5, 1, 0])[..];
    let refused = Err(NoCommand::Operation(Kind::SortedSet));
    assert_eq!(sent(&TreeEffect { answer, ..several }), refused);
    // No sum is taken where a member goes.
    answered(
        score(&changes[2..3], adds, false),
        &[0, 0, 1, 1, 5, 0, 0],
        &["ZREM key b"],
    );
}

#[test]
fn members_are_removed_by_their_ranks_or_as_they_were_answered() {
    let answered = |op, answer: &[u8], wanted: &[&str]| {
        let of = effect(Kind::SortedSet, op);
        check(&TreeEffect { answer, ..of }, wanted);
    };
    let ranks = TreeScoreRange::Ranks { first: 1, last: -1 };
    let op = TreeOp::ScoreRemove { range: ranks };
    let answer = [&numbers(&[3])[..], &[1], &numbers(&[2])].concat();
    answered(op, &answer, &["ZREMRANGEBYRANK key 2 4"]);
    let op = TreeOp::RemoveByRank { start: 3, end: 9 };
    answered(op, &numbers(&[2, 0]), &["ZREMRANGEBYRANK key 3 4"]);
    let op = TreeOp::Trim { first: 1, last: 2 };
    let wanted = ["ZREMRANGEBYRANK key 3 4", "ZREMRANGEBYRANK key 0 0"];
    answered(op, &numbers(&[3, 0, 2, 0, 2]), &wanted);
    let stored = stored_member(LONG);
    let score = [&[0x80; 8][..], &stored].concat();
    let taken = page(&[(&[0x80; 8], b""), (&score, LONG)]);
    let op = TreeOp::Pop {
        last: false,
        limit: 2,
    };
    answered(op, &taken, &["ZREM key '' m*901"]);
    // A long member is not in its page, or among those that were removed by their ranks.
    let of = effect(Kind::SortedSet, op);
    let halved = page(&[(&score, b"m")]);
    let answer = &halved[..];
    let malformed = Err(NoCommand::Malformed(Kind::SortedSet));
    assert_eq!(sent(&TreeEffect { answer, ..of }), malformed);
    let of = effect(Kind::SortedSet, TreeOp::RemoveByRank { start: 3, end: 9 });
    let (answer, removed) = (&numbers(&[2, 0])[..], &page(&[(&stored, LONG)])[..]);
    let of = TreeEffect {
        answer,
        removed,
        ..of
    };
    assert!(matches!(sent(&of), Err(NoCommand::NeedsWhole { .. })));
}
