//! Trees against `BTreeMap` and `VecDeque`, with tiny nodes, far nodes and bytes of any kind.

mod scored;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use farcore_fuzz::Input;

use super::node::StoredValue;
use super::op::{TreeChange, TreeChanges, TreeCondition, found_values, slice_of};
use super::*;
use crate::constants::TREE_CHANGES_WHOLE;

/// The smallest page that lets every operation go on.
const LIMITS: TreeLimits = TreeLimits {
    page_bytes: 64,
    leaves: 3,
    edits: 12,
    elements: 9,
    value_bytes: usize::MAX,
};

/// Nodes in memory. Some are far: they can be read once they were named by a halt.
#[derive(Default)]
struct Memory {
    nodes: BTreeMap<NodeNumber, Vec<u8>>,
    /// One node in this many is far at first; 0 is none.
    far_share: u32,
    here: RefCell<BTreeSet<NodeNumber>>,
    /// Far nodes that are here, from which on there are many.
    crowd: usize,
    clock: u32,
}

impl Nodes for Memory {
    fn read(&self, node: NodeNumber) -> Result<&[u8], Unread> {
        let salt = node.wrapping_mul(2_654_435_761).wrapping_add(self.clock);
        let is_far = self.far_share > 0 && salt.is_multiple_of(self.far_share);
        if is_far && !self.here.borrow().contains(&node) {
            return Err(Unread::Far);
        }
        let bytes = self.nodes.get(&node).ok_or(Unread::Failed)?;
        Ok(bytes)
    }

    fn fresh(&self, before: Option<NodeNumber>) -> NodeNumber {
        let first = before.map_or(0, |before| before + 1);
        let taken = self.nodes.range(first..).zip(first..);
        let run = taken.take_while(|((taken, _), number)| *taken == number);
        first + u32::try_from(run.count()).unwrap()
    }

    fn is_crowded(&self) -> bool {
        self.here.borrow().len() >= self.crowd
    }
}

impl Memory {
    fn apply(&mut self, edits: &[TreeEdit]) {
        let mut added = None;
        for edit in edits {
            if matches!(edit.what, Edited::Added | Edited::Passing) {
                let fresh = self.fresh(added);
                assert_eq!(edit.node, fresh, "numbers are taken in their order");
                added = Some(fresh);
            }
        }
        for edit in edits {
            match edit.what {
                Edited::Added | Edited::Changed => {
                    let bytes = if edit.is_value {
                        edit.bytes.clone()
                    } else {
                        let view = TreeNode::parse(&edit.bytes).unwrap();
                        let mut bytes = vec![0; view.used() + 100];
                        copy_living(view, &mut bytes).unwrap();
                        bytes
                    };
                    let before = self.nodes.insert(edit.node, bytes);
                    assert_eq!(before.is_none(), edit.what == Edited::Added);
                }
                Edited::Removed => {
                    assert!(self.nodes.remove(&edit.node).is_some());
                }
                Edited::Passing => {}
            }
        }
    }

    /// Changes an element in place, and the counts above it.
    fn touch(&mut self, scratch: &TreeScratch, op: &TreeOp<'_>) {
        assert!(scratch.touches().is_empty() || scratch.edits().is_empty());
        for touched in scratch.touches() {
            let mut leaf = TreeNodeEdit::of(self.nodes.get_mut(&touched.leaf).unwrap());
            assert!(touched.apply(&mut leaf, scratch.element(touched, op)));
            for step in scratch.way(touched) {
                let mut branch = TreeNodeEdit::of(self.nodes.get_mut(&step.node).unwrap());
                let count = branch.view().child(step.entry).unwrap().count;
                let count = touched.touch.counted(count).unwrap();
                assert!(branch.set_count(step.entry, count));
            }
        }
    }

    /// Checks T1 to T4, and returns all elements.
    fn check(&self, shape: TreeShape, root: TreeRoot) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut reached = BTreeSet::new();
        let mut elements = Vec::new();
        if root.height > 0 {
            let bounds = (None, None);
            let count = self.check_node(
                (root.node, root.height),
                shape,
                bounds,
                &mut reached,
                &mut elements,
            );
            assert_eq!(count, root.count);
        }
        let all: BTreeSet<_> = self.nodes.keys().copied().collect();
        assert_eq!(reached, all, "no node without a tree");
        assert_eq!(elements.len() as u64, root.count);
        let bytes = elements.iter().map(|(key, value)| key.len() + value.len());
        assert_eq!(bytes.sum::<usize>() as u64, root.bytes);
        elements
    }

    fn check_node(
        &self,
        (node, height): (NodeNumber, u8),
        shape: TreeShape,
        (low, high): (Option<&[u8]>, Option<&[u8]>),
        reached: &mut BTreeSet<NodeNumber>,
        elements: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> u64 {
        assert!(reached.insert(node), "a node has one parent");
        let bytes = &self.nodes[&node];
        let view = TreeNode::parse_as(bytes, shape.kind, height == 1).unwrap();
        assert!(view.len() > 0 && view.len() <= shape.entries_max);
        if view.is_leaf() {
            for entry in 0..view.len() {
                let key = view.key(entry).unwrap();
                if shape.kind != TreeKind::List {
                    assert!(low.is_none_or(|low| low <= key));
                    assert!(high.is_none_or(|high| key < high));
                }
                let value = match view.value(entry).unwrap() {
                    StoredValue::Inline(value) => value.to_vec(),
                    StoredValue::Apart { node, bytes } => {
                        assert!(reached.insert(node));
                        assert_eq!(self.nodes[&node].len(), bytes as usize);
                        self.nodes[&node].clone()
                    }
                };
                elements.push((key.to_vec(), value));
            }
            return view.len() as u64;
        }
        let mut sum = 0;
        for entry in 0..view.len() {
            let child = view.child(entry).unwrap();
            let is_map = shape.kind != TreeKind::List;
            let separator = |entry| view.separator(entry).filter(|_| is_map);
            let low = if entry == 0 { low } else { separator(entry) };
            let high = if entry + 1 < view.len() {
                separator(entry + 1)
            } else {
                high
            };
            let below = self.check_node(
                (child.node, height - 1),
                shape,
                (low, high),
                reached,
                elements,
            );
            assert_eq!(below, child.count);
            sum += below;
        }
        sum
    }
}

