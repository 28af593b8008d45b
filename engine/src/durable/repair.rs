//! Brings back what a memory node has lost: finds in the files of a store what its shards have
//! lost, and gives them that.
//!
//! ```text
//! logs: keys that may be lost -> what the logs say of each last: its version, the nodes they touch
//! base: of those the logs do not change, all; of the others, the nodes that the logs touch, kept
//! logs: values at the last version; touched nodes, changed one step after the other
//! then: the trees that were kept, the root of each last
//! ```
//!
//! Shards are asked which keys of a file may be lost, and answer from their indexes alone. What is
//! kept has a bound: where it is met, the keys are parted in two by their hash, and the files are
//! read for each part.
//!
//! - I1: what a shard is sent for a key is the newest state that the files have. Before that, the
//!   key stays as it is: unavailable.
//! - I2: all files were finished after the last loss that is repaired, so what they say of a lost
//!   key last is what it was.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::load::FileKeys;
use super::log_ends::Until;
use super::log_sequence::Files;
use super::repair_batch::RepairRequest;
use super::steps::{Steps, entries, since_of};
use super::tree_versions::TreeVersions;
use crate::error::{Error, Result, StorageError};
use crate::journal::{
    Entry, EntryBody, EntryKind, NodePatch, PatchedNodes, Patches, PutPatch, StepHead,
    put_step_head,
};
use crate::message::hash::Hasher128;
use crate::message::operation::Version;
use crate::storage::{FileKind, SuperBlock};
use crate::tree::{NodeNumber, Nodes, TreeRoot, Unread};

/// Bytes of requests that are sent at once, about.
const BATCH_BYTES: usize = 256 << 10;
/// Requests that are sent at once, at most.
const BATCH_ITEMS: usize = 4096;
/// Bytes of nodes that one request carries, about.
const STEP_BYTES: usize = 64 << 10;
/// Bytes that are kept of keys that are lost, about.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Bits by which keys are parted, at most: who chose keys of one hash is not followed further.
const PART_BITS_MAX: u32 = 32;
/// Bytes of a key in a map, beside its own.
const KEY_BYTES: usize = 200;
/// Bytes of a node's number in a set.
const NUMBER_BYTES: usize = 16;

/// A file that is read.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) kind: FileKind,
    pub(super) path: PathBuf,
    pub(super) until: Until,
    /// A log that this process has finished: one without an end lacks what came after.
    pub(super) is_ended: bool,
}

/// Why a part is not read to its end.
enum Halted {
    /// More would be kept than may be.
    TooMuch,
    Failed(Error),
}

type Outcome = std::result::Result<(), Halted>;

impl<E: Into<Error>> From<E> for Halted {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The keys whose hashes begin with these bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Part {
    bits: u32,
    value: u64,
}

impl Part {
    fn has(self, key: &[u8]) -> bool {
        self.bits == 0 || Hasher128::new(0).hash(key).index.0 >> (64 - self.bits) == self.value
    }

    /// The first half of it.
    fn half(self) -> Self {
        Self {
            bits: self.bits + 1,
            value: self.value << 1,
        }
    }

    /// The one that follows, as large as what is left of the keys allows.
    fn next(mut self) -> Option<Self> {
        while self.value & 1 == 1 {
            (self.bits, self.value) = (self.bits - 1, self.value >> 1);
        }
        (self.bits > 0).then_some(Self {
            value: self.value + 1,
            ..self
        })
    }
}

/// What the logs say that a key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum What {
    /// What the base says.
    #[default]
    OfBase,
    Gone,
    Value,
    Long,
    Tree,
}

/// The last that the logs say of a key.
#[derive(Debug, Default)]
struct Known {
    what: What,
    /// Since which version it is that.
    version: Version,
    /// When it expires, if that was changed, and the version of that.
    expiry: Option<(Version, Option<u64>)>,
    /// Of a tree, with the version of the last step.
    root: Option<(Version, TreeRoot)>,
    touched: HashSet<NodeNumber>,
}

