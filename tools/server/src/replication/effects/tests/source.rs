//! A key of an engine whose operations are made effects, as a feed does it.

use std::collections::BTreeMap;

use farcore::{Answer, Core, TreeChange, TreeEffect, TreeKind, TreeOp, TreeView};

use crate::by_hand::Bench;
use crate::replication::effects::commands;
use crate::types::kind::Kind;

/// An element of a tree, as a page has it.
pub(super) type Element = (Vec<u8>, Vec<u8>);
/// The words of a command.
pub(super) type Words = Vec<Vec<u8>>;

/// Values of removed elements that are longer are noted.
const NOTED_BYTES: usize = 900;
/// Bytes of a score in the key of an element.
const ORDER_BYTES: usize = 8;

/// A key of an engine.
pub(super) struct Source {
    core: Core,
    pub(super) key: Vec<u8>,
    pub(super) kind: Kind,
    /// Its elements; a sorted set's are those by score.
    pub(super) elements: Vec<Element>,
}

/// What one operation has come to.
pub(super) struct Ran {
    pub(super) answer: Vec<u8>,
    pub(super) commands: Vec<Words>,
}

impl Source {
    pub(super) fn new(bench: Bench, kind: Kind) -> Self {
        Self {
            key: bench.keys[0].clone(),
            core: bench.core,
            kind,
            elements: Vec::new(),
        }
    }

    async fn answer(&mut self, op: TreeOp<'_>) -> Option<Vec<u8>> {
        let operation = self.kind.operation(&self.key, op);
        let mut answered = None;
        let sent = self.core.many([operation], |_, answer| match answer {
            Answer::Value { value, .. } => answered = Some(value.to_vec()),
            Answer::Failed(error) => panic!("{error}"),
            _ => {}
        });
        sent.await.expect("an answer");
        answered
    }

    async fn all(&mut self) -> Vec<Element> {
        let mut all = Vec::new();
        loop {
            let op = TreeOp::RangeByRank {
                start: all.len() as u64,
                end: u64::MAX,
                reverse: false,
                limit: u32::MAX,
            };
            let page = self.answer(op).await.unwrap_or_default();
            let before = all.len();
            let page = TreeView::of(&Answer::Value {
                version: 0,
                value: &page,
            });
            let elements = page.elements();
            all.extend(elements.map(|(key, value)| (key.to_vec(), value.to_vec())));
            if all.len() == before {
                return all;
            }
        }
    }

    /// Carries an operation out; returns the commands that it is for a replica.
    pub(super) async fn run(&mut self, op: TreeOp<'_>) -> Ran {
        let answer = self.answer(op).await;
        let after = self.all().await;
        let before = std::mem::replace(&mut self.elements, after);
        let mut ran = Ran {
            answer: answer.unwrap_or_default(),
            commands: Vec::new(),
        };
        if before == self.elements {
            return ran;
        }
        let (answer, removed) = self.fed(op, &before, &ran.answer);
        let after = &self.elements;
        let effect = TreeEffect {
            kind: match self.kind {
                Kind::List => TreeKind::List,
                Kind::SortedSet => TreeKind::Scored,
                _ => TreeKind::Map,
            },
            tag: self.kind.tag(),
            begins: before.is_empty(),
            before: before.len() as u64,
            after: after.len() as u64,
            op,
            answer: &answer,
            removed: &removed,
        };
        let made = commands(&self.key, &effect, &mut |words| {
            ran.commands
                .push(words.iter().map(|word| word.to_vec()).collect());
        });
        made.unwrap_or_else(|error| panic!("{error}: {op:?}"));
        ran
    }

    /// The answer to an operation as a feed has it, and the long values that were removed.
    fn fed(&self, op: TreeOp<'_>, before: &[Element], answer: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (after, mut answer, mut removed) = (&self.elements, answer.to_vec(), vec![0]);
        match op {
            TreeOp::InsertAt { rank, .. } => {
                let rank = usize::try_from(rank).expect("a rank");
                let old = before.get(rank).map_or(&[][..], |(_, value)| value);
                answer.extend_from_slice(old);
            }
            TreeOp::ScoreRemove { .. } => {
                let both = before.iter().zip(after);
                let same = both.take_while(|(one, other)| one == other);
                answer.extend((same.count() as u64).to_le_bytes());
            }
            TreeOp::Run { .. } => answer = differences(before, after),
            TreeOp::Update { changes, .. } => {
                let mut held: BTreeMap<_, _> = before.iter().cloned().collect();
                for TreeChange { key, value } in changes.iter().take(number(&answer, 2)) {
                    let old = match value {
                        Some(value) => {
                            held.insert(key.to_vec(), value.to_vec());
                            None
                        }
                        None => held.remove(key),
                    };
                    old.iter().for_each(|old| note(key, old, &mut removed));
                }
            }
            TreeOp::Remove { .. } | TreeOp::CompareAndSet { .. } | TreeOp::Score { .. } => {
                let skipped = match self.kind {
                    Kind::SortedSet => ORDER_BYTES,
                    _ => 0,
                };
                for (key, value) in before {
                    let key = &key[skipped..];
                    if after.iter().all(|(other, _)| other[skipped..] != *key) {
                        note(key, value, &mut removed);
                    }
                }
            }
            _ => {}
        }
        (answer, removed)
    }
}

/// The number at a place of an answer.
fn number(answer: &[u8], place: usize) -> usize {
    let number = answer[8 * place..].first_chunk().expect("a number");
    usize::try_from(u64::from_le_bytes(*number)).expect("a count")
}

fn note(key: &[u8], value: &[u8], page: &mut Vec<u8>) {
    if value.len() > NOTED_BYTES {
        put_element(key, value, page);
    }
}

fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).expect("a length").to_le_bytes()
}

/// Adds an element to a page.
pub(super) fn put_element(key: &[u8], value: &[u8], page: &mut Vec<u8>) {
    page.extend([length(key), length(value)].concat());
    page.extend([key, value].concat());
}

/// Adds a change of an element to those of a program.
pub(super) fn put_change(key: &[u8], value: Option<&[u8]>, into: &mut Vec<u8>) {
    into.push(u8::from(value.is_some()));
    for bytes in value.into_iter().chain([key]) {
        into.extend(length(bytes));
        into.extend_from_slice(bytes);
    }
}

/// The changes that make some elements of others.
fn differences(before: &[Element], after: &[Element]) -> Vec<u8> {
    let [old, new] = [before, after].map(|all| all.iter().cloned().collect::<BTreeMap<_, _>>());
    let mut changes = Vec::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        put_change(key, None, &mut changes);
    }
    for (key, value) in new
        .iter()
        .filter(|(key, value)| old.get(*key) != Some(value))
    {
        put_change(key, Some(value), &mut changes);
    }
    changes
}
