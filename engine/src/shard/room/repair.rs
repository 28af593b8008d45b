//! What a shard knows of a repair: of the giving of what files say to keys that are lost.

use std::collections::HashSet;

use crate::message::hash::IndexHash;

/// A repair under way.
#[derive(Debug)]
pub(in crate::shard) struct Repair {
    /// The hashes of keys whose trees or long values have lost a part.
    torn: HashSet<IndexHash>,
    /// The hashes of keys that were removed since it was begun: the files that are read do not say
    /// so, and a lost slot of the same bits may stand for them.
    removed: HashSet<IndexHash>,
}

impl Repair {
    /// A repair that begins.
    pub(in crate::shard) fn of(torn: impl Iterator<Item = IndexHash>) -> Self {
        Self {
            torn: torn.collect(),
            removed: HashSet::new(),
        }
    }

    /// True if something had lost a part of it.
    pub(in crate::shard) fn has_torn(&self) -> bool {
        !self.torn.is_empty()
    }

    /// True if what a key of this hash has may have lost a part of it.
    pub(in crate::shard) fn is_torn(&self, hash: IndexHash) -> bool {
        self.torn.contains(&hash)
    }

    /// Notes that a key was removed.
    pub(in crate::shard) fn note_removed(&mut self, hash: IndexHash) {
        self.removed.insert(hash);
    }

    /// True if a key of this hash was removed.
    pub(in crate::shard) fn is_removed(&self, hash: IndexHash) -> bool {
        self.removed.contains(&hash)
    }
}
