//! Streams.

use super::{length, string};
use crate::listpack::Listpack;
use crate::lzf::Packer;
use crate::value::{Id, StreamHead};

/// Bytes and entries of a node, as Redis has them unless they are set otherwise.
const NODE_BYTES: usize = 4096;
const NODE_ENTRIES: i64 = 100;
const SAME_FIELDS: i64 = 2;

/// The nodes of a stream's entries, whose count is known at its end.
#[derive(Debug, Default)]
pub struct StreamNodes {
    first: Id,
    fields: Vec<Vec<u8>>,
    entries: i64,
    node: Listpack,
    nodes: u64,
}

impl StreamNodes {
    /// Adds an entry, which comes behind the one before; `into` gets the nodes that are full.
    pub fn push<'t>(
        &mut self,
        into: &mut Vec<u8>,
        id: Id,
        texts: impl Iterator<Item = (&'t [u8], &'t [u8])> + Clone,
        packer: &mut Packer,
    ) {
        let bytes: usize = texts
            .clone()
            .map(|(field, value)| field.len() + value.len())
            .sum();
        if self.entries >= NODE_ENTRIES || self.node.len() + bytes >= NODE_BYTES {
            self.flush(into, packer);
        }
        if self.entries == 0 {
            self.first = id;
            self.fields = texts.clone().map(|(field, _)| field.to_vec()).collect();
        }
        let count = texts.clone().count();
        let has_same = count == self.fields.len()
            && (texts.clone().zip(&self.fields)).all(|((field, _), first)| field == first);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let difference =
            |one: u64, other: u64| i64::from_le_bytes(one.wrapping_sub(other).to_le_bytes());
        let node = &mut self.node;
        node.push_integer(if has_same { SAME_FIELDS } else { 0 });
        node.push_integer(difference(id.ms, self.first.ms));
        node.push_integer(difference(id.number, self.first.number));
        if !has_same {
            node.push_integer(count);
        }
        for (field, value) in texts {
            if !has_same {
                node.push(field);
            }
            node.push(value);
        }
        let elements = if has_same { count + 3 } else { 2 * count + 4 };
        node.push_integer(elements);
        self.entries += 1;
    }

    fn flush(&mut self, into: &mut Vec<u8>, packer: &mut Packer) {
        if self.entries == 0 {
            return;
        }
        let mut head = Listpack::default();
        head.push_integer(self.entries);
        head.push_integer(0);
        head.push_integer(i64::try_from(self.fields.len()).unwrap_or(i64::MAX));
        self.fields.iter().for_each(|field| head.push(field));
        head.push_integer(0);
        head.append(&self.node);
        self.node = Listpack::default();
        self.entries = 0;
        string(into, &self.first.to_bytes(), packer);
        string(into, &head.finish(), packer);
        self.nodes += 1;
    }

    /// Ends the entries; returns how many nodes they have, which comes before them.
    pub fn finish(&mut self, into: &mut Vec<u8>, packer: &mut Packer) -> u64 {
        self.flush(into, packer);
        std::mem::take(&mut self.nodes)
    }
}

fn id(into: &mut Vec<u8>, id: Id) {
    length(into, id.ms);
    length(into, id.number);
}

/// Adds what a stream is beside its entries, behind them; `first` is the ID of the first one.
/// Behind it comes the count of groups.
pub fn stream_head(into: &mut Vec<u8>, head: &StreamHead, first: Id) {
    length(into, head.entries);
    id(into, head.last_id);
    id(into, first);
    id(into, head.max_deleted);
    length(into, head.added);
}

/// Adds a group; groups are in the order of their names. Behind it comes the count of what is
/// pending.
pub fn group(
    into: &mut Vec<u8>,
    name: &[u8],
    (last_id, entries_read): (Id, Option<u64>),
    packer: &mut Packer,
) {
    string(into, name, packer);
    id(into, last_id);
    length(into, entries_read.unwrap_or(u64::MAX));
}

/// Adds an ID that is pending in a group. Behind all of them comes the count of consumers.
pub fn pending(into: &mut Vec<u8>, id: Id, (delivered_ms, deliveries): (u64, u64)) {
    into.extend(id.to_bytes());
    into.extend(delivered_ms.to_le_bytes());
    length(into, deliveries);
}

/// Adds a consumer; consumers are in the order of their names. Behind it comes the count of what is
/// pending at it.
pub fn consumer(into: &mut Vec<u8>, name: &[u8], seen_ms: u64, packer: &mut Packer) {
    string(into, name, packer);
    into.extend(seen_ms.to_le_bytes());
}

/// Adds an ID that is pending at a consumer.
pub fn owned(into: &mut Vec<u8>, id: Id) {
    into.extend(id.to_bytes());
}
