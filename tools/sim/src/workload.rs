//! What clients call.

use std::collections::BTreeMap;

use farcore::{SimulatedEngine, TreeCondition, TreeGuard, TreeKind, TreeScoreOnly};

use crate::call::{Asked, Call, ELEMENTS, Part, PartWrite, TreeCall};
use crate::collections::kind_of;
use crate::scored::ScoredCall;
use crate::sections;
use crate::world::World;

/// Calls that a client has under way, at most.
const IN_FLIGHT_MAX: usize = 24;
/// Keys with one hash tag, which so lie in one shard.
const GROUP_KEYS: u64 = 8;
/// Names among which keys that collide are sought.
const CANDIDATES: u64 = 40_000;
/// Keys that come in pairs and are called often.
const PAIRED_KEYS: u64 = 64;
/// Bits of a hash that tell a slot's home and tag.
const SLOT_BITS: u64 = (1 << 22) - 1;

pub(crate) fn name_of_tree(tree: u64) -> String {
    format!("tree-{tree}")
}

impl World {
    /// Names the keys. Where they collide, the index takes the two of a pair for one another.
    pub(crate) fn name_keys(&mut self, engine: &SimulatedEngine) {
        let names = (0..self.plan.keys).map(|key| format!("{{{}}}key-{key}", key / GROUP_KEYS));
        self.names = names.collect();
        if self.plan.collides {
            self.name_pairs(engine);
        }
        self.note_twins(engine);
    }

    /// Names keys so that they come in pairs.
    fn name_pairs(&mut self, engine: &SimulatedEngine) {
        let mut known = BTreeMap::new();
        let mut pairs = Vec::new();
        for candidate in 0..CANDIDATES {
            let name = format!("{{c}}{candidate}");
            let (shard, hash) = engine.place_of(name.as_bytes());
            match known.remove(&(shard, hash & SLOT_BITS)) {
                Some(other) => pairs.extend([other, name]),
                None => drop(known.insert((shard, hash & SLOT_BITS), name)),
            }
        }
        pairs.truncate(self.names.len() / 2);
        for (place, name) in pairs.into_iter().enumerate() {
            // The keys that are used most, and many others.
            self.names[place] = name;
        }
    }

    /// Notes the keys that share a slot, by chance or because they come in pairs.
    fn note_twins(&mut self, engine: &SimulatedEngine) {
        let trees = (0..self.plan.trees).map(name_of_tree);
        let names = self.names.iter().cloned().chain(trees);
        let mut by_slot: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for name in names.chain(sections::names()) {
            let (shard, hash) = engine.place_of(name.as_bytes());
            let slot = (shard, hash & SLOT_BITS);
            by_slot.entry(slot).or_default().push(name);
        }
        for (slot, names) in by_slot.into_iter().filter(|(_, names)| names.len() > 1) {
            self.twins
                .extend(names.into_iter().map(|name| (name, slot)));
        }
    }

    fn draw_key(&mut self) -> u64 {
        if self.plan.collides && self.random.one_in(4) {
            // Of few pairs, so that one of two is written and read while the other is lost.
            return self.random.below(self.plan.keys.min(PAIRED_KEYS));
        }
        match self.random.below(3) {
            // Some keys are used much more than others.
            0 => self.random.below(self.plan.keys.min(8)),
            _ => self.random.below(self.plan.keys),
        }
    }

    /// A version that a key had lately, or may have.
    fn version_to_expect(&mut self, key: u64) -> u64 {
        if self.random.one_in(4) {
            return 0;
        }
        self.history.latest_version(key)
    }

    /// When a value expires: soon, or not before long.
    fn draw_expiry(&mut self) -> u64 {
        let within = 1 << self.random.below(13);
        self.times.system_ms() + self.random.below(within)
    }