/// A tree with its memory.
struct Grove {
    memory: Memory,
    shape: TreeShape,
    root: TreeRoot,
    scratch: TreeScratch,
    out: Vec<u8>,
}

impl Grove {
    fn new(kind: TreeKind, (node_bytes, entries_max): (usize, usize), far_share: u32) -> Self {
        Self {
            memory: Memory {
                far_share,
                crowd: usize::MAX,
                ..Memory::default()
            },
            shape: TreeShape {
                kind,
                node_bytes,
                entries_max,
                shrinks_at: 0,
            },
            root: TreeRoot::default(),
            scratch: TreeScratch::default(),
            out: Vec::new(),
        }
    }

    /// Runs an operation, after its codec, again for each far node.
    fn run(&mut self, op: &TreeOp<'_>) -> TreeAnswer {
        let mut encoded = Vec::new();
        let guard = TreeGuard {
            tag: 7,
            version: self.memory.clock.is_multiple_of(3).then_some(77),
        };
        op.encode(guard, &mut encoded);
        let (decoded, op) = TreeOp::decode(&encoded).expect("it was encoded");
        assert_eq!(decoded, guard);
        for cut in 0..encoded.len() {
            let _ = TreeOp::decode(&encoded[..cut]);
        }
        self.memory.here.borrow_mut().clear();
        self.memory.clock = self.memory.clock.wrapping_add(1);
        loop {
            let work = TreeWork::new(&self.memory, self.shape, self.root, &mut self.scratch);
            let touches = self.memory.clock.is_multiple_of(2);
            let mut work = if touches { work.touching() } else { work };
            match work.run(&op, LIMITS, &mut self.out) {
                Ok(answer) => {
                    let (root, has_changed) = (work.root, work.has_changed());
                    assert!(op.is_change() || !has_changed);
                    self.root = root;
                    self.memory.apply(self.scratch.edits());
                    self.memory.touch(&self.scratch, &op);
                    return answer;
                }
                Err(Halt::Far(node)) => {
                    let is_new = self.memory.here.borrow_mut().insert(node);
                    assert!(is_new, "a node that is here is not far");
                    let read = self.memory.here.borrow().len();
                    assert!(read < 200, "T5");
                }
                Err(halt) => panic!("{halt:?}"),
            }
        }
    }

    fn number(&self) -> u64 {
        u64::from_le_bytes(*self.out.first_chunk().unwrap())
    }

    fn page(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let elements = page_elements(&self.out);
        elements.map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
    }

    /// All pages of a range of keys.
    fn range(
        &mut self,
        from: TreeBound<'_>,
        to: TreeBound<'_>,
        reverse: bool,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        loop {
            let last = all.last().map(|(key, _)| key.clone());
            let (mut near, mut far) = (from, to);
            if let Some(last) = &last {
                let end = if reverse { &mut far } else { &mut near };
                *end = TreeBound::Excluded(last);
            }
            let op = TreeOp::Range {
                from: near,
                to: far,
                reverse,
                limit: 5,
            };
            self.run(&op);
            let page = self.page();
            assert!(page.len() <= 5 && (!page.is_empty() || !page_has_more(&self.out)));
            all.extend(page);
            if !page_has_more(&self.out) {
                return all;
            }
        }
    }

    /// All pages of a range of ranks.
    fn ranks(&mut self, start: u64, end: u64, reverse: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let seen = all.len() as u64;
            let (start, end) = if reverse {
                (start, end.min(self.root.count).saturating_sub(seen))
            } else {
                (start + seen, end)
            };
            self.run(&TreeOp::RangeByRank {
                start,
                end,
                reverse,
                limit: 7,
            });
            let page = self.page();
            assert!(!page.is_empty() || !page_has_more(&self.out));
            all.extend(page);
            if !page_has_more(&self.out) {
                return all;
            }
        }
    }
}

/// Shapes: four entries a node, and nodes that their bytes divide.
const SHAPES: [(usize, usize); 4] = [(4096, 4), (4096, 5), (256, 1000), (64, 1000)];

