//! Lists, sets, hashes and sorted sets.

use super::score::{exact, text};
use super::string;
use crate::listpack::Listpack;
use crate::lzf::Packer;

/// Bytes of a node of a list, and of what Redis counts beside an element.
const NODE_BYTES: usize = 8192;
const BESIDE_ELEMENT: usize = 8;
const PLAIN: u8 = 1;
const PACKED: u8 = 2;
/// Bytes from which an element is a node of its own: a node has no more than 32 bits of length.
const PLAIN_BYTES: usize = 1 << 20;

/// The nodes of a list, whose count is known at its end.
#[derive(Debug, Default)]
pub struct ListNodes {
    node: Listpack,
    nodes: u64,
}

impl ListNodes {
    /// Adds an element; `into` gets the nodes that are full.
    pub fn push(&mut self, into: &mut Vec<u8>, element: &[u8], packer: &mut Packer) {
        if element.len() >= PLAIN_BYTES {
            self.flush(into, packer);
            into.push(PLAIN);
            string(into, element, packer);
            self.nodes += 1;
            return;
        }
        if self.node.len() + element.len() + BESIDE_ELEMENT > NODE_BYTES {
            self.flush(into, packer);
        }
        self.node.push(element);
    }

    fn flush(&mut self, into: &mut Vec<u8>, packer: &mut Packer) {
        if self.node.count() > 0 {
            into.push(PACKED);
            string(into, &self.node.finish(), packer);
            self.nodes += 1;
        }
    }

    /// Ends the list; returns how many nodes it has, which comes before them.
    pub fn finish(&mut self, into: &mut Vec<u8>, packer: &mut Packer) -> u64 {
        self.flush(into, packer);
        std::mem::take(&mut self.nodes)
    }
}

/// A small hash or sorted set, as one string.
#[derive(Debug, Default)]
pub struct Pairs(Listpack);

impl Pairs {
    /// Adds a field and its value.
    pub fn push(&mut self, field: &[u8], value: &[u8]) {
        self.0.push(field);
        self.0.push(value);
    }

    /// Adds a member and its score.
    pub fn push_scored(&mut self, member: &[u8], score: f64) {
        self.0.push(member);
        match exact(score) {
            Some(number) => self.0.push_integer(number),
            None => self.0.push(text(score).as_bytes()),
        }
    }

    /// Adds the string.
    pub fn finish(&mut self, into: &mut Vec<u8>, packer: &mut Packer) {
        string(into, &self.0.finish(), packer);
    }
}

/// Adds a set of integers, which are in order.
pub fn intset(into: &mut Vec<u8>, integers: &[i64], packer: &mut Packer) {
    string(into, &crate::intset::written(integers), packer);
}

/// Adds the score of a member of a large sorted set.
pub fn binary_score(into: &mut Vec<u8>, score: f64) {
    into.extend(score.to_le_bytes());
}

/// The integer that a member of a set is.
#[must_use]
pub fn integer(member: &[u8]) -> Option<i64> {
    crate::text::integer(member)
}