    fn draw_transaction(&mut self) -> Call {
        let first = self.draw_key() / GROUP_KEYS * GROUP_KEYS;
        let count = GROUP_KEYS.min(self.plan.keys - first);
        let mut parts = Vec::new();
        for key in first..first + count {
            if !self.random.one_in(2) {
                continue;
            }
            let is_expected = self.random.one_in(2);
            let expected = is_expected.then(|| self.version_to_expect(key));
            let write = match self.random.below(4) {
                0 => PartWrite::Nothing,
                1 => PartWrite::Delete,
                _ => PartWrite::Put,
            };
            if expected.is_some() || write != PartWrite::Nothing {
                parts.push(Part {
                    key,
                    expected,
                    write,
                });
            }
        }
        if parts.is_empty() {
            parts.push(Part {
                key: first,
                expected: None,
                write: PartWrite::Put,
            });
        }
        Call::Transaction(parts)
    }

    /// A rank of a list, which may count from its end.
    fn draw_rank(&mut self) -> i64 {
        let rank = i64::try_from(self.random.below(ELEMENTS)).unwrap_or(0);
        if self.random.one_in(3) {
            -rank - 1
        } else {
            rank
        }
    }

    fn draw_tree(&mut self, is_ordered: bool) -> Call {
        let tree = self.random.below(self.plan.trees);
        if self.random.one_in(100) {
            return Call::GetTree { tree };
        }
        if is_ordered && self.random.one_in(60) {
            let expires_ms = self.draw_expiry();
            return match self.random.below(6) {
                0..2 => Call::DeleteTree { tree },
                2 => Call::PutTree { tree },
                _ if self.plan.mix.expiring == 0 => Call::DeleteTree { tree },
                3 => Call::ExpireTree {
                    tree,
                    expires_ms: None,
                },
                _ => Call::ExpireTree {
                    tree,
                    expires_ms: Some(expires_ms),
                },
            };
        }
        let other = u64::from(self.random.one_in(60));
        let call = match (self.random.below(24), kind_of(tree + other)) {
            (0..8, _) => self.draw_any(),
            (_, TreeKind::List) => self.draw_of_list(),
            (_, TreeKind::Scored) => TreeCall::Scored(self.draw_of_scored()),
            _ => self.draw_of_map(tree),
        };
        // Most of them agree about what the collection is.
        let tag = self.tag_of(tree).tag + u8::from(self.random.one_in(60));
        let version = match self.random.below(24) {
            0 => Some(0),
            1..3 => Some(self.history.latest_tree_version(tree)),
            _ => None,
        };
        let guard = TreeGuard { tag, version };
        Call::Tree { tree, call, guard }
    }

    /// A call on collections of any kind.
    fn draw_any(&mut self) -> TreeCall {
        let (start, end) = (self.random.below(ELEMENTS), self.random.below(2 * ELEMENTS));
        let limit = u32::try_from(self.random.below(40)).unwrap_or(0);
        let reverse = self.random.one_in(2);
        let (first, last) = (self.draw_rank(), self.draw_rank());
        match self.random.below(24) {
            0..3 => TreeCall::Len,
            3..6 => TreeCall::Pop(reverse, limit % 8),
            6 => TreeCall::RemoveRanks(start, end),
            7..9 => TreeCall::RemoveRanks(start, start + u64::from(limit % 8)),
            9..12 => TreeCall::TakeAt(first),
            12..16 => TreeCall::Draw(self.random.next(), reverse),
            16..19 => TreeCall::Slice(first, last, limit),
            // What stays is long, so that something does.
            19 => TreeCall::Trim(first % 8, last),
            _ => TreeCall::Ranks(start, end, reverse, limit),
        }
    }

