//! The data of a simulated server: strings and lists, in shards, each change of which is noted as
//! an engine notes it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use farcore::{Fed, FedBody, TreeEffect, TreeKind, TreeOp, TreeValues, Version};
use farcore_rdb::write::{self, types};
use farcore_rdb::{Crc64, Decoder, Item, Packer, Step, Window, payload};
use xxhash_rust::xxh3::xxh3_64;

use super::rows::Rows;
use crate::types::kind::Kind;

/// What a key holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Text(Vec<u8>),
    List(VecDeque<Vec<u8>>),
}

/// What is known of a key: its value, and when it expires. `None`: it is absent.
pub(super) type State = Option<(Value, Option<u64>)>;

#[derive(Debug)]
struct Held {
    version: Version,
    value: Value,
    expiry_ms: Option<u64>,
}

/// A change of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Put(Vec<u8>, Option<u64>),
    /// As [`Change::Put`], but of a string that the feed does not have.
    Long(Vec<u8>),
    Delete,
    Expire(Option<u64>),
    Push(bool, Vec<Vec<u8>>),
    /// Removes the first elements.
    Drop(usize),
    /// The last element becomes the first one.
    Rotate,
    Set(usize, Vec<u8>),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put(value, expiry_ms) => write!(f, "is {} until {expiry_ms:?}", short(value)),
            Self::Long(value) => write!(f, "is long {}", short(value)),
            Self::Delete => write!(f, "is removed"),
            Self::Expire(expiry_ms) => write!(f, "expires at {expiry_ms:?}"),
            Self::Push(front, values) => {
                let all: Vec<_> = values.iter().map(|one| short(one)).collect();
                let end = if *front { "front" } else { "back" };
                write!(f, "gets {} at its {end}", all.join(" "))
            }
            Self::Drop(count) => write!(f, "loses {count}"),
            Self::Rotate => write!(f, "is rotated"),
            Self::Set(rank, value) => write!(f, "has {} at {rank}", short(value)),
        }
    }
}

/// A value without what fills it up.
pub(super) fn short(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches('.').to_owned()
}

/// The data.
#[derive(Debug)]
pub(super) struct Store {
    shards: Vec<BTreeMap<Vec<u8>, Held>>,
    versions: Vec<Version>,
    pub(super) rows: Arc<Rows>,
}