/// A tree of a shape, of which some nodes may be far.
fn grove_of(kind: TreeKind, input: &mut Input<'_>) -> Grove {
    let shape = SHAPES[input.below(SHAPES.len())];
    let far_share = [0, 1, 3][input.below(3)];
    Grove::new(kind, shape, far_share)
}

/// A seed: an input that draws inserts most of the time.
fn many_calls(seed: u8, calls: usize) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    [seed, seed / 4]
        .into_iter()
        .chain(bytes.take(calls * 5))
        .collect()
}

/// A key of few, so that keys meet; some are long and begin alike.
fn key_of(number: u16) -> Vec<u8> {
    match number % 4 {
        0 => number.to_be_bytes().to_vec(),
        1 => format!("key:{number}").into_bytes(),
        2 => vec![b'x'; usize::from(number % 97)],
        _ => [&[b'p'; 40][..], &number.to_be_bytes()].concat(),
    }
}

fn value_of(number: u16) -> Vec<u8> {
    let bytes = match number % 7 {
        0 => 0,
        6 => usize::from(number) % 3000,
        _ => usize::from(number) % 30,
    };
    vec![number.to_le_bytes()[0]; bytes]
}

#[derive(Clone, Debug)]
enum MapCall {
    Insert(u16, u16, u8),
    Remove(u16),
    Get(u16),
    Swap(u16, bool, Option<u16>),
    Rank(u16),
    Range(u16, u16, u8, bool),
    Ranks(u16, u16, bool),
    Pop(bool, u8),
    Trim(u16, u16),
    Update(Vec<(u16, Option<u16>)>),
    GetMany(Vec<u16>),
    Draw(u64, bool),
    TakeAt(i16),
}

fn number(input: &mut Input<'_>, limit: u16) -> u16 {
    input.short() % limit
}

/// A number from `-limit` on, below `limit`.
fn signed(input: &mut Input<'_>, limit: i16) -> i16 {
    input.short().cast_signed() % limit
}

fn optional(input: &mut Input<'_>) -> Option<u16> {
    input.flag().then(|| input.short())
}

fn map_call_of(input: &mut Input<'_>) -> MapCall {
    match input.below(25) {
        0..8 => MapCall::Insert(number(input, 400), input.short(), input.byte() % 4),
        8..12 => MapCall::Remove(number(input, 400)),
        12 => MapCall::Get(number(input, 400)),
        13 => MapCall::Swap(number(input, 400), input.flag(), optional(input)),
        14 => MapCall::Rank(number(input, 400)),
        15 => {
            let (from, to) = (number(input, 400), number(input, 400));
            MapCall::Range(from, to, input.byte() % 9, input.flag())
        }
        16 => MapCall::Ranks(number(input, 300), number(input, 300), input.flag()),
        17 => MapCall::Pop(input.flag(), input.byte() % 20),
        18 => MapCall::Trim(number(input, 300), number(input, 30)),
        19..22 => {
            let changes = (0..=input.below(13)).map(|_| (number(input, 400), optional(input)));
            MapCall::Update(changes.collect())
        }
        22 => MapCall::GetMany((0..input.below(14)).map(|_| number(input, 400)).collect()),
        23 => MapCall::Draw(input.long(), input.flag()),
        _ => MapCall::TakeAt(signed(input, 200)),
    }
}

fn bounds<'a>(kind: u8, key: &'a [u8]) -> (TreeBound<'a>, Bound<&'a [u8]>) {
    match kind % 3 {
        0 => (TreeBound::Unbounded, Bound::Unbounded),
        1 => (TreeBound::Included(key), Bound::Included(key)),
        _ => (TreeBound::Excluded(key), Bound::Excluded(key)),
    }
}

type Oracle = BTreeMap<Vec<u8>, Vec<u8>>;

fn pairs<'a>(entries: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    entries.map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn insert(grove: &mut Grove, oracle: &mut Oracle, (key, value): (Vec<u8>, Vec<u8>), rule: u8) {
    let condition = match rule {
        0 => TreeCondition::IfAbsent,
        1 => TreeCondition::IfPresent,
        _ => TreeCondition::Always,
    };
    let before = oracle.get(&key).cloned();
    let answer = grove.run(&TreeOp::Insert {
        key: &key,
        value: &value,
        condition,
    });
    let may = match rule {
        0 => before.is_none(),
        1 => before.is_some(),
        _ => true,
    };
    if !may {
        assert_eq!(answer, TreeAnswer::Refused);
        return;
    }
    assert_eq!(grove.out[0], u8::from(before.is_some()));
    assert_eq!(grove.out[1..], before.unwrap_or_default());
    oracle.insert(key, value);
}