    fn draw_of_map(&mut self, tree: u64) -> TreeCall {
        let element = self.random.below(ELEMENTS);
        let other = element + self.random.below(ELEMENTS);
        let reverse = self.random.one_in(2);
        let limit = u32::try_from(self.random.below(40)).unwrap_or(0);
        let count = 1 + self.random.below(7);
        let condition = self.random.of(&[
            TreeCondition::Always,
            TreeCondition::Always,
            TreeCondition::IfAbsent,
            TreeCondition::IfPresent,
        ]);
        match self.random.below(24) {
            0..8 => TreeCall::Insert(element, condition),
            8..11 => TreeCall::Remove(element),
            11..14 => TreeCall::Get(element),
            14 => TreeCall::Rank(element),
            15 => TreeCall::Count(element, other),
            16 => TreeCall::Range(element, other, reverse, limit),
            17..19 => TreeCall::GetMany {
                first: element,
                count,
            },
            19..22 => TreeCall::Update {
                first: element,
                count,
                removes: self.random.of(&[0, 1, 2, 3]),
                replaces: false,
            },
            22 if self.random.one_in(4) => TreeCall::Update {
                first: element,
                count,
                removes: self.random.of(&[0, 2, 3]),
                replaces: true,
            },
            _ => {
                let known = self.history.latest_element(tree, element);
                let expected = known.filter(|_| self.random.below(4) > 0);
                TreeCall::CompareAndSet(element, expected, self.random.below(3) > 0)
            }
        }
    }

    fn draw_of_scored(&mut self) -> ScoredCall {
        let member = self.random.below(ELEMENTS);
        let count = 1 + self.random.below(7);
        let (from, ends) = (self.random.below(40), self.random.below(60));
        let score = |number: u64| i64::try_from(number).unwrap_or(0) - 20;
        let (score, to) = (score(from), score(ends));
        let reverse = self.random.one_in(2);
        let limit = u32::try_from(self.random.below(40)).unwrap_or(0);
        let conditions = [
            TreeCondition::Always,
            TreeCondition::IfAbsent,
            TreeCondition::IfPresent,
        ];
        let onlys = [
            TreeScoreOnly::Any,
            TreeScoreOnly::Greater,
            TreeScoreOnly::Less,
        ];
        match self.random.below(24) {
            0..8 => ScoredCall::Score {
                first: member,
                count,
                removes: self.random.of(&[0, 1, 2, 3]),
                score,
                replaces: false,
            },
            8 if self.random.one_in(4) => ScoredCall::Score {
                first: member,
                count,
                removes: self.random.of(&[0, 2, 3]),
                score,
                replaces: true,
            },
            8..14 => ScoredCall::ScoreOne {
                member,
                score,
                condition: self.random.of(&conditions),
                only: self.random.of(&onlys),
                adds: self.random.one_in(2),
            },
            14 => ScoredCall::ScoreOf {
                first: member,
                count,
            },
            15 => ScoredCall::Value(member),
            16 | 17 => ScoredCall::Rank(member, reverse),
            18 => ScoredCall::Count(score, to),
            19..21 => ScoredCall::Range {
                from: score,
                to,
                reverse,
                skip: member % 4,
                limit,
            },
            21 | 22 => ScoredCall::Scan(limit),
            _ => ScoredCall::Remove(score, score + 3),
        }
    }

    fn draw_of_list(&mut self) -> TreeCall {
        let front = self.random.one_in(2);
        match self.random.below(24) {
            0..9 => TreeCall::Push {
                front,
                count: self.random.below(6),
                exists: self.random.one_in(4),
            },
            9..14 => TreeCall::InsertAt(self.random.below(ELEMENTS)),
            14..20 => TreeCall::SetAt(self.draw_rank()),
            _ => TreeCall::Rotate(front),
        }
    }