/// All keys of a shard were removed.
struct Cleared {
    keys: FileKeys,
    version: Version,
}

/// A tree whose root, and nodes that the logs touch, are kept.
#[derive(Debug)]
struct KeptTree {
    version: Version,
    root: NodeNumber,
    nodes: HashMap<NodeNumber, Vec<u8>>,
}

impl Nodes for KeptTree {
    fn read(&self, node: NodeNumber) -> std::result::Result<&[u8], Unread> {
        let bytes = self.nodes.get(&node);
        bytes.map(|bytes| &**bytes).ok_or(Unread::Failed)
    }

    fn fresh(&self, before: Option<NodeNumber>) -> NodeNumber {
        before.map_or(0, |before| before + 1)
    }
}

/// A tree of a base that is begun and has no root yet.
#[derive(Clone, Copy, Debug)]
struct Begun {
    kind: u8,
    tag: u8,
    expiry_ms: Option<u64>,
}

/// A long value whose pieces are being read.
#[derive(Debug)]
struct KeptLong {
    key: Box<[u8]>,
    length: u64,
    bytes: Vec<u8>,
}

/// What is done with each entry of a file.
type Take<R> = fn(&mut R, &SuperBlock, (Entry<'_>, EntryBody<'_>)) -> Outcome;

/// A repair under way.
pub(super) struct Repairer<'a, S> {
    files: Files<'a>,
    /// Sends requests to the shards, and returns which were answered with yes.
    send: S,
    part: Part,
    known: HashMap<Box<[u8]>, Known>,
    cleared: Vec<Cleared>,
    /// Of the bytes that are being read: further keys that may be lost.
    lost: HashSet<Box<[u8]>>,
    versions: TreeVersions,
    begun: Option<(Box<[u8]>, Begun)>,
    trees: HashMap<Box<[u8]>, KeptTree>,
    /// The tree of the base that was read last.
    last: Option<Box<[u8]>>,
    longs: HashMap<(u16, u64), KeptLong>,
    /// The file that is read, and where its last block begins.
    path: PathBuf,
    at: u64,
    /// Bytes of all that is kept, about.
    kept_bytes: usize,
    out: Vec<RepairRequest>,
    out_bytes: usize,
    /// Keys that were lost and are not any more.
    repaired: u64,
}