impl Store {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            shards: (0..shards).map(|_| BTreeMap::new()).collect(),
            versions: vec![0; shards],
            rows: Arc::new(Rows::new(shards)),
        }
    }

    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    fn shard_of(&self, key: &[u8]) -> usize {
        usize::try_from(xxh3_64(key) % self.shards.len() as u64).unwrap_or(0)
    }

    fn draw(&mut self, shard: usize) -> Version {
        self.versions[shard] += 1;
        self.versions[shard]
    }

    /// What a key holds.
    pub(super) fn state(&self, key: &[u8]) -> State {
        let held = self.shards[self.shard_of(key)].get(key)?;
        Some((held.value.clone(), held.expiry_ms))
    }

    /// A key as a replica gets it as a whole: its version, when it expires, its payload.
    pub(super) fn payload(&self, key: &[u8]) -> Option<(Version, Option<u64>, Vec<u8>)> {
        let held = self.shards[self.shard_of(key)].get(key)?;
        Some((held.version, held.expiry_ms, payload_of(&held.value)))
    }

    /// All keys from one on, and what they hold, up to some.
    pub(super) fn page(&self, from: &[u8], most: usize) -> Vec<(Vec<u8>, Version, State)> {
        let mut all: Vec<_> = self
            .shards
            .iter()
            .flat_map(|shard| shard.range(from.to_vec()..))
            .map(|(key, held)| {
                let state = Some((held.value.clone(), held.expiry_ms));
                (key.clone(), held.version, state)
            })
            .collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all.truncate(most);
        all
    }

    /// All keys and what they hold.
    pub(super) fn all(&self) -> BTreeMap<Vec<u8>, State> {
        let held = self.shards.iter().flatten();
        held.map(|(key, held)| (key.clone(), Some((held.value.clone(), held.expiry_ms))))
            .collect()
    }

    /// Removes all keys.
    pub(super) fn clear(&mut self) {
        for shard in 0..self.shards.len() {
            self.shards[shard].clear();
            let version = self.draw(shard);
            self.note(shard, (version, b"", false), FedBody::Clear);
        }
    }

    /// Makes changes that are seen at once. `bare`: the keys of one shard are changed in one step,
    /// without a section. `others`: a section has all shards.
    pub(super) fn together(
        &mut self,
        changes: &[(Vec<u8>, Change)],
        (is_bare, has_all): (bool, bool),
    ) -> Result<(), &'static str> {
        let mut parts: Vec<Vec<&(Vec<u8>, Change)>> = vec![Vec::new(); self.shards.len()];
        for change in changes {
            parts[self.shard_of(&change.0)].push(change);
        }
        let mut shards: Vec<_> = (0..parts.len()).collect();
        if !has_all {
            shards.retain(|shard| !parts[*shard].is_empty());
        }
        if let (true, [shard]) = (is_bare, &shards[..]) {
            let all = &parts[*shard];
            for (place, (key, change)) in all.iter().enumerate() {
                self.change(key, change, place + 1 < all.len())?;
            }
            return Ok(());
        }
        let number = self.rows.draw_section();
        let count = u16::try_from(shards.len()).unwrap_or(u16::MAX);
        for shard in shards {
            let begins = FedBody::SectionBegins {
                number,
                shards: count,
            };
            self.note(shard, (0, b"", false), begins);
            for (key, change) in &parts[shard] {
                self.change(key, change, false)?;
            }
            self.note(shard, (0, b"", false), FedBody::SectionEnds);
        }
        Ok(())
    }

    fn note(&self, shard: usize, (version, key, has_more): (u64, &[u8], bool), body: FedBody<'_>) {
        let fed = Fed {
            version,
            key,
            has_more,
            body,
        };
        self.rows.note(shard, &fed);
    }

    /// Makes a change.
    ///
    /// # Errors
    /// The key holds something else.
    pub(super) fn change(
        &mut self,
        key: &[u8],
        change: &Change,
        has_more: bool,
    ) -> Result<(), &'static str> {
        let shard = self.shard_of(key);
        let version = self.versions[shard] + 1;
        let head = (version, key, has_more);
        let held = self.shards[shard].get(key);
        let put = |value: &[u8], expiry_ms| Held {
            version,
            value: Value::Text(value.to_vec()),
            expiry_ms,
        };
        let (new, body) = match change {
            Change::Put(value, expiry_ms) => {
                let body = FedBody::Put {
                    value,
                    expiry_ms: *expiry_ms,
                };
                (Some(put(value, *expiry_ms)), body)
            }
            Change::Long(value) => (Some(put(value, None)), FedBody::Long),
            Change::Delete if held.is_none() => return Ok(()),
            Change::Delete => (None, FedBody::Delete),
            Change::Expire(expiry_ms) => {
                let Some(held) = held else {
                    return Ok(());
                };
                let new = Held {
                    version,
                    value: held.value.clone(),
                    expiry_ms: *expiry_ms,
                };
                let body = FedBody::Expire {
                    expiry_ms: *expiry_ms,
                };
                (Some(new), body)
            }
            _ => return self.change_list(shard, head, change),
        };
        self.note(shard, head, body);
        self.versions[shard] = version;
        match new {
            Some(new) => drop(self.shards[shard].insert(key.to_vec(), new)),
            None => drop(self.shards[shard].remove(key)),
        }
        Ok(())
    }

    fn change_list(
        &mut self,
        shard: usize,
        (version, key, has_more): (Version, &[u8], bool),
        change: &Change,
    ) -> Result<(), &'static str> {
        let held = self.shards[shard].get(key);
        let (mut list, expiry_ms) = match held {
            None => (VecDeque::new(), None),
            Some(Held {
                value: Value::List(list),
                expiry_ms,
                ..
            }) => (list.clone(), *expiry_ms),
            Some(_) => return Err("WRONGTYPE it is no list"),
        };
        let before = list.len() as u64;
        let begins = held.is_none();
        let mut values: Vec<&[u8]> = Vec::new();
        let mut removed = 0;
        let op = match change {
            Change::Push(front, pushed) => {
                for value in pushed {
                    values.push(value);
                    match front {
                        true => list.push_front(value.clone()),
                        false => list.push_back(value.clone()),
                    }
                }
                TreeOp::Push {
                    front: *front,
                    exists: false,
                    replaces: false,
                    values: TreeValues::Slices(&values),
                }
            }
            _ if list.is_empty() => return Ok(()),
            Change::Drop(count) => {
                removed = list.drain(..list.len().min(*count)).count() as u64;
                TreeOp::RemoveByRank {
                    start: 0,
                    end: *count as u64,
                }
            }
            Change::Rotate => {
                list.rotate_right(1);
                TreeOp::Rotate { last: true }
            }
            Change::Set(rank, value) => {
                let Some(at) = list.get_mut(*rank) else {
                    return Ok(());
                };
                at.clone_from(value);
                TreeOp::SetAt {
                    rank: i64::try_from(*rank).unwrap_or(0),
                    value,
                }
            }
            _ => return Err("ERR no such change"),
        };
        let after = list.len() as u64;
        let effect = TreeEffect {
            kind: TreeKind::List,
            tag: Kind::List.tag(),
            begins,
            before,
            after,
            op,
            answer: &removed.to_le_bytes(),
            removed: b"",
        };
        self.note(shard, (version, key, has_more), FedBody::Tree(effect));
        self.versions[shard] = version;
        self.keep(shard, (key, version), (list, expiry_ms));
        Ok(())
    }

    fn keep(
        &mut self,
        shard: usize,
        (key, version): (&[u8], Version),
        (list, expiry_ms): (VecDeque<Vec<u8>>, Option<u64>),
    ) {
        if list.is_empty() {
            self.shards[shard].remove(key);
            return;
        }
        let new = Held {
            version,
            value: Value::List(list),
            expiry_ms,
        };
        self.shards[shard].insert(key.to_vec(), new);
    }

    /// Stores a key from its payload.
    pub(super) fn restore(
        &mut self,
        key: &[u8],
        bytes: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<(), &'static str> {
        let value = value_of(bytes).ok_or("ERR a malformed payload")?;
        self.change(key, &Change::Delete, false)?;
        match value {
            Value::Text(text) => self.change(key, &Change::Put(text, expiry_ms), false),
            Value::List(list) => {
                let push = Change::Push(false, list.into());
                self.change(key, &push, false)?;
                match expiry_ms {
                    Some(_) => self.change(key, &Change::Expire(expiry_ms), false),
                    None => Ok(()),
                }
            }
        }
    }
}