    /// What a client calls next. What shared clients are answered names no version of a delete, so
    /// they make no call that may delete.
    fn draw_call(&mut self, is_ordered: bool) -> Call {
        let mix = self.plan.mix;
        let kinds = [
            mix.get,
            mix.put,
            mix.swap,
            mix.transaction,
            mix.tree,
            if is_ordered { mix.delete } else { 0 },
            if is_ordered { mix.expiring } else { 0 },
            if is_ordered { 0 } else { 6 * mix.long },
            if is_ordered { 0 } else { mix.scan },
        ];
        let mut pick = self.random.below(kinds.iter().sum());
        let mut kind = 0;
        while pick >= kinds[kind] {
            pick -= kinds[kind];
            kind += 1;
        }
        let key = self.draw_key();
        match kind {
            0 => Call::Get {
                key,
                is_long: !is_ordered && mix.long > 0,
            },
            1 => Call::Put {
                key,
                is_long: false,
                expires_ms: None,
            },
            2 => Call::Swap {
                key,
                expected: self.version_to_expect(key),
            },
            3 => self.draw_transaction(),
            4 => self.draw_tree(is_ordered),
            5 => Call::Delete { key },
            6 => {
                let expires_ms = self.draw_expiry();
                match self.random.below(4) {
                    0 => Call::SetExpiry {
                        key,
                        expires_ms: expires_ms.is_multiple_of(2).then_some(expires_ms),
                    },
                    _ => Call::Put {
                        key,
                        is_long: false,
                        expires_ms: Some(expires_ms),
                    },
                }
            }
            7 => match self.random.below(3) {
                0 => Call::Put {
                    key: key % 16,
                    is_long: true,
                    expires_ms: None,
                },
                _ => Call::Get {
                    key: key % 16,
                    is_long: true,
                },
            },
            _ => Call::Scan {
                entries: 1 + self.random.place(200),
            },
        }
    }

    /// A client makes a call, if it has not too many under way.
    pub(crate) fn call(&mut self, place: usize) {
        if self.clients[place].in_flight < IN_FLIGHT_MAX {
            let call = self.draw_call(self.clients[place].client.is_ordered());
            self.send(place, call);
        }
    }

    /// The names of the keys of a call.
    fn names_of(&self, call: &Call) -> Vec<String> {
        let name = |key: u64| self.names[usize::try_from(key).unwrap_or(0)].clone();
        match call {
            Call::Get { key, .. }
            | Call::Put { key, .. }
            | Call::Delete { key }
            | Call::Swap { key, .. }
            | Call::SetExpiry { key, .. } => vec![name(*key)],
            Call::Transaction(parts) => parts.iter().map(|part| name(part.key)).collect(),
            Call::Tree { tree, .. }
            | Call::DeleteTree { tree }
            | Call::GetTree { tree }
            | Call::PutTree { tree }
            | Call::ExpireTree { tree, .. } => vec![name_of_tree(*tree)],
            Call::Scan { .. } => Vec::new(),
        }
    }

    /// A client makes a call; false if it was refused.
    pub(crate) fn send(&mut self, place: usize, call: Call) -> bool {
        let names = self.names_of(&call);
        let is_ordered = self.clients[place].client.is_ordered();
        let moment = self.moment();
        let number = self
            .history
            .begin((place, is_ordered), call.clone(), moment);
        let asked = Asked {
            number,
            call,
            names,
            lengths: self.plan.lengths(),
        };
        let is_traced = self.plan.trace_lines > 0;
        let text = is_traced.then(|| format!("client {place} calls {number}: {:?}", asked.call));
        let caller = &mut self.clients[place];
        match caller.client.send(asked) {
            Ok(()) => {
                caller.in_flight += 1;
                self.note(12, number, || text.unwrap_or_default());
                true
            }
            Err(error) => {
                self.history.refuse();
                if let Some(error) = error {
                    self.coverage.error(&error);
                }
                false
            }
        }
    }

    /// The tag that most calls on a collection have.
    fn tag_of(&self, tree: u64) -> TreeGuard {
        TreeGuard {
            tag: u8::try_from(tree % 3).unwrap_or(0),
            version: None,
        }
    }

    /// Calls that read everything, for a handle.
    pub(crate) fn final_calls(&self) -> Vec<Call> {
        let mut calls: Vec<_> = (0..self.plan.keys)
            .map(|key| Call::Get {
                key,
                is_long: false,
            })
            .collect();
        if self.plan.mix.tree > 0 {
            for tree in 0..self.plan.trees {
                let pages = (0..2 * ELEMENTS).step_by(16);
                calls.extend(pages.map(|start| Call::Tree {
                    tree,
                    call: TreeCall::Ranks(start, start + 16, false, 16),
                    guard: self.tag_of(tree),
                }));
            }
        }
        calls
    }
}
