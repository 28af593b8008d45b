//! Scored maps against a `BTreeMap` of members, with tiny nodes, far nodes and halts between
//! members.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::tree::scored::{placed_elements, scored_elements};
use crate::tree::scored_keys::{place_of, scored_member};

/// Score and value of each member.
type Scores = BTreeMap<Vec<u8>, (f64, Vec<u8>)>;

const SCORES: [f64; 10] = [
    0.0,
    1.0,
    -1.0,
    f64::NEG_INFINITY,
    f64::INFINITY,
    1.5,
    -2.25,
    1e300,
    f64::MIN_POSITIVE,
    -f64::MAX,
];

fn score_of(number: u16) -> f64 {
    match number % 3 {
        0 => SCORES[usize::from(number / 3) % SCORES.len()],
        _ => f64::from(number % 17) - 8.0,
    }
}

fn bound_of(number: u16) -> TreeScoreBound {
    match number % 2 {
        0 => TreeScoreBound::Included(score_of(number / 2)),
        _ => TreeScoreBound::Excluded(score_of(number / 2)),
    }
}

/// Members in the order of their scores.
fn ordered(scores: &Scores) -> Vec<(Vec<u8>, f64, Vec<u8>)> {
    let mut all: Vec<_> = scores
        .iter()
        .map(|(member, (score, value))| (member.clone(), *score, value.clone()))
        .collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    all
}

/// Checks S1 and all of the tree.
fn check(grove: &Grove, scores: &Scores) {
    let elements = grove.memory.check(grove.shape, grove.root);
    let (by_member, by_score) = elements.split_at(elements.len() / 2);
    assert_eq!(by_score.len(), scores.len());
    let mut by_place: Vec<_> = scores
        .keys()
        .map(|member| (place_of(member), member))
        .collect();
    by_place.sort();
    for ((key, value), (place, member)) in by_member.iter().zip(by_place) {
        assert_eq!(*key, [&place.to_be_bytes()[..], member].concat());
        let order = value[..].try_into().map(u64::from_be_bytes).unwrap();
        let (score, stored) = &scores[member];
        let half = [&order.to_be_bytes()[..], member].concat();
        let found = by_score.iter().find(|(key, _)| *key == half);
        assert_eq!(found.map(|(_, value)| value), Some(stored), "S1");
        assert!(scored_member(&half).is_some_and(|(_, found)| found == *score));
    }
    for ((key, _), (member, score, _)) in by_score.iter().zip(ordered(scores)) {
        assert_eq!(scored_member(key), Some((&member[..], score)));
    }
}