#[expect(clippy::too_many_lines, reason = "one arm per call")]
fn map_call(grove: &mut Grove, oracle: &mut Oracle, call: &MapCall) {
    match *call {
        MapCall::Insert(key, value, rule) => {
            insert(grove, oracle, (key_of(key), value_of(value)), rule);
        }
        MapCall::Remove(key) => {
            let key = key_of(key);
            let answer = grove.run(&TreeOp::Remove { key: &key });
            match oracle.remove(&key) {
                Some(value) => assert_eq!((answer, &grove.out), (TreeAnswer::Value, &value)),
                None => assert_eq!(answer, TreeAnswer::Absent),
            }
        }
        MapCall::Get(key) => {
            let key = key_of(key);
            let answer = grove.run(&TreeOp::Get { key: &key });
            match oracle.get(&key) {
                Some(value) => assert_eq!((answer, &grove.out), (TreeAnswer::Value, value)),
                None => assert_eq!(answer, TreeAnswer::Absent),
            }
        }
        MapCall::Swap(key, right, value) => {
            let (key, value) = (key_of(key), value.map(value_of));
            let current = oracle.get(&key).cloned();
            let expected = if right {
                current.clone()
            } else {
                Some(b"never".to_vec())
            };
            let answer = grove.run(&TreeOp::CompareAndSet {
                key: &key,
                expected: expected.as_deref(),
                value: value.as_deref(),
            });
            if !right {
                assert_eq!(answer, TreeAnswer::Refused);
                assert_eq!(grove.out, current.unwrap_or_default());
            } else if let Some(value) = value {
                oracle.insert(key, value);
            } else {
                oracle.remove(&key);
            }
        }
        MapCall::Rank(key) => {
            let key = key_of(key);
            let answer = grove.run(&TreeOp::Rank { key: &key });
            if oracle.contains_key(&key) {
                assert_eq!(grove.number(), oracle.range(..key).count() as u64);
            } else {
                assert_eq!(answer, TreeAnswer::Absent);
            }
        }
        MapCall::Range(from, to, kinds, reverse) => {
            let (mut from, mut to) = (key_of(from), key_of(to));
            if from >= to {
                (from, to) = (to, [&from[..], b"+"].concat());
            }
            let (from, low) = bounds(kinds, &from);
            let (to, high) = bounds(kinds / 3, &to);
            let found = grove.range(from, to, reverse);
            let mut expected = pairs(oracle.range::<[u8], _>((low, high)));
            grove.run(&TreeOp::Count { from, to });
            assert_eq!(grove.number(), expected.len() as u64);
            if reverse {
                expected.reverse();
            }
            assert_eq!(found, expected);
        }
        MapCall::Ranks(start, end, reverse) => {
            let found = grove.ranks(u64::from(start), u64::from(end), reverse);
            let count = usize::from(end.saturating_sub(start));
            let mut expected = pairs(oracle.iter().skip(usize::from(start)).take(count));
            if reverse {
                expected.reverse();
            }
            assert_eq!(found, expected);
        }
        MapCall::Pop(last, limit) => {
            let before = oracle.len();
            grove.run(&TreeOp::Pop {
                last,
                limit: u32::from(limit),
            });
            let page = grove.page();
            assert!(page.len() <= usize::from(limit));
            assert!(!page.is_empty() || limit == 0 || before == 0);
            for element in page {
                let popped = if last {
                    oracle.pop_last()
                } else {
                    oracle.pop_first()
                };
                assert_eq!(Some(element), popped);
            }
            assert_eq!(page_has_more(&grove.out), !oracle.is_empty());
        }
        MapCall::Trim(start, count) => {
            let (start, end) = (u64::from(start), u64::from(start + count));
            grove.run(&TreeOp::RemoveByRank { start, end });
            let removed = usize::try_from(grove.number()).unwrap();
            let wanted = (oracle.len() as u64).min(end).saturating_sub(start);
            assert_eq!(grove.out[8] == 0, removed as u64 == wanted);
            assert!(removed > 0 || wanted == 0);
            let start = usize::from(u16::try_from(start).unwrap());
            let keys: Vec<_> = oracle.keys().skip(start).take(removed).cloned().collect();
            for key in keys {
                oracle.remove(&key);
            }
        }
        MapCall::Update(ref changes) => update(grove, oracle, changes),
        MapCall::GetMany(ref keys) => {
            let keys: Vec<_> = keys.iter().copied().map(key_of).collect();
            let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            grove.run(&TreeOp::GetMany {
                keys: TreeValues::Slices(&slices),
            });
            let found: Vec<_> = found_values(&grove.out).collect();
            assert!(found.len() <= keys.len() && (!found.is_empty() || keys.is_empty()));
            for (key, value) in keys.iter().zip(found) {
                assert_eq!(value, oracle.get(key).map(Vec::as_slice));
            }
        }
        MapCall::Draw(random, removes) => {
            let rank = (u128::from(random) * oracle.len() as u128) >> 64;
            let rank = usize::try_from(rank).unwrap();
            let answer = grove.run(&TreeOp::Draw { random, removes });
            taken(grove, oracle, (rank, removes), answer);
        }
        MapCall::TakeAt(rank) => {
            let answer = grove.run(&TreeOp::TakeAt {
                rank: i64::from(rank),
            });
            taken(grove, oracle, (place_of(rank, oracle.len()), true), answer);
        }
    }
}

/// Where the element of a rank is, or would be behind the last.
fn place_of(rank: i16, count: usize) -> usize {
    match usize::try_from(rank) {
        Ok(rank) => rank,
        Err(_) => count
            .checked_sub(usize::from(rank.unsigned_abs()))
            .unwrap_or(usize::MAX),
    }
}

