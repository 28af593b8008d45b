//! Requests of what writes and reads files: give a key what an entry says of it, and answer the
//! nodes of a tree as they lie.
//!
//! ```text
//! restore:    value | kind:8 | version:64 | body of the entry |
//! tree patch: value | version:64 | tree step |
//! repair:     value | kind:8 | version:64 | start of a tree step, with the root of a tree | body |
//! probe:      value | 0:8 |                    whether the key may be lost
//! repair nodes: as a tree patch
//! tree dump:  value | from:32 |
//! dumped:     version: of the tree
//!             value | tree:64 | next:32 | kind:8 | tag:8 | expires:8 | expiry:64 | tree step |
//! ```
//!
//! `next` is the number from which on the tree has further nodes, or
//! [`NO_NODE`](super::patch::NO_NODE). A dump of a key without a tree answers that it is absent.

use super::entry::{Entry, EntryBody, EntryKind, NoEntry};
use super::patch::{Patches, StepHead, put_step_head};
use crate::message::operation::{OperationKind, RequestParts, Version};
use crate::tree::{NodeNumber, TreeRoot};

/// Bytes of the answer to a dump before its tree step.
pub(crate) const DUMPED_HEAD_BYTES: usize = 23;

fn parts<'a>(kind: OperationKind, key: &'a [u8], value: &'a [u8]) -> RequestParts<'a> {
    RequestParts {
        kind,
        key,
        value,
        expected: 0,
    }
}

/// The request that gives a key what an entry says, encoded in `scratch`.
pub(crate) fn restore_parts<'a>(
    (kind, key, version): (EntryKind, &'a [u8], Version),
    body: &[u8],
    scratch: &'a mut Vec<u8>,
) -> RequestParts<'a> {
    scratch.clear();
    scratch.push(kind as u8);
    scratch.extend(version.to_le_bytes());
    scratch.extend_from_slice(body);
    parts(OperationKind::Restore, key, scratch)
}

/// What a restore says: the version, and the body.
pub(crate) fn restored(value: &[u8]) -> Result<(Version, EntryBody<'_>), NoEntry> {
    let (&kind, rest) = value.split_first().ok_or(NoEntry)?;
    let (version, body) = rest.split_first_chunk().ok_or(NoEntry)?;
    let version = u64::from_le_bytes(*version);
    let entry = Entry {
        kind: EntryKind::of(kind).ok_or(NoEntry)?,
        has_more: false,
        version,
        key: &[],
        body,
    };
    Ok((version, entry.body()?))
}

/// The request that changes nodes of a tree, encoded in `scratch`.
pub(crate) fn patch_parts<'a>(
    key: &'a [u8],
    version: Version,
    step: &[u8],
    scratch: &'a mut Vec<u8>,
) -> RequestParts<'a> {
    scratch.clear();
    scratch.extend(version.to_le_bytes());
    scratch.extend_from_slice(step);
    parts(OperationKind::TreePatch, key, scratch)
}

/// What a repair asks of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RepairBody<'a> {
    /// Whether the key may be lost.
    Probe,
    /// The key has this, if it is lost.
    Entry {
        version: Version,
        /// Of a tree, whose nodes follow.
        root: Option<TreeRoot>,
        body: EntryBody<'a>,
    },
}

/// The request that asks whether a key may be lost.
pub(crate) fn probe_parts(key: &[u8]) -> RequestParts<'_> {
    parts(OperationKind::Repair, key, &[0])
}

/// The request that gives a key that is lost what an entry says, encoded in `scratch`.
pub(crate) fn repair_parts<'a>(
    (kind, key, version): (EntryKind, &'a [u8], Version),
    (root, body): (Option<TreeRoot>, &[u8]),
    scratch: &'a mut Vec<u8>,
) -> RequestParts<'a> {
    scratch.clear();
    scratch.push(kind as u8);
    scratch.extend(version.to_le_bytes());
    put_step_head(scratch, root.map_or(StepHead::Nodes, StepHead::Root));
    scratch.extend_from_slice(body);
    parts(OperationKind::Repair, key, scratch)
}

/// What a request of a repair says.
pub(crate) fn repaired(value: &[u8]) -> Result<RepairBody<'_>, NoEntry> {
    let (&kind, rest) = value.split_first().ok_or(NoEntry)?;
    if kind == 0 {
        return Ok(RepairBody::Probe);
    }
    let (version, rest) = rest.split_first_chunk().ok_or(NoEntry)?;
    let version = u64::from_le_bytes(*version);
    let (head, patches) = Patches::parse(rest).ok_or(NoEntry)?;
    let entry = Entry {
        kind: EntryKind::of(kind).ok_or(NoEntry)?,
        has_more: false,
        version,
        key: &[],
        body: patches.rest(),
    };
    Ok(RepairBody::Entry {
        version,
        root: head.root(),
        body: entry.body()?,
    })
}

/// The request that writes nodes of a tree that are lost: a patch of whole nodes.
pub(crate) fn repair_nodes_parts<'a>(
    key: &'a [u8],
    version: Version,
    step: &[u8],
    scratch: &'a mut Vec<u8>,
) -> RequestParts<'a> {
    RequestParts {
        kind: OperationKind::RepairNodes,
        ..patch_parts(key, version, step, scratch)
    }
}

/// The version and the tree step of a patch.
pub(crate) fn patched(value: &[u8]) -> Option<(Version, &[u8])> {
    let (version, step) = value.split_first_chunk()?;
    Some((u64::from_le_bytes(*version), step))
}

/// The request for nodes of a tree, encoded in `scratch`.
pub(crate) fn dump_parts<'a>(
    key: &'a [u8],
    from: NodeNumber,
    scratch: &'a mut Vec<u8>,
) -> RequestParts<'a> {
    scratch.clear();
    scratch.extend(from.to_le_bytes());
    parts(OperationKind::TreeDump, key, scratch)
}

/// The number from which on a dump wants nodes.
pub(crate) fn dump_from(value: &[u8]) -> NodeNumber {
    let from = value.first_chunk();
    from.map_or(0, |from| u32::from_le_bytes(*from))
}

/// What a dump has answered, without its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dumped<'a> {
    /// No other tree has it.
    pub(crate) tree: u64,
    /// Where it goes on.
    pub(crate) next: NodeNumber,
    pub(crate) kind: u8,
    pub(crate) tag: u8,
    pub(crate) expiry_ms: Option<u64>,
    /// The nodes, with the root.
    pub(crate) step: &'a [u8],
}

impl<'a> Dumped<'a> {
    /// Writes all but the step.
    pub(crate) fn put_head(&self, into: &mut Vec<u8>) {
        into.extend(self.tree.to_le_bytes());
        into.extend(self.next.to_le_bytes());
        into.extend([self.kind, self.tag, u8::from(self.expiry_ms.is_some())]);
        into.extend(self.expiry_ms.unwrap_or(0).to_le_bytes());
    }

    /// An answer; `None` if the bytes are none.
    pub(crate) fn parse(value: &'a [u8]) -> Option<Self> {
        let (head, step) = value.split_first_chunk::<DUMPED_HEAD_BYTES>()?;
        let expiry_ms = u64::from_le_bytes(*head[15..].first_chunk()?);
        Some(Self {
            tree: u64::from_le_bytes(*head.first_chunk()?),
            next: u32::from_le_bytes(*head[8..].first_chunk()?),
            kind: head[12],
            tag: head[13],
            expiry_ms: (head[14] != 0).then_some(expiry_ms),
            step,
        })
    }
}