fn payload_of(value: &Value) -> Vec<u8> {
    let (mut bytes, mut packer) = (Vec::new(), Packer::default());
    match value {
        Value::Text(text) => {
            bytes.push(types::STRING);
            write::string(&mut bytes, text, &mut packer);
        }
        Value::List(list) => {
            // A list as Redis wrote it long ago: a count, and strings.
            bytes.push(1);
            write::length(&mut bytes, list.len() as u64);
            for element in list {
                write::string(&mut bytes, element, &mut packer);
            }
        }
    }
    let mut crc = Crc64::default();
    crc.add(&bytes);
    bytes.extend(payload::footer(crc));
    bytes
}

fn value_of(bytes: &[u8]) -> Option<Value> {
    let (summed, _) = payload::split(bytes)?;
    let (kind, body) = payload::value(summed)?;
    let mut decoder = Decoder::new(kind, 0).ok()?;
    let mut list = VecDeque::new();
    loop {
        match decoder.next(Window::whole(body)).ok()? {
            Step::Item(Item::String(text)) => return Some(Value::Text(text.to_vec())),
            Step::Item(Item::Element(element)) => list.push_back(element.to_vec()),
            Step::Item(_) | Step::Busy => {}
            Step::Room(bytes) => decoder.allow(bytes),
            Step::End => return Some(Value::List(list)),
            Step::More => return None,
        }
    }
}