/// Checks an element that was answered, and takes it from the oracle if it was removed.
fn taken(grove: &Grove, oracle: &mut Oracle, (place, removes): (usize, bool), answer: TreeAnswer) {
    let Some((key, value)) = oracle.iter().nth(place) else {
        assert_eq!(answer, TreeAnswer::Absent);
        return;
    };
    assert_eq!(grove.page(), [(key.clone(), value.clone())]);
    let key = key.clone();
    if removes {
        oracle.remove(&key);
    }
    let others = oracle.len() - usize::from(!removes);
    assert_eq!(page_has_more(&grove.out), others > 0);
}

fn update(grove: &mut Grove, oracle: &mut Oracle, changes: &[(u16, Option<u16>)]) {
    let changes = changes
        .iter()
        .map(|&(key, value)| (key_of(key), value.map(value_of)));
    let changes: Vec<_> = changes.collect();
    let slices = changes.iter().map(|(key, value)| TreeChange {
        key,
        value: value.as_deref(),
    });
    let slices: Vec<_> = slices.collect();
    grove.run(&TreeOp::Update {
        changes: TreeChanges::Slices(&slices),
        replaces: false,
    });
    let number = |place: usize| {
        let bytes = grove.out[8 * place..].first_chunk().unwrap();
        usize::try_from(u64::from_le_bytes(*bytes)).unwrap()
    };
    let (mut added, mut removed) = (0, 0);
    let done = number(2);
    assert!(done >= changes.len().min(TREE_CHANGES_WHOLE) && done <= changes.len());
    for (key, value) in changes.into_iter().take(done) {
        match value {
            Some(value) => added += usize::from(oracle.insert(key, value).is_none()),
            None => removed += usize::from(oracle.remove(&key).is_some()),
        }
    }
    assert_eq!(
        (number(0), number(1), number(3)),
        (added, removed, oracle.len())
    );
}

#[derive(Clone, Debug)]
enum ListCall {
    Push(bool, Vec<u16>),
    InsertAt(u16, u16),
    SetAt(u16, u16),
    Pop(bool, u8),
    Ranks(u16, u16, bool),
    Trim(u16, u16),
    Slice(i16, i16),
    Keep(i16, i16),
    TakeAt(i16),
    PushIfThere(bool, u16),
    Rotate(bool),
}

fn list_call_of(input: &mut Input<'_>) -> ListCall {
    match input.below(24) {
        0..5 => {
            let front = input.flag();
            ListCall::Push(
                front,
                (0..=input.below(11)).map(|_| input.short()).collect(),
            )
        }
        5..9 => ListCall::InsertAt(number(input, 300), input.short()),
        9 | 10 => ListCall::SetAt(number(input, 300), input.short()),
        11..14 => ListCall::Pop(input.flag(), input.byte() % 20),
        14 => ListCall::Ranks(number(input, 300), number(input, 300), input.flag()),
        15 | 16 => ListCall::Trim(number(input, 300), number(input, 30)),
        17 | 18 => ListCall::Slice(signed(input, 300), signed(input, 300)),
        19 => ListCall::Keep(signed(input, 300), signed(input, 300)),
        20 => ListCall::TakeAt(signed(input, 300)),
        21 => ListCall::PushIfThere(input.flag(), input.short()),
        _ => ListCall::Rotate(input.flag()),
    }
}

/// Trims a list to a slice, in as many steps as it takes.
fn keep(grove: &mut Grove, oracle: &mut VecDeque<Vec<u8>>, (mut first, mut last): (i64, i64)) {
    let kept = slice_of(first, last, oracle.len() as u64);
    let count = usize::try_from(kept.end - kept.start).unwrap();
    let start = usize::try_from(kept.start).unwrap().min(oracle.len());
    let expected: VecDeque<_> = oracle.iter().skip(start).take(count).cloned().collect();
    loop {
        let before = grove.root.count;
        grove.run(&TreeOp::Trim { first, last });
        let numbers = grove.out.chunks_exact(8);
        let numbers = numbers.map(|number| i64::from_le_bytes(*number.first_chunk().unwrap()));
        let [removed, start, end, more, left] = numbers.collect::<Vec<_>>()[..] else {
            panic!("five numbers");
        };
        assert_eq!(left.unsigned_abs(), grove.root.count);
        assert_eq!(removed.unsigned_abs(), before - grove.root.count);
        if more == 0 {
            break;
        }
        assert!(removed > 0);
        // What is left is a part of the list, and the slice is where the answer says.
        let left = grove.ranks(0, u64::MAX, false);
        let left: Vec<_> = left.into_iter().map(|(_, value)| value).collect();
        let all: Vec<_> = oracle.iter().cloned().collect();
        assert!(all.windows(left.len()).any(|part| part == left));
        let slice = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
        assert!(expected.iter().eq(&left[slice]));
        (first, last) = (start, end - 1);
    }
    *oracle = expected;
}

