//! A value of a source's data on its way to the commands that make it.

use farcore_rdb::{Crc64, Item, KeyHead, ValueKind, payload};

use super::inlet::Outgoing;

/// Elements of one command, and bytes of them, at most: few enough for one request of the engine.
const ELEMENTS_MAX: usize = 64;
const ELEMENT_BYTES_MAX: usize = 16 << 10;

/// A value of a source's data.
#[derive(Debug)]
pub(super) struct LoadedValue {
    key: Vec<u8>,
    kind: ValueKind,
    value_type: u8,
    expiry_ms: Option<u64>,
    /// Where a stream begins in the file.
    start: Option<u64>,
    /// Elements that wait for others, one behind the other, and where each ends.
    elements: Vec<u8>,
    ends: Vec<usize>,
}

impl LoadedValue {
    pub(super) fn new(head: &KeyHead<'_>) -> Self {
        Self {
            key: head.key.to_vec(),
            kind: head.kind,
            value_type: head.value_type,
            expiry_ms: head.expiry_ms,
            start: None,
            elements: Vec::new(),
            ends: Vec::new(),
        }
    }

    pub(super) fn kind(&self) -> ValueKind {
        self.kind
    }

    /// Notes where it begins in the file; the first place counts.
    pub(super) fn note_start(&mut self, at: u64) {
        self.start.get_or_insert(at);
    }

    /// Where it begins, if its bytes must be kept.
    pub(super) fn starts_at(&self) -> Option<u64> {
        self.start
    }

    /// Takes a part of it.
    pub(super) fn add(&mut self, item: Item<'_>, out: &mut Outgoing) {
        match item {
            Item::String(text) => match self.expiry_ms {
                Some(expiry_ms) => {
                    let at = expiry_ms.to_string();
                    out.add(&[b"SET", &self.key, &text, b"PXAT", at.as_bytes()]);
                }
                None => out.add(&[b"SET", &self.key, &text]),
            },
            Item::Element(text) => self.gather(&[&text], out),
            Item::Pair(field, value) => self.gather(&[&field, &value], out),
            Item::Scored(member, score) => {
                let score = score.to_string();
                self.gather(&[score.as_bytes(), &member], out);
            }
            // Streams are restored as a whole.
            _ => {}
        }
    }

    fn gather(&mut self, parts: &[&[u8]], out: &mut Outgoing) {
        for part in parts {
            self.elements.extend_from_slice(part);
            self.ends.push(self.elements.len());
        }
        if self.ends.len() >= ELEMENTS_MAX || self.elements.len() >= ELEMENT_BYTES_MAX {
            self.send(out);
        }
    }

    /// Makes a command of the elements that wait.
    fn send(&mut self, out: &mut Outgoing) {
        let name: &[u8] = match self.kind {
            ValueKind::List => b"RPUSH",
            ValueKind::Set => b"SADD",
            ValueKind::Hash => b"HSET",
            ValueKind::SortedSet => b"ZADD",
            ValueKind::String | ValueKind::Stream => return,
        };
        if self.ends.is_empty() {
            return;
        }
        let (mut words, mut start) = (vec![name, &self.key], 0);
        for &end in &self.ends {
            words.push(&self.elements[start..end]);
            start = end;
        }
        out.add(&words);
        self.elements.clear();
        self.ends.clear();
    }

    /// Makes what is missing of it; `stored` are the bytes of a stream in the file.
    pub(super) fn end(mut self, stored: &[u8], out: &mut Outgoing) {
        self.send(out);
        let at = self.expiry_ms.unwrap_or(0).to_string();
        match (self.kind, self.expiry_ms) {
            (ValueKind::Stream, expiry_ms) => {
                let mut payload = Vec::with_capacity(1 + stored.len() + payload::FOOTER_BYTES);
                payload.push(self.value_type);
                payload.extend_from_slice(stored);
                let mut crc = Crc64::default();
                crc.add(&payload);
                payload.extend(payload::footer(crc));
                let words: [&[u8]; 5] = [b"RESTORE", &self.key, at.as_bytes(), &payload, b"ABSTTL"];
                out.add(&words[..4 + usize::from(expiry_ms.is_some())]);
            }
            (ValueKind::String, _) | (_, None) => {}
            (_, Some(_)) => out.add(&[b"PEXPIREAT", &self.key, at.as_bytes()]),
        }
    }
}
