//! Which effects are no commands, and that any bytes are read without a panic.

use farcore::{
    TreeChange, TreeChanges, TreeCondition, TreeEffect, TreeKind, TreeOp, TreeProgramMode,
    TreeScoreRange, TreeScoreRule, TreeScores, TreeValues,
};

use super::words::{LONG, effect, numbers, sent};
use crate::random::Numbers;
use crate::replication::effects::{NoCommand, commands};
use crate::types::kind::Kind;
use crate::types::stream::programs::StreamProgram;

#[test]
fn what_the_server_never_sends_is_no_command() {
    let wrong = |of: &TreeEffect<'_>| sent(of).expect_err("no command");
    let mut of = effect(Kind::List, TreeOp::Len);
    assert_eq!(wrong(&of), NoCommand::Operation(Kind::List));
    of.tag = 77;
    assert_eq!(wrong(&of), NoCommand::Tag(77));
    of.tag = Kind::Set.tag();
    assert_eq!(wrong(&of), NoCommand::Malformed(Kind::Set));
    let changes = [TreeChange {
        key: &[0],
        value: None,
    }];
    let op = TreeOp::Update {
        changes: TreeChanges::Slices(&changes),
        replaces: false,
    };
    let of = effect(Kind::Stream, op);
    assert!(matches!(wrong(&of), NoCommand::NeedsWhole { .. }));
    let answer = numbers(&[0, 1, 1, 0]);
    let of = TreeEffect {
        answer: &answer,
        ..effect(Kind::Hash, op)
    };
    assert_eq!(wrong(&of), NoCommand::Malformed(Kind::Hash));
    let op = TreeOp::Run {
        program: StreamProgram::Length as u8,
        mode: TreeProgramMode::Reads,
        input: &[],
    };
    assert_eq!(
        wrong(&effect(Kind::Stream, op)),
        NoCommand::Operation(Kind::Stream)
    );
}

/// An operation of any bytes.
fn any_op<'b>(draw: &mut Numbers, bytes: &'b [u8], long: &'b [&'b [u8]; 2]) -> TreeOp<'b> {
    let edges = [0, 1, 2, 5, 6, u64::MAX, 1 << 63];
    let number = edges[draw.below(edges.len())];
    let signed = [0, 1, 4, -1, -6, i64::MAX, i64::MIN][draw.below(7)];
    let flag = draw.below(2) == 0;
    let (key, value) = (bytes, long[0]);
    match draw.below(14) {
        0 => TreeOp::Pop {
            last: flag,
            limit: 9,
        },
        1 => TreeOp::RemoveByRank {
            start: number,
            end: u64::MAX,
        },
        2 => TreeOp::Insert {
            key,
            value,
            condition: TreeCondition::Always,
        },
        3 => TreeOp::Remove { key },
        4 => TreeOp::CompareAndSet {
            key,
            expected: Some(value),
            value: Some(value).filter(|_| flag),
        },
        5 => TreeOp::Push {
            front: flag,
            exists: flag,
            replaces: flag,
            values: TreeValues::Encoded(bytes),
        },
        6 => TreeOp::InsertAt {
            rank: number,
            value,
        },
        7 => TreeOp::Update {
            changes: TreeChanges::Encoded(bytes),
            replaces: flag,
        },
        8 => TreeOp::TakeAt { rank: signed },
        9 => TreeOp::Draw {
            random: number,
            removes: true,
        },
        10 => TreeOp::Trim {
            first: signed,
            last: 3,
        },
        11 => TreeOp::Score {
            changes: TreeScores::Encoded(bytes),
            rule: TreeScoreRule::default(),
            replaces: flag,
        },
        12 => TreeOp::ScoreRemove {
            range: TreeScoreRange::Ranks { first: 0, last: 0 },
        },
        _ => TreeOp::Run {
            program: u8::try_from(draw.below(26)).unwrap_or(0),
            mode: TreeProgramMode::Writes,
            input: bytes,
        },
    }
}

#[test]
fn no_bytes_cause_a_panic() {
    let mut draw = Numbers::new();
    let long = [LONG, b"v"];
    for _ in 0..50_000 {
        let mut bytes = |most: usize| {
            let few = [0, 0, 0, 1, 2, 3, 5, 9, 255];
            (0..draw.below(most))
                .map(|_| few[draw.below(few.len())])
                .collect::<Vec<u8>>()
        };
        let (key, answer, removed) = (bytes(40), bytes(80), bytes(40));
        let op = any_op(&mut draw, &key, &long);
        let kinds = [TreeKind::Map, TreeKind::List, TreeKind::Scored];
        let of = TreeEffect {
            kind: kinds[draw.below(3)],
            tag: u8::try_from(draw.below(7)).unwrap_or(0),
            begins: false,
            before: [0, 5, u64::MAX][draw.below(3)],
            after: 1,
            op,
            answer: &answer,
            removed: &removed,
        };
        let _ = commands(b"key", &of, &mut |_| {});
    }
}