fn numbers(grove: &Grove) -> Vec<u64> {
    let words = grove.out.chunks_exact(8);
    words
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

fn rule_of(number: u8) -> TreeScoreRule {
    TreeScoreRule {
        condition: match number % 4 {
            0 => TreeCondition::IfAbsent,
            1 => TreeCondition::IfPresent,
            _ => TreeCondition::Always,
        },
        only: match number / 4 % 4 {
            0 => TreeScoreOnly::Greater,
            1 => TreeScoreOnly::Less,
            _ => TreeScoreOnly::Any,
        },
        adds: false,
    }
}

/// What a change makes of the model: whether the member is new, has another score, is removed; and
/// what its score is, if the rule held.
fn changed(
    scores: &mut Scores,
    change: &TreeScore<'_>,
    rule: TreeScoreRule,
) -> ([u64; 3], (u64, f64)) {
    let before = scores.get(change.member).map(|(score, _)| *score);
    let Some(score) = change.score else {
        let removed = scores.remove(change.member).is_some();
        return ([0, 0, u64::from(removed)], (0, 0.0));
    };
    let may = match rule.condition {
        TreeCondition::Always => true,
        TreeCondition::IfAbsent => before.is_none(),
        TreeCondition::IfPresent => before.is_some(),
    };
    let score = match before {
        Some(before) if rule.adds => before + score,
        _ => score,
    };
    if may && score.is_nan() {
        return ([0; 3], (2, 0.0));
    }
    let may = may
        && before.is_none_or(|before| match rule.only {
            TreeScoreOnly::Any => true,
            TreeScoreOnly::Greater => score > before,
            TreeScoreOnly::Less => score < before,
        });
    if !may {
        return ([0; 3], (0, 0.0));
    }
    scores.insert(change.member.to_vec(), (score, change.value.to_vec()));
    let is_other = before.is_some_and(|before| before.total_cmp(&score).is_ne());
    let counted = [u64::from(before.is_none()), u64::from(is_other), 0];
    (counted, (1, score))
}

fn change_all(grove: &mut Grove, scores: &mut Scores, input: &mut Input<'_>) {
    let adds = input.below(3) == 0;
    let count = if adds { 1 } else { 1 + input.below(14) };
    let changes: Vec<_> = (0..count)
        .map(|_| {
            let removes = input.below(4) == 0;
            let score = score_of(input.short());
            let member = key_of(number(input, 300));
            (
                member,
                (!removes).then_some(score),
                value_of(input.short() % 60),
            )
        })
        .collect();
    let changes: Vec<_> = changes
        .iter()
        .map(|(member, score, value)| TreeScore {
            member,
            score: *score,
            value,
        })
        .collect();
    let rule = TreeScoreRule {
        adds,
        ..rule_of(input.byte())
    };
    let op = TreeOp::Score {
        changes: TreeScores::Slices(&changes),
        rule,
        replaces: false,
    };
    assert_eq!(grove.run(&op), TreeAnswer::Value);
    let answered = numbers(grove);
    let done = usize::try_from(answered[3]).unwrap();
    assert!(done >= changes.len().min(TREE_CHANGES_WHOLE) && done <= changes.len());
    let (mut expected, mut last) = ([0; 3], (0, 0.0));
    for change in &changes[..done] {
        let (counted, made) = changed(scores, change, rule);
        expected
            .iter_mut()
            .zip(counted)
            .for_each(|(sum, one)| *sum += one);
        last = made;
    }
    assert_eq!(answered[..3], expected);
    assert_eq!(answered[4], scores.len() as u64);
    assert_eq!((answered[5], f64::from_bits(answered[6])), last);
}

/// A range, and whether a member is in it.
fn range_of<'a>(
    (scores, members): (&Scores, &'a [Vec<u8>; 2]),
    input: &mut Input<'_>,
) -> (TreeScoreRange<'a>, BTreeSet<Vec<u8>>) {
    let all = ordered(scores);
    match input.below(3) {
        0 => {
            let (first, last) = (i64::from(signed(input, 90)), i64::from(signed(input, 90)));
            let ranks = slice_of(first, last, all.len() as u64);
            let place = |rank: u64| usize::try_from(rank).unwrap();
            let within = &all[place(ranks.start)..place(ranks.end)];
            let within = within.iter().map(|(member, ..)| member.clone()).collect();
            (TreeScoreRange::Ranks { first, last }, within)
        }
        1 => {
            let (from, to) = (bound_of(input.short()), bound_of(input.short()));
            let is_within = |score: f64| {
                let above = match from {
                    TreeScoreBound::Included(from) => score >= from,
                    TreeScoreBound::Excluded(from) => score > from,
                };
                above
                    && match to {
                        TreeScoreBound::Included(to) => score <= to,
                        TreeScoreBound::Excluded(to) => score < to,
                    }
            };
            let within = all.iter().filter(|(_, score, _)| is_within(*score));
            let within = within.map(|(member, ..)| member.clone()).collect();
            (TreeScoreRange::Scores { from, to }, within)
        }
        _ => {
            let (from, low) = bounds(input.byte(), &members[0]);
            let (to, high) = bounds(input.byte(), &members[1]);
            let least = all.first().map(|(_, score, _)| *score);
            let within = all.iter().filter(|(member, score, _)| {
                let member = &member[..];
                let above = match low {
                    Bound::Unbounded => true,
                    Bound::Included(low) => member >= low,
                    Bound::Excluded(low) => member > low,
                };
                let below = match high {
                    Bound::Unbounded => true,
                    Bound::Included(high) => member <= high,
                    Bound::Excluded(high) => member < high,
                };
                Some(*score) == least && above && below
            });
            let within = within.map(|(member, ..)| member.clone()).collect();
            (TreeScoreRange::Members { from, to }, within)
        }
    }
}

fn range_calls(grove: &mut Grove, scores: &mut Scores, input: &mut Input<'_>) {
    let members = [key_of(number(input, 300)), key_of(number(input, 300))];
    let (range, within) = range_of((scores, &members), input);
    grove.run(&TreeOp::ScoreCount { range });
    let TreeScoreRange::Members { .. } = range else {
        return range_pages(grove, scores, (range, &within), input);
    };
    // Where other members have greater scores, an open upper end reaches them.
    let all_equal = ordered(scores).windows(2).all(|two| two[0].1 == two[1].1);
    if all_equal {
        range_pages(grove, scores, (range, &within), input);
    }
}

fn range_pages(
    grove: &mut Grove,
    scores: &mut Scores,
    (range, within): (TreeScoreRange<'_>, &BTreeSet<Vec<u8>>),
    input: &mut Input<'_>,
) {
    assert_eq!(numbers(grove), [within.len() as u64]);
    let mut expected = ordered(scores);
    expected.retain(|(member, ..)| within.contains(member));
    let (reverse, skip) = (input.flag(), u64::from(number(input, 5)));
    if reverse {
        expected.reverse();
    }
    let mut seen = Vec::new();
    loop {
        let op = TreeOp::ScoreRange {
            range,
            reverse,
            skip: skip + seen.len() as u64,
            limit: 6,
        };
        grove.run(&op);
        let page = scored_elements(&grove.out);
        seen.extend(page.map(|(member, score, value)| (member.to_vec(), score, value.to_vec())));
        if !page_has_more(&grove.out) {
            break;
        }
    }
    let skipped = usize::try_from(skip).unwrap().min(expected.len());
    assert_eq!(seen, expected[skipped..]);
    if input.below(4) == 0 {
        let mut removed = 0;
        loop {
            grove.run(&TreeOp::ScoreRemove { range });
            let (here, more) = (grove.number(), grove.out[8] != 0);
            removed += here;
            // What is left of a range of ranks is another range.
            if !more || matches!(range, TreeScoreRange::Ranks { .. }) {
                break;
            }
        }
        let mut gone: Vec<_> = ordered(scores);
        gone.retain(|(member, ..)| within.contains(member));
        for (member, ..) in gone.iter().take(usize::try_from(removed).unwrap()) {
            scores.remove(member);
        }
    }
}

fn one_call(grove: &mut Grove, scores: &mut Scores, input: &mut Input<'_>) {
    match input.below(12) {
        0..6 => change_all(grove, scores, input),
        6..8 => range_calls(grove, scores, input),
        8 => {
            let (last, limit) = (input.flag(), u32::from(number(input, 9)));
            grove.run(&TreeOp::Pop { last, limit });
            let mut expected = ordered(scores);
            if last {
                expected.reverse();
            }
            let popped = scored_elements(&grove.out);
            let popped: Vec<_> = popped.map(|(member, ..)| member.to_vec()).collect();
            assert!(
                popped.len() <= limit as usize
                    && (limit == 0 || !popped.is_empty() || expected.is_empty())
            );
            for (member, (expected, ..)) in popped.iter().zip(&expected) {
                assert_eq!(member, expected);
                scores.remove(member);
            }
        }
        9 => {
            let (member, reverse) = (key_of(number(input, 300)), input.flag());
            let answer = grove.run(&TreeOp::ScoreRank {
                member: &member,
                reverse,
            });
            let all = ordered(scores);
            let Some(rank) = all.iter().position(|(other, ..)| *other == member) else {
                return assert_eq!(answer, TreeAnswer::Absent);
            };
            let expected = if reverse { all.len() - 1 - rank } else { rank };
            assert_eq!(numbers(grove), [expected as u64, all[rank].1.to_bits()]);
            grove.run(&TreeOp::ScoredValue { member: &member });
            let value = [&all[rank].1.to_le_bytes()[..], &all[rank].2].concat();
            assert_eq!(grove.out, value);
        }
        10 => {
            let members: Vec<_> = (0..input.below(9))
                .map(|_| key_of(number(input, 300)))
                .collect();
            let slices: Vec<_> = members.iter().map(|member| &member[..]).collect();
            grove.run(&TreeOp::ScoreOf {
                members: TreeValues::Slices(&slices),
            });
            let found: Vec<_> = found_values(&grove.out).collect();
            assert!(!found.is_empty() || members.is_empty());
            for (member, found) in members.iter().zip(found) {
                let expected = scores.get(member).map(|(score, _)| score.to_le_bytes());
                assert_eq!(found, expected.as_ref().map(|score| &score[..]));
            }
        }
        _ => {
            let (mut from, mut seen) = (0, BTreeSet::new());
            loop {
                grove.run(&TreeOp::ScoreScan { from, limit: 4 });
                for (member, place, score) in placed_elements(&grove.out) {
                    assert_eq!(scores[member].0, score);
                    assert!(place >= from && seen.insert(member.to_vec()) || place == from);
                    from = place;
                }
                if !page_has_more(&grove.out) {
                    break;
                }
                from += 1;
            }
            assert_eq!(seen.len(), scores.len());
            generic_calls(grove, scores, input);
        }
    }
}

/// What operations of all kinds do: they are about members.
fn generic_calls(grove: &mut Grove, scores: &mut Scores, input: &mut Input<'_>) {
    grove.run(&TreeOp::Len);
    assert_eq!(grove.number(), scores.len() as u64);
    let all = ordered(scores);
    let random = input.long();
    let answer = grove.run(&TreeOp::Draw {
        random,
        removes: false,
    });
    if all.is_empty() {
        return assert_eq!(answer, TreeAnswer::Absent);
    }
    let drawn: Vec<_> = scored_elements(&grove.out)
        .map(|(member, ..)| member.to_vec())
        .collect();
    assert!(drawn.len() == 1 && scores.contains_key(&drawn[0]));
    let rank = usize::from(number(input, 40)) % all.len();
    let (start, end) = (rank as u64, rank as u64 + 3);
    grove.run(&TreeOp::RangeByRank {
        start,
        end,
        reverse: false,
        limit: 9,
    });
    let ranged: Vec<_> = scored_elements(&grove.out)
        .map(|(member, ..)| member.to_vec())
        .collect();
    let expected: Vec<_> = all[rank..]
        .iter()
        .take(3)
        .map(|(member, ..)| member.clone())
        .collect();
    assert!(expected.starts_with(&ranged) && !ranged.is_empty());
    grove.run(&TreeOp::TakeAt {
        rank: i64::try_from(rank).unwrap(),
    });
    scores.remove(&all[rank].0);
    grove.run(&TreeOp::RemoveByRank { start: 0, end: 1 });
    let left = ordered(scores);
    assert_eq!(grove.number(), u64::from(!left.is_empty()));
    if let Some((member, ..)) = left.first() {
        scores.remove(member);
    }
    grove.run(&TreeOp::Trim { first: 0, last: -2 });
    let left = ordered(scores);
    if let Some((member, ..)) = left.last() {
        scores.remove(member);
    }
    assert_eq!(grove.number(), u64::from(!left.is_empty()));
}

#[test]
fn a_scored_map_is_as_its_oracle_after_every_step() {
    farcore_fuzz::Target::new("scored map")
        .seeds((0..24).map(|seed| many_calls(seed, 400)))
        .memory(256 << 10, 4 << 10)
        .run(|bytes| {
            let mut input = Input::new(bytes);
            let mut grove = grove_of(TreeKind::Scored, &mut input);
            grove.memory.crowd = if input.flag() { 7 } else { usize::MAX };
            let mut scores = Scores::new();
            while !input.is_empty() {
                one_call(&mut grove, &mut scores, &mut input);
                check(&grove, &scores);
            }
        });
}

/// Scores that grow, as times do, fill their nodes.
#[test]
fn members_added_with_growing_scores_fill_their_nodes() {
    let mut grove = Grove::new(TreeKind::Scored, (1024, 1000), 0);
    let mut scores = Scores::new();
    for number in 0..1_000u32 {
        let member = format!("member:{number}").into_bytes();
        let change = TreeScore {
            member: &member,
            score: Some(f64::from(number)),
            value: &[],
        };
        grove.run(&TreeOp::Score {
            changes: TreeScores::Slices(&[change]),
            rule: TreeScoreRule::default(),
            replaces: false,
        });
        scores.insert(member, (f64::from(number), Vec::new()));
    }
    check(&grove, &scores);
    let used: usize = grove
        .memory
        .nodes
        .values()
        .map(|node| TreeNode::parse(node).unwrap().used())
        .sum();
    let nodes = grove.memory.nodes.len();
    assert!(
        used / nodes > 650,
        "{nodes} nodes of {} bytes",
        used / nodes
    );
}

/// T5: a node with any bit changed never makes an operation panic or loop.
#[test]
fn damaged_nodes_of_scored_maps_halt_or_mislead_but_never_panic() {
    farcore_fuzz::Target::new("damaged scored map")
        .seeds((0..12).map(|seed| many_calls(seed, 60)))
        .rounds(1000)
        .memory(1 << 20, 8192)
        .run(|bytes| {
            let input = &mut Input::new(bytes);
            let mut grove = grove_of(TreeKind::Scored, input);
            grove.memory.far_share = 0;
            let mut scores = Scores::new();
            for _ in 0..=input.below(20) {
                change_all(&mut grove, &mut scores, input);
            }
            for _ in 0..=input.below(5) {
                let nodes = grove.memory.nodes.len();
                if nodes == 0 {
                    return;
                }
                let bytes = grove.memory.nodes.values_mut().nth(input.below(nodes));
                let bytes = bytes.unwrap();
                if !bytes.is_empty() {
                    let at = usize::from(input.short()) % bytes.len();
                    bytes[at] ^= input.byte();
                }
            }
            while !input.is_empty() {
                call_damaged(&mut grove, input);
            }
        });
}

/// Runs an operation, whatever its outcome.
fn call_damaged(grove: &mut Grove, input: &mut Input<'_>) {
    let (member, value) = (key_of(number(input, 300)), value_of(input.short() % 60));
    let change = TreeScore {
        member: &member,
        score: input.flag().then(|| score_of(7)),
        value: &value,
    };
    let (change, members) = ([change], [&member[..]]);
    let range = TreeScoreRange::Scores {
        from: bound_of(input.short()),
        to: bound_of(input.short()),
    };
    let rank = i64::from(signed(input, 90));
    let op = match input.below(11) {
        0..3 => TreeOp::Score {
            changes: TreeScores::Slices(&change),
            rule: rule_of(input.byte()),
            replaces: false,
        },
        3 => TreeOp::ScoreOf {
            members: TreeValues::Slices(&members),
        },
        4 => TreeOp::ScoredValue { member: &member },
        5 => TreeOp::ScoreRank {
            member: &member,
            reverse: input.flag(),
        },
        6 => TreeOp::ScoreRange {
            range,
            reverse: input.flag(),
            skip: 0,
            limit: 9,
        },
        7 => TreeOp::ScoreRemove { range },
        8 => TreeOp::ScoreScan { from: 0, limit: 9 },
        9 => TreeOp::Pop {
            last: input.flag(),
            limit: u32::from(input.byte() % 4),
        },
        _ => TreeOp::TakeAt { rank },
    };
    let work = TreeWork::new(&grove.memory, grove.shape, grove.root, &mut grove.scratch);
    let _ = work.touching().run(&op, LIMITS, &mut grove.out);
}