#[expect(clippy::too_many_lines, reason = "one arm per call")]
fn list_call(grove: &mut Grove, oracle: &mut VecDeque<Vec<u8>>, call: &ListCall) {
    match call {
        ListCall::Push(front, numbers) => {
            let values: Vec<_> = numbers.iter().copied().map(value_of).collect();
            let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            grove.run(&TreeOp::Push {
                front: *front,
                exists: false,
                replaces: false,
                values: TreeValues::Slices(&slices),
            });
            for value in values {
                if *front {
                    oracle.push_front(value);
                } else {
                    oracle.push_back(value);
                }
            }
            assert_eq!(grove.number(), oracle.len() as u64);
        }
        ListCall::InsertAt(rank, value) => {
            let (place, value) = (usize::from(*rank), value_of(*value));
            let rank = u64::from(*rank);
            let answer = grove.run(&TreeOp::InsertAt {
                rank,
                value: &value,
            });
            if place <= oracle.len() {
                oracle.insert(place, value);
            } else {
                assert_eq!(answer, TreeAnswer::Absent);
            }
        }
        ListCall::SetAt(rank, value) => {
            let (place, value) = (usize::from(*rank), value_of(*value));
            let answer = grove.run(&TreeOp::SetAt {
                rank: i64::from(*rank),
                value: &value,
            });
            match oracle.get_mut(place) {
                Some(old) => {
                    assert_eq!(&grove.out, old);
                    *old = value;
                }
                None => assert_eq!(answer, TreeAnswer::Absent),
            }
        }
        ListCall::Pop(last, limit) => {
            grove.run(&TreeOp::Pop {
                last: *last,
                limit: u32::from(*limit),
            });
            let page = grove.page();
            assert!(!page.is_empty() || *limit == 0 || oracle.is_empty());
            for (_, value) in page {
                let popped = if *last {
                    oracle.pop_back()
                } else {
                    oracle.pop_front()
                };
                assert_eq!(Some(value), popped);
            }
        }
        ListCall::Slice(first, last) => {
            let (first, last) = (i64::from(*first), i64::from(*last));
            let wanted = slice_of(first, last, oracle.len() as u64);
            grove.run(&TreeOp::Slice {
                first,
                last,
                limit: 9,
            });
            let page = grove.page();
            let place = |rank: u64| usize::try_from(rank).unwrap();
            let (start, end) = (place(wanted.start), place(wanted.end));
            assert!(page.len() <= 9 && (!page.is_empty() || start == end || start >= oracle.len()));
            assert_eq!(page_has_more(&grove.out), start + page.len() < end);
            for ((_, value), expected) in page.iter().zip(oracle.iter().skip(start)) {
                assert_eq!(value, expected);
            }
        }
        ListCall::Keep(first, last) => keep(grove, oracle, (i64::from(*first), i64::from(*last))),
        ListCall::TakeAt(rank) => {
            let place = place_of(*rank, oracle.len());
            let answer = grove.run(&TreeOp::TakeAt {
                rank: i64::from(*rank),
            });
            match oracle.remove(place) {
                Some(value) => assert_eq!(grove.page(), [(Vec::new(), value)]),
                None => assert_eq!(answer, TreeAnswer::Absent),
            }
        }
        ListCall::Rotate(last) => {
            let answer = grove.run(&TreeOp::Rotate { last: *last });
            let moved = match last {
                true => oracle.pop_back(),
                false => oracle.pop_front(),
            };
            match moved {
                Some(value) if *last => oracle.push_front(value),
                Some(value) => oracle.push_back(value),
                None => return assert_eq!(answer, TreeAnswer::Absent),
            }
            let at = if *last { 0 } else { oracle.len() - 1 };
            assert_eq!(grove.page(), [(Vec::new(), oracle[at].clone())]);
            assert_eq!(page_has_more(&grove.out), oracle.len() > 1);
        }
        ListCall::PushIfThere(front, value) => {
            let value = value_of(*value);
            let answer = grove.run(&TreeOp::Push {
                front: *front,
                exists: true,
                replaces: false,
                values: TreeValues::Slices(&[&value]),
            });
            match (oracle.is_empty(), *front) {
                (true, _) => assert_eq!(answer, TreeAnswer::Absent),
                (false, true) => oracle.push_front(value),
                (false, false) => oracle.push_back(value),
            }
        }
        ListCall::Ranks(start, end, reverse) => {
            let found = grove.ranks(u64::from(*start), u64::from(*end), *reverse);
            let count = usize::from(end.saturating_sub(*start));
            let values = oracle.iter().skip(usize::from(*start)).take(count);
            let mut expected: Vec<_> = values.cloned().collect();
            if *reverse {
                expected.reverse();
            }
            let found: Vec<_> = found.into_iter().map(|(_, value)| value).collect();
            assert_eq!(found, expected);
        }
        ListCall::Trim(start, count) => {
            let end = u64::from(start + count);
            grove.run(&TreeOp::RemoveByRank {
                start: u64::from(*start),
                end,
            });
            let removed = usize::try_from(grove.number()).unwrap();
            let start = usize::from(*start).min(oracle.len());
            oracle.drain(start..start + removed);
        }
    }
}

