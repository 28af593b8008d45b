//! The journal: what changes in a shard, as files keep it.
//!
//! A shard appends an *entry* for each change of a record, a tree or a long value, in the order of
//! its versions. The core passes the bytes on to a file. A *base* is a file of entries too, which
//! says what a shard holds. So what a shard held is a base and the journal since the base was
//! begun, and what reads them applies an entry if its version is greater than that of what it is
//! about.
//!
//! ```text
//! entry: | kind:8 | flags:8 | key bytes:16 | body bytes:32 | version:64 | key | body |
//! ```
//!
//! - J1: the entries of one key are in the order of their versions.
//! - J2: the entries of one step of a shard follow each other, and all but the last have the flag
//!   `MORE`: a reader applies all of them or none.
//! - J3: an entry says what is, not what was done: the whole value of a key, the bytes of a node.
//!   Only a touch says what changes in a node, and it follows an entry with the node as it was.

mod entry;
mod fed;
mod journals;
mod patch;
mod patched_nodes;
mod restore;

pub(crate) use self::entry::{Entry, EntryBody, EntryKind};
pub use self::fed::{Fed, FedBody, TreeEffect};
pub(crate) use self::journals::Journals;
pub(crate) use self::patch::{
    NO_NODE, NodePatch, PatchBranch, Patches, PutPatch, StepHead, put_step_head,
};
pub(crate) use self::patched_nodes::{PatchedNode, PatchedNodes};

pub(crate) use self::restore::{
    Dumped, RepairBody, dump_from, dump_parts, patch_parts, patched, probe_parts,
    repair_nodes_parts, repair_parts, repaired, restore_parts, restored,
};
use crate::message::operation::Version;

/// Bytes that wait for the core to pass them on, from which on a shard accepts no further changes.
const WAITING_MAX: usize = 1 << 20;

/// Entries that a shard has appended and its core has not passed on yet.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    bytes: Vec<u8>,
    /// Bytes at the start that were passed on.
    passed: usize,
    /// A step of several entries is under way; where its last entry begins.
    step: Option<Option<usize>>,
    /// All entries belong to one step until it is ended; whether there is one.
    span: Option<bool>,
    /// Sections are no steps: what is done under one is answered before its end, and must be
    /// found.
    has_no_spans: bool,
    /// All bytes that were ever appended.
    appended: u64,
}

impl Journal {
    /// Begins a step of several entries.
    pub(crate) fn begin_step(&mut self) {
        self.step = Some(None);
    }

    /// Ends it.
    pub(crate) fn end_step(&mut self) {
        self.step = None;
    }

    /// Has all entries from now on belong to one step: those of a section.
    pub(crate) fn begin_span(&mut self) {
        if !self.has_no_spans {
            self.span = Some(false);
        }
    }

    /// Sets whether sections are steps.
    pub(crate) fn set_spans(&mut self, has_spans: bool) {
        self.has_no_spans = !has_spans;
    }

    /// Ends it, if one was begun; true if it was.
    pub(crate) fn end_span(&mut self) -> bool {
        let Some(has_any) = self.span.take() else {
            return false;
        };
        if has_any {
            self.append(EntryKind::End, &[], 0, |_| {});
        }
        true
    }

    /// Appends an entry, whose body `fill` writes.
    pub(crate) fn append(
        &mut self,
        kind: EntryKind,
        key: &[u8],
        version: Version,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.bytes.len();
        let last = self.step.as_mut().and_then(|last| last.replace(start));
        if let Some(last) = last {
            Entry::mark_more(&mut self.bytes[last..]);
        }
        Entry::append(&mut self.bytes, (kind, key, version), fill);
        if let Some(has_any) = &mut self.span {
            *has_any = true;
            Entry::mark_more(&mut self.bytes[start..]);
        }
        self.appended += (self.bytes.len() - start) as u64;
    }

    /// What waits to be passed on: whole steps.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.bytes[self.passed..]
    }

    /// Notes that some bytes were passed on.
    pub(crate) fn pass(&mut self, bytes: usize) {
        self.passed += bytes;
        if self.passed == self.bytes.len() {
            self.bytes.clear();
            self.passed = 0;
            self.bytes.shrink_to(WAITING_MAX);
        } else if self.passed > WAITING_MAX {
            self.bytes.drain(..self.passed);
            self.passed = 0;
        }
    }

    /// True if so much waits that no further change is accepted.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() - self.passed >= WAITING_MAX
    }

    /// Takes all that waits, and leaves an empty buffer in its place.
    pub(crate) fn take_waiting(&mut self, spare: Vec<u8>) -> Vec<u8> {
        debug_assert!(spare.is_empty() && self.passed == 0);
        std::mem::replace(&mut self.bytes, spare)
    }

    /// All bytes that were ever appended.
    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_step_are_marked_but_the_last() {
        let mut journal = Journal::default();
        journal.append(EntryKind::Put, b"one", 1, |body| body.extend(b"value"));
        journal.begin_step();
        journal.append(EntryKind::Delete, b"two", 2, |_| {});
        journal.append(EntryKind::Clear, b"", 3, |_| {});
        journal.end_step();
        journal.append(EntryKind::Delete, b"four", 4, |_| {});
        let mut rest = journal.waiting();
        let mut seen = Vec::new();
        while let Ok(Some((entry, bytes))) = Entry::parse(rest) {
            seen.push((entry.version, entry.has_more, entry.key.to_vec()));
            rest = &rest[bytes..];
        }
        assert!(rest.is_empty());
        let expected = [
            (1, false, b"one".to_vec()),
            (2, true, b"two".to_vec()),
            (3, false, Vec::new()),
            (4, false, b"four".to_vec()),
        ];
        assert_eq!(seen, expected);
        assert_eq!(journal.appended(), journal.waiting().len() as u64);
        let half = journal.waiting().len() / 2;
        journal.pass(half);
        assert_eq!((journal.waiting().len() + half) as u64, journal.appended());
        journal.pass(journal.waiting().len());
        assert!(journal.waiting().is_empty() && !journal.is_full());
    }
}