impl<'a, S> Repairer<'a, S>
where
    S: AsyncFnMut(Vec<RepairRequest>) -> Result<Vec<bool>>,
{
    /// Repairs what is lost; returns how many keys were.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged; something was lost meanwhile; a shard has no room.
    /// What was restored until then stays.
    pub(super) async fn run(sources: &[Source], files: Files<'a>, send: S) -> Result<u64> {
        let mut repairer = Self {
            files,
            send,
            part: Part::default(),
            known: HashMap::new(),
            cleared: Vec::new(),
            lost: HashSet::new(),
            versions: TreeVersions::default(),
            begun: None,
            trees: HashMap::new(),
            last: None,
            longs: HashMap::new(),
            path: PathBuf::new(),
            at: 0,
            kept_bytes: 0,
            out: Vec::new(),
            out_bytes: 0,
            repaired: 0,
        };
        loop {
            repairer.forget();
            repairer.part = match repairer.run_part(sources).await {
                Ok(()) => match repairer.part.next() {
                    Some(part) => part,
                    None => return Ok(repairer.repaired),
                },
                Err(Halted::TooMuch) => repairer.part.half(),
                Err(Halted::Failed(error)) => return Err(error),
            };
        }
    }

    fn forget(&mut self) {
        self.known.clear();
        self.cleared.clear();
        self.versions = TreeVersions::default();
        self.trees.clear();
        self.longs.clear();
        self.out.clear();
        (self.begun, self.last) = (None, None);
        (self.kept_bytes, self.out_bytes) = (0, 0);
    }

    async fn run_part(&mut self, sources: &[Source]) -> Outcome {
        let of = |kind| sources.iter().filter(move |source| source.kind == kind);
        for source in of(FileKind::Log) {
            self.read(source, true, Self::survey).await?;
        }
        for source in of(FileKind::Base) {
            self.read(source, true, Self::take_from_base).await?;
        }
        for source in of(FileKind::Log) {
            self.read(source, false, Self::take_from_log).await?;
        }
        let kept: Vec<_> = self.trees.keys().cloned().collect();
        for key in kept {
            self.finish_tree(&key)?;
            self.send_if_full().await?;
        }
        self.send_all().await
    }

    /// Reads a file; `probes`: shards are asked which of its keys may be lost.
    async fn read(&mut self, source: &Source, probes: bool, take: Take<Self>) -> Outcome {
        let (directory, key) = self.files;
        let reader = match directory.reader(&source.path, key) {
            Ok(reader) => reader,
            // Killed before its first block was durable: it holds nothing.
            Err(StorageError::NotBegun { .. })
                if source.kind == FileKind::Log && !source.is_ended =>
            {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if source.until == Until::Start {
            return Ok(());
        }
        self.path.clone_from(&source.path);
        let of = reader.super_block().clone();
        let mut steps = Steps::new(reader, &source.path);
        while let Some((at, bytes)) = steps.next()? {
            self.at = at;
            if probes {
                self.probe(bytes).await?;
            }
            for (entry, body) in entries(bytes) {
                if let EntryBody::Mark { number } = body
                    && source.until == Until::Mark(number)
                {
                    return self.send_all().await;
                }
                take(self, &of, (entry, body))?;
            }
            self.send_if_full().await?;
            let can_part = self.part.bits < PART_BITS_MAX && self.known.len() > 1;
            if self.kept_bytes > KEPT_BYTES_MAX && can_part {
                return Err(Halted::TooMuch);
            }
        }
        if source.is_ended && !steps.is_finished() {
            return Err(Error::JournalFailed.into());
        }
        if source.kind == FileKind::Base {
            self.end_base_tree()?;
            self.versions.settle(since_of(&of));
            // Those that went while the base was written.
            self.longs.clear();
        }
        self.send_all().await
    }

    /// Asks which keys of steps may be lost.
    async fn probe(&mut self, steps: &[u8]) -> Outcome {
        self.lost.clear();
        let mut asked = HashSet::new();
        for (Entry { key, .. }, _) in entries(steps) {
            if !key.is_empty() && self.part.has(key) && !self.known.contains_key(key) {
                asked.insert(key);
            }
        }
        let keys: Vec<Box<[u8]>> = asked.into_iter().map(Box::from).collect();
        for keys in keys.chunks(BATCH_ITEMS) {
            let probes = keys.iter().cloned().map(|key| RepairRequest::Probe { key });
            let answers = (self.send)(probes.collect()).await?;
            let lost = keys.iter().zip(answers).filter(|&(_, is_lost)| is_lost);
            self.lost.extend(lost.map(|(key, _)| key.clone()));
        }
        Ok(())
    }

    fn push(&mut self, item: RepairRequest) {
        self.out_bytes += item.bytes();
        self.out.push(item);
    }

    async fn send_if_full(&mut self) -> Outcome {
        if self.out_bytes < BATCH_BYTES && self.out.len() < BATCH_ITEMS {
            return Ok(());
        }
        self.send_all().await
    }

    async fn send_all(&mut self) -> Outcome {
        if self.out.is_empty() {
            return Ok(());
        }
        let items = std::mem::take(&mut self.out);
        self.out_bytes = 0;
        // A tree counts with its root, which is the last of it.
        let counts: Vec<bool> = items
            .iter()
            .map(|item| match item {
                RepairRequest::Probe { .. } => false,
                RepairRequest::Entry { root, .. } => root.is_none(),
                RepairRequest::Nodes { is_last, .. } => *is_last,
                RepairRequest::Long { .. } => true,
            })
            .collect();
        let answers = (self.send)(items).await?;
        let repaired = answers.into_iter().zip(counts);
        self.repaired += repaired
            .filter(|&(is_done, counts)| is_done && counts)
            .count() as u64;
        Ok(())
    }

    /// A key of the logs, if it may be lost.
    fn known_of(&mut self, key: &[u8]) -> Option<&mut Known> {
        if !self.known.contains_key(key) {
            if !self.lost.contains(key) {
                return None;
            }
            self.kept_bytes += key.len() + KEY_BYTES;
            self.known.insert(key.into(), Known::default());
        }
        self.known.get_mut(key)
    }

    /// Notes what a log says.
    fn survey(&mut self, of: &SuperBlock, (entry, body): (Entry<'_>, EntryBody<'_>)) -> Outcome {
        let version = entry.version;
        if body == EntryBody::Clear {
            let keys = FileKeys::of(of);
            for (_, known) in self.known.iter_mut().filter(|(key, _)| keys.have(key)) {
                *known = Known::of(What::Gone, version);
            }
            self.cleared.push(Cleared { keys, version });
            return Ok(());
        }
        let Some(known) = self.known_of(entry.key) else {
            return Ok(());
        };
        match body {
            EntryBody::Put { .. } => *known = Known::of(What::Value, version),
            EntryBody::Delete => *known = Known::of(What::Gone, version),
            EntryBody::LongPut { expiry_ms, .. } => {
                *known = Known::of(What::Long, version);
                known.expiry = Some((version, expiry_ms));
            }
            EntryBody::TreeBegin { expiry_ms, .. } => {
                *known = Known::of(What::Tree, version);
                known.expiry = Some((version, expiry_ms));
            }
            EntryBody::Expire { expiry_ms } => known.expiry = Some((version, expiry_ms)),
            EntryBody::TreeStep { patches } => {
                let Some((head, patches)) = Patches::parse(patches) else {
                    return Ok(());
                };
                if let Some(root) = head.root() {
                    known.root = Some((version, root));
                }
                let before = known.touched.len();
                for patch in patches.flatten() {
                    known.touch(patch);
                }
                let more = known.touched.len() - before;
                self.kept_bytes += more * NUMBER_BYTES;
            }
            EntryBody::Clear
            | EntryBody::Mark { .. }
            | EntryBody::End
            | EntryBody::LongBegin { .. }
            | EntryBody::LongPiece { .. }
            | EntryBody::LongEnd { .. } => {}
        }
        Ok(())
    }

    /// True if the logs say nothing newer of a key than a base does.
    fn is_newest(&self, key: &[u8], version: Version) -> bool {
        let known = self.known.get(key);
        known.is_none_or(|known| known.what == What::OfBase || known.version <= version)
            && (known.is_some() || self.lost.contains(key))
            && !self
                .cleared
                .iter()
                .any(|cleared| cleared.version >= version && cleared.keys.have(key))
    }

    fn take_from_base(
        &mut self,
        of: &SuperBlock,
        (entry, body): (Entry<'_>, EntryBody<'_>),
    ) -> Outcome {
        let (key, version) = (entry.key, entry.version);
        if self.last.as_deref().is_some_and(|last| last != key) {
            self.end_base_tree()?;
        }
        match body {
            EntryBody::Put { .. } if self.is_newest(key, version) => self.put(&entry),
            EntryBody::TreeBegin {
                kind,
                tag,
                expiry_ms,
            } => {
                self.drop_tree(key);
                if self.is_newest(key, version) {
                    let begun = Begun {
                        kind,
                        tag,
                        expiry_ms,
                    };
                    self.begun = Some((key.into(), begun));
                }
            }
            EntryBody::TreeStep { patches } => {
                self.take_page((key, version), patches, since_of(of));
            }
            // It has gone while the base was written: the logs have what became of it.
            EntryBody::Delete => self.drop_tree(key),
            EntryBody::LongBegin { id, length } if self.is_newest(key, version) => {
                self.begin_long((of.shard, id), key, length);
            }
            EntryBody::LongPiece { id, bytes } => self.add_piece((of.shard, id), bytes),
            EntryBody::LongPut { id, expiry_ms } if self.is_newest(key, version) => {
                self.put_long((of.shard, id), (key, version), expiry_ms)?;
            }
            // The logs have it too.
            EntryBody::Expire { .. } => {}
            _ => {}
        }
        Ok(())
    }

    fn put(&mut self, entry: &Entry<'_>) {
        self.push(RepairRequest::Entry {
            kind: entry.kind,
            key: entry.key.into(),
            version: entry.version,
            root: None,
            body: entry.body.to_vec(),
        });
    }

    /// Forgets what was kept of a tree.
    fn drop_tree(&mut self, key: &[u8]) {
        if let Some(tree) = self.trees.remove(key) {
            self.kept_bytes -= tree.nodes.values().map(Vec::len).sum::<usize>();
            self.versions.forget(key);
        }
        self.begun = None;
        self.last = None;
    }

    /// Begins a tree in its shard.
    fn begin_tree(&mut self, (key, version): (&[u8], Version), begun: Begun, root: TreeRoot) {
        let mut body = vec![begun.kind, begun.tag];
        body.extend(begun.expiry_ms.iter().flat_map(|at_ms| at_ms.to_le_bytes()));
        self.push(RepairRequest::Entry {
            kind: EntryKind::TreeBegin,
            key: key.into(),
            version,
            root: Some(root),
            body,
        });
        let tree = KeptTree {
            version,
            root: root.node,
            nodes: HashMap::new(),
        };
        self.trees.insert(key.into(), tree);
    }

    /// Takes a page of a tree of a base.
    fn take_page(&mut self, (key, version): (&[u8], Version), step: &[u8], since: Version) {
        let Some((head, patches)) = Patches::parse(step) else {
            return;
        };
        let known = self.known.get(key);
        if let StepHead::Root(root) = head
            && let Some((_, mut begun)) = self.begun.take_if(|(of, _)| **of == *key)
        {
            let newer = known
                .and_then(|known| known.root)
                .filter(|&(at, _)| at > version);
            let (at, root) = newer.unwrap_or((version, root));
            if let Some((at, expiry_ms)) = known.and_then(|known| known.expiry)
                && at > version
            {
                begun.expiry_ms = expiry_ms;
            }
            self.begin_tree((key, at), begun, root);
            self.last = Some(key.into());
        }
        let Some(tree) = self.trees.get_mut(key) else {
            return;
        };
        self.versions.note_page(key, version, head, since);
        let known = self.known.get(key);
        let is_kept = |node: NodeNumber| {
            node == tree.root || known.is_some_and(|known| known.touched.contains(&node))
        };
        let (mut whole, mut kept) = (Vec::new(), Vec::new());
        for patch in patches.flatten() {
            match patch {
                NodePatch::Is { node, bytes } if is_kept(node) => kept.push((node, bytes.to_vec())),
                NodePatch::Is { node, bytes } => put_node(&mut whole, node, bytes),
                NodePatch::Gone { .. } | NodePatch::Touch { .. } => {}
            }
        }
        let at = tree.version;
        for (node, bytes) in kept {
            self.kept_bytes += bytes.len();
            tree.nodes.insert(node, bytes);
        }
        self.push_nodes((key, at), whole, false);
    }

    /// The base says no more of a tree: it is finished, unless the logs change it.
    fn end_base_tree(&mut self) -> Outcome {
        if let Some(key) = self.last.take()
            && !self.known.contains_key(&key)
        {
            self.finish_tree(&key)?;
        }
        Ok(())
    }

    /// Sends the nodes of a tree that were kept, the root last.
    fn finish_tree(&mut self, key: &[u8]) -> Outcome {
        let Some(mut tree) = self.trees.remove(key) else {
            return Ok(());
        };
        self.kept_bytes -= tree.nodes.values().map(Vec::len).sum::<usize>();
        let version = tree.version;
        let Some(root) = tree.nodes.remove(&tree.root) else {
            return Err(self.damaged("a tree has no root"));
        };
        let mut step = Vec::new();
        for (node, bytes) in tree.nodes {
            put_node(&mut step, node, &bytes);
            if step.len() >= STEP_BYTES {
                self.push_nodes((key, version), std::mem::take(&mut step), false);
            }
        }
        self.push_nodes((key, version), step, false);
        let mut step = Vec::new();
        put_node(&mut step, tree.root, &root);
        self.push_nodes((key, version), step, true);
        Ok(())
    }

    /// Sends nodes of a tree, if there are any.
    fn push_nodes(&mut self, (key, version): (&[u8], Version), step: Vec<u8>, is_last: bool) {
        if step.is_empty() {
            return;
        }
        self.push(RepairRequest::Nodes {
            key: key.into(),
            version,
            step,
            is_last,
        });
    }

    fn begin_long(&mut self, id: (u16, u64), key: &[u8], length: u64) {
        let long = KeptLong {
            key: key.into(),
            length,
            bytes: Vec::new(),
        };
        self.longs.insert(id, long);
    }

    fn add_piece(&mut self, id: (u16, u64), bytes: &[u8]) {
        if let Some(long) = self.longs.get_mut(&id) {
            long.bytes.extend_from_slice(bytes);
            self.kept_bytes += bytes.len();
        }
    }

    fn put_long(
        &mut self,
        id: (u16, u64),
        (key, version): (&[u8], Version),
        expiry_ms: Option<u64>,
    ) -> Outcome {
        // One that was begun before the logs were: the base knows more.
        let Some(long) = self.longs.remove(&id) else {
            return Ok(());
        };
        if long.bytes.len() as u64 != long.length || *long.key != *key {
            return Err(self.damaged("a long value is not whole"));
        }
        self.kept_bytes = self.kept_bytes.saturating_sub(long.bytes.len());
        let changed = self.known.get(key).and_then(|known| known.expiry);
        let changed = changed.filter(|&(at, _)| at > version);
        self.push(RepairRequest::Long {
            key: key.into(),
            version,
            bytes: long.bytes,
            expiry_ms: changed.map_or(expiry_ms, |(_, expiry_ms)| expiry_ms),
        });
        Ok(())
    }

    fn drop_long(&mut self, id: (u16, u64)) {
        if let Some(long) = self.longs.remove(&id) {
            self.kept_bytes = self.kept_bytes.saturating_sub(long.bytes.len());
        }
    }

    fn damaged(&self, reason: &'static str) -> Halted {
        let (path, at) = (self.path.clone(), self.at);
        StorageError::Corrupt { path, at, reason }.into()
    }

    fn take_from_log(
        &mut self,
        of: &SuperBlock,
        (entry, body): (Entry<'_>, EntryBody<'_>),
    ) -> Outcome {
        let (key, version) = (entry.key, entry.version);
        match body {
            EntryBody::LongPiece { id, bytes } => self.add_piece((of.shard, id), bytes),
            EntryBody::LongBegin { id, .. } | EntryBody::LongEnd { id } => {
                self.drop_long((of.shard, id));
            }
            _ => {}
        }
        let Some(known) = self.known.get(key) else {
            return Ok(());
        };
        let is_last = known.version == version;
        match body {
            EntryBody::Put { .. } if known.what == What::Value && is_last => self.put(&entry),
            EntryBody::LongBegin { id, length } if known.what == What::Long => {
                self.begin_long((of.shard, id), key, length);
            }
            EntryBody::LongPut { id, expiry_ms } if known.what == What::Long && is_last => {
                self.put_long((of.shard, id), (key, version), expiry_ms)?;
            }
            EntryBody::LongPut { id, .. } => self.drop_long((of.shard, id)),
            EntryBody::TreeBegin { kind, tag, .. }
                if known.what == What::Tree && is_last && !self.trees.contains_key(key) =>
            {
                let (at, root) = known.root.unwrap_or((version, TreeRoot::default()));
                let begun = Begun {
                    kind,
                    tag,
                    expiry_ms: known.expiry.and_then(|(_, expiry_ms)| expiry_ms),
                };
                self.begin_tree((key, at.max(version)), begun, root);
            }
            EntryBody::TreeStep { patches } => {
                let is_of = match known.what {
                    What::OfBase => true,
                    What::Tree => version >= known.version,
                    What::Gone | What::Value | What::Long => false,
                };
                if is_of {
                    return self.change_tree((key, version), patches);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Changes the nodes of a tree that are kept, as a step of a log does.
    fn change_tree(&mut self, (key, version): (&[u8], Version), step: &[u8]) -> Outcome {
        let Some(tree) = self.trees.get_mut(key) else {
            return Ok(());
        };
        let unseen = match self.versions.knows(key, version) {
            true => self.versions.unseen(key, version, step),
            false => Some(step.to_vec()),
        };
        let mut changed = PatchedNodes::default();
        let patches = unseen.as_deref().and_then(Patches::parse);
        let is_done = patches.is_some_and(|(_, mut patches)| {
            patches.all(|patch| patch.is_some_and(|patch| changed.add(tree, patch).is_ok()))
        });
        if !is_done {
            return Err(self.damaged("a step of a tree does not fit what comes before it"));
        }
        for (node, bytes) in changed.nodes {
            let before = match bytes {
                Some(bytes) => {
                    self.kept_bytes += bytes.len();
                    tree.nodes.insert(node, bytes)
                }
                None => tree.nodes.remove(&node),
            };
            self.kept_bytes -= before.map_or(0, |before| before.len());
        }
        Ok(())
    }
}

impl Known {
    fn of(what: What, version: Version) -> Self {
        Self {
            what,
            version,
            ..Self::default()
        }
    }

    /// Notes which nodes a patch is about.
    fn touch(&mut self, patch: NodePatch<'_>) {
        match patch {
            NodePatch::Is { node, .. } | NodePatch::Gone { node } => {
                self.touched.insert(node);
            }
            NodePatch::Touch { leaf, branches, .. } => {
                self.touched.insert(leaf);
                let branches = NodePatch::branches(branches);
                self.touched.extend(branches.map(|branch| branch.node));
            }
        }
    }
}

/// Writes a node into a step of whole nodes.
fn put_node(step: &mut Vec<u8>, node: NodeNumber, bytes: &[u8]) {
    if step.is_empty() {
        put_step_head(step, StepHead::Nodes);
    }
    PutPatch(step).is(node, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_each_key_once_however_they_are_divided() {
        let keys: Vec<_> = (0..2_000_u32).map(u32::to_le_bytes).collect();
        for seed in 0..50_u32 {
            let mut had = vec![0; keys.len()];
            let (mut part, mut looks) = (Part::default(), seed);
            loop {
                looks = looks.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if part.bits < 9 && looks >> 31 == 0 {
                    part = part.half();
                    continue;
                }
                for (had, key) in had.iter_mut().zip(&keys) {
                    *had += u32::from(part.has(key));
                }
                match part.next() {
                    Some(next) => part = next,
                    None => break,
                }
            }
            assert!(had.iter().all(|&had| had == 1), "seed {seed}");
        }
    }
}