#[test]
fn a_map_is_as_its_oracle_after_every_step() {
    farcore_fuzz::Target::new("tree of a map")
        .seeds((0..12).map(|seed| many_calls(seed, 120)))
        .longest(700)
        .rounds(400)
        .memory(1 << 20, 8192)
        .run(|bytes| {
            let input = &mut Input::new(bytes);
            let mut grove = grove_of(TreeKind::Map, input);
            let mut oracle = Oracle::new();
            while !input.is_empty() {
                map_call(&mut grove, &mut oracle, &map_call_of(input));
                let elements = grove.memory.check(grove.shape, grove.root);
                assert_eq!(elements, pairs(oracle.iter()));
            }
        });
}

#[test]
fn a_list_is_as_its_oracle_after_every_step() {
    farcore_fuzz::Target::new("tree of a list")
        .seeds((0..12).map(|seed| many_calls(seed, 120)))
        .longest(700)
        .rounds(400)
        .memory(1 << 20, 8192)
        .run(|bytes| {
            let input = &mut Input::new(bytes);
            let mut grove = grove_of(TreeKind::List, input);
            let mut oracle = VecDeque::new();
            while !input.is_empty() {
                list_call(&mut grove, &mut oracle, &list_call_of(input));
                let elements = grove.memory.check(grove.shape, grove.root);
                let values: VecDeque<_> = elements.into_iter().map(|(_, value)| value).collect();
                assert_eq!(&values, &oracle);
            }
        });
}

/// T5, and N1 through all operations: a node with any bit changed, or gone, never panics, loops or
/// changes more than copies.
#[test]
fn damaged_nodes_halt_or_mislead_but_never_panic() {
    farcore_fuzz::Target::new("damaged tree")
        .seeds((0..12).map(|seed| many_calls(seed, 60)))
        .rounds(1000)
        .memory(1 << 20, 8192)
        .run(|bytes| {
            let input = &mut Input::new(bytes);
            let mut grove = grove_of(TreeKind::Map, input);
            grove.memory.far_share = 0;
            let mut oracle = Oracle::new();
            for _ in 0..=input.below(60) {
                let (key, value) = (key_of(number(input, 400)), value_of(input.short()));
                insert(&mut grove, &mut oracle, (key, value), 9);
            }
            for _ in 0..=input.below(5) {
                let place = input.below(grove.memory.nodes.len());
                let bytes = grove.memory.nodes.values_mut().nth(place).unwrap();
                if !bytes.is_empty() {
                    let at = usize::from(input.short()) % bytes.len();
                    bytes[at] ^= input.byte();
                }
            }
            while !input.is_empty() {
                call_damaged(&mut grove, &map_call_of(input));
            }
        });
}

/// Runs an operation, whatever its outcome.
fn call_damaged(grove: &mut Grove, call: &MapCall) {
    let (key, value) = match *call {
        MapCall::Insert(key, value, _) => (key_of(key), value_of(value)),
        MapCall::Range(key, ..) | MapCall::Remove(key) => (key_of(key), Vec::new()),
        _ => (Vec::new(), Vec::new()),
    };
    let changes = [Some(&value[..]), None].map(|value| TreeChange { key: &key, value });
    let op = match call {
        MapCall::Insert(..) | MapCall::Swap(..) => TreeOp::Insert {
            key: &key,
            value: &value,
            condition: TreeCondition::Always,
        },
        MapCall::Remove(_) | MapCall::Get(_) => TreeOp::Remove { key: &key },
        MapCall::Rank(_) => TreeOp::Rank { key: &key },
        MapCall::Range(_, _, _, reverse) => TreeOp::Range {
            from: TreeBound::Included(&key),
            to: TreeBound::Unbounded,
            reverse: *reverse,
            limit: 100,
        },
        MapCall::Ranks(start, end, reverse) => TreeOp::RangeByRank {
            start: u64::from(*start),
            end: u64::from(*end),
            reverse: *reverse,
            limit: 100,
        },
        MapCall::Pop(last, limit) => TreeOp::Pop {
            last: *last,
            limit: u32::from(*limit),
        },
        MapCall::Trim(start, count) => TreeOp::RemoveByRank {
            start: u64::from(*start),
            end: u64::from(start + count),
        },
        MapCall::Update(_) => TreeOp::Update {
            changes: TreeChanges::Slices(&changes),
            replaces: false,
        },
        MapCall::GetMany(_) => TreeOp::GetMany {
            keys: TreeValues::Slices(&[&b"key"[..], &key]),
        },
        MapCall::Draw(random, removes) => TreeOp::Draw {
            random: *random,
            removes: *removes,
        },
        MapCall::TakeAt(rank) => TreeOp::TakeAt {
            rank: i64::from(*rank),
        },
    };
    let mut work = TreeWork::new(&grove.memory, grove.shape, grove.root, &mut grove.scratch);
    let _ = work.run(&op, LIMITS, &mut grove.out);
}

/// Keys that arrive in their order, and a queue, leave full nodes.
#[test]
fn elements_added_at_an_end_fill_their_nodes() {
    for front in [false, true] {
        let mut grove = Grove::new(TreeKind::List, (4096, 100), 0);
        for _ in 0..1000 {
            let values = [&b"value"[..]; 10];
            grove.run(&TreeOp::Push {
                front,
                exists: false,
                replaces: false,
                values: TreeValues::Slices(&values),
            });
        }
        assert_eq!(grove.memory.check(grove.shape, grove.root).len(), 10_000);
        assert_eq!(grove.memory.nodes.len(), 100 + 1, "front: {front}");
    }
    let mut grove = Grove::new(TreeKind::Map, (4096, 100), 0);
    for number in 0..5000u32 {
        let key = number.to_be_bytes();
        insert(
            &mut grove,
            &mut Oracle::new(),
            (key.to_vec(), Vec::new()),
            9,
        );
    }
    assert_eq!(grove.memory.nodes.len(), 50 + 1);
}

/// A tree that shrinks gives its nodes back long before it is empty.
#[test]
fn a_tree_that_shrinks_has_few_nodes() {
    let mut grove = Grove::new(TreeKind::Map, (512, 1000), 0);
    let mut oracle = Oracle::new();
    let scatter = |number: u32| number.wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
    for number in 0..20_000 {
        insert(&mut grove, &mut oracle, (scatter(number), vec![1; 8]), 9);
    }
    let many = grove.memory.nodes.len();
    assert!(grove.root.height >= 3);
    for number in 0..19_900 {
        let key = scatter(number);
        grove.run(&TreeOp::Remove { key: &key });
    }
    assert_eq!(grove.memory.check(grove.shape, grove.root).len(), 100);
    assert!(grove.memory.nodes.len() * 50 < many, "{many}");
}

/// Operations of several shapes, encoded.
#[expect(clippy::too_many_lines, reason = "one line per operation")]
fn encoded_operations() -> Vec<Vec<u8>> {
    let changes = [(&b"a"[..], Some(&b"1"[..])), (b"b", None)];
    let changes = changes.map(|(key, value)| TreeChange { key, value });
    let keys = [&b"key"[..], b""];
    let scores = [Some(1.5), None].map(|score| TreeScore {
        member: b"member",
        score,
        value: b"value",
    });
    let ops = [
        TreeOp::Insert {
            key: b"key",
            value: b"value",
            condition: TreeCondition::IfAbsent,
        },
        TreeOp::CompareAndSet {
            key: b"key",
            expected: None,
            value: Some(b"value"),
        },
        TreeOp::Range {
            from: TreeBound::Included(b"a"),
            to: TreeBound::Excluded(b"b"),
            reverse: true,
            limit: 9,
        },
        TreeOp::Push {
            front: true,
            exists: false,
            replaces: false,
            values: TreeValues::Slices(&keys),
        },
        TreeOp::Update {
            changes: TreeChanges::Slices(&changes),
            replaces: true,
        },
        TreeOp::GetMany {
            keys: TreeValues::Slices(&keys),
        },
        TreeOp::Slice {
            first: -3,
            last: -1,
            limit: 4,
        },
        TreeOp::Score {
            changes: TreeScores::Slices(&scores),
            rule: TreeScoreRule::default(),
            replaces: true,
        },
        TreeOp::ScoreRange {
            range: TreeScoreRange::Members {
                from: TreeBound::Included(b"a"),
                to: TreeBound::Unbounded,
            },
            reverse: true,
            skip: 3,
            limit: 9,
        },
        TreeOp::ScoreRemove {
            range: TreeScoreRange::Scores {
                from: TreeScoreBound::Included(-1.0),
                to: TreeScoreBound::Excluded(f64::INFINITY),
            },
        },
        TreeOp::ScoreCount {
            range: TreeScoreRange::Ranks { first: 0, last: -1 },
        },
        TreeOp::ScoreScan { from: 1, limit: 9 },
    ];
    let guard = TreeGuard {
        tag: 7,
        version: Some(77),
    };
    let encoded = ops.iter().map(|op| {
        let mut encoded = Vec::new();
        op.encode(guard, &mut encoded);
        encoded
    });
    encoded.collect()
}

#[test]
fn any_bytes_are_an_operation_or_none() {
    farcore_fuzz::Target::new("tree operation")
        .seeds(encoded_operations())
        .run(|bytes| {
            let _ = (found_values(bytes).count(), page_elements(bytes).count());
            let Some((guard, op)) = TreeOp::decode(bytes) else {
                return;
            };
            let mut again = Vec::new();
            op.encode(guard, &mut again);
            assert!(again.len() <= bytes.len());
            let mut twice = Vec::new();
            let (guard, op) = TreeOp::decode(&again).expect("an operation");
            op.encode(guard, &mut twice);
            assert_eq!(twice, again);
            // Whatever it names, it runs on an empty tree and on one of some nodes.
            let mut grove = Grove::new(TreeKind::Map, SHAPES[0], 0);
            for number in 0..9 {
                insert(
                    &mut grove,
                    &mut Oracle::new(),
                    (key_of(number), value_of(number)),
                    9,
                );
            }
            for root in [TreeRoot::default(), grove.root] {
                let mut work = TreeWork::new(&grove.memory, grove.shape, root, &mut grove.scratch);
                let _ = work.run(&op, LIMITS, &mut grove.out);
            }
        });
}
