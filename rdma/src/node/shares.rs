//! Extents that several sessions share, and who inherits them when their owner goes.
//!
//! ```text
//! owner grants -> a session shares -> the owner frees or ends -> the eldest sharer is the owner
//!                                                             -> no sharer: the extent is free
//! ```
//!
//! - I1: a session that shares an extent keeps it from becoming free. Only the extent's owner word
//!   says whose it is; it passes from an ended owner to a sharer by one swap.
//! - I2: a share is added only while its grantor is there, and owns the extents: both are checked
//!   under the lock that the end of a session takes, after the session has left the list of those
//!   that are there.
//! - I3: a session has at most one share of an extent, whose count says how often it was granted.
//!
//! - I4: an attached extent has its anchor's owner, and may be accessed by those that may access
//!   its anchor. It is freed with its anchor. No anchor is attached itself.
//!
//! Shares live in the node's memory, not in the table: a client cannot forge one.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::pool::{ExtentRun, OwnerId};

/// A session's share of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Share {
    session: OwnerId,
    count: u32,
    may_write: bool,
}

/// What becomes of an extent that its owner gives up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heir {
    /// It becomes free.
    None,
    /// It passes to this session.
    Session(OwnerId),
}

/// The shares of a node's extents.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// By extent, the eldest first.
    of: BTreeMap<u32, Vec<Share>>,
    /// Extents whose owner has them by inheritance.
    inherited: HashSet<u32>,
    /// Extents that follow another, their anchor.
    anchors: BTreeMap<u32, u32>,
    /// The extents that follow each anchor.
    followers: BTreeMap<u32, BTreeSet<u32>>,
}

impl Shares {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty() && self.inherited.is_empty() && self.anchors.is_empty()
    }

    /// Attaches an extent to an anchor, which is attached to none.
    pub(super) fn attach(&mut self, extent: u32, anchor: u32) {
        self.anchors.insert(extent, anchor);
        self.followers.entry(anchor).or_default().insert(extent);
    }

    /// The anchor of an attached extent.
    pub(super) fn anchor(&self, extent: u32) -> Option<u32> {
        self.anchors.get(&extent).copied()
    }

    pub(super) fn detach(&mut self, extent: u32) {
        let Some(anchor) = self.anchors.remove(&extent) else {
            return;
        };
        if let Some(followers) = self.followers.get_mut(&anchor) {
            followers.remove(&extent);
            if followers.is_empty() {
                self.followers.remove(&anchor);
            }
        }
    }

    /// Whether extents are attached to an anchor.
    pub(super) fn is_anchor(&self, extent: u32) -> bool {
        self.followers.contains_key(&extent)
    }

    /// The extents that are attached to an anchor.
    pub(super) fn attached(&self, anchor: u32) -> Vec<u32> {
        let followers = self.followers.get(&anchor);
        followers.map_or_else(Vec::new, |all| all.iter().copied().collect())
    }

    /// Adds a share of a run.
    pub(super) fn add(&mut self, session: OwnerId, run: ExtentRun, may_write: bool) {
        for extent in run.extents() {
            let shares = self.of.entry(extent).or_default();
            match shares.iter_mut().find(|share| share.session == session) {
                Some(share) => {
                    share.count = share.count.saturating_add(1);
                    share.may_write |= may_write;
                }
                None => shares.push(Share {
                    session,
                    count: 1,
                    may_write,
                }),
            }
        }
    }

    /// Whether a session may access an extent that it does not own.
    pub(super) fn permits(&self, session: OwnerId, extent: u32, writes: bool) -> bool {
        let shares = self.of.get(&extent).map_or(&[][..], |shares| shares);
        let own = shares.iter().find(|share| share.session == session);
        own.is_some_and(|share| share.may_write || !writes)
    }

    /// Whether any session but its owner shares an extent.
    pub(super) fn is_shared(&self, extent: u32) -> bool {
        self.of.contains_key(&extent)
    }

    /// How many sessions but its owner share some extent of a run.
    pub(super) fn count(&self, owner: OwnerId, run: ExtentRun) -> u32 {
        let mut sharers = HashSet::new();
        for extent in run.extents() {
            for share in self.of.get(&extent).map_or(&[][..], |shares| shares) {
                if share.session != owner {
                    sharers.insert(share.session);
                }
            }
        }
        u32::try_from(sharers.len()).unwrap_or(u32::MAX)
    }

    /// Gives up a session's share of an extent. Returns whether it is the session's last grant of
    /// it; `None` if it has no share.
    pub(super) fn remove(&mut self, session: OwnerId, extent: u32) -> Option<bool> {
        let shares = self.of.get_mut(&extent)?;
        let place = shares.iter().position(|share| share.session == session)?;
        shares[place].count -= 1;
        let is_last = shares[place].count == 0;
        if is_last {
            shares.remove(place);
        }
        if shares.is_empty() {
            self.of.remove(&extent);
        }
        Some(is_last)
    }

    /// Removes all shares of a session that has ended.
    pub(super) fn end(&mut self, session: OwnerId) {
        self.of.retain(|_, shares| {
            shares.retain(|share| share.session != session);
            !shares.is_empty()
        });
    }

    /// Who inherits an extent from its owner.
    pub(super) fn heir(&self, extent: u32, owner: OwnerId) -> Heir {
        let shares = self.of.get(&extent).map_or(&[][..], |shares| shares);
        let heir = shares.iter().find(|share| share.session != owner);
        heir.map_or(Heir::None, |share| Heir::Session(share.session))
    }

    /// Notes that an extent was inherited, or became free.
    pub(super) fn note(&mut self, extent: u32, is_inherited: bool) {
        if is_inherited {
            self.inherited.insert(extent);
        } else {
            self.inherited.remove(&extent);
        }
    }

    pub(super) fn is_inherited(&self, extent: u32) -> bool {
        self.inherited.contains(&extent)
    }

    /// Forgets that extents were inherited or attached.
    pub(super) fn forget(&mut self, which: impl Fn(u32) -> bool) {
        self.inherited.retain(|&extent| !which(extent));
        let attached = self.anchors.keys().copied();
        let attached: Vec<_> = attached.filter(|&extent| which(extent)).collect();
        for extent in attached {
            self.detach(extent);
        }
    }

    /// The extents that have shares.
    pub(super) fn extents(&self) -> impl Iterator<Item = u32> {
        self.of.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::owner;

    fn run(first: u32, count: u32) -> ExtentRun {
        ExtentRun::new(first, count).expect("within a word")
    }

    #[test]
    fn the_eldest_sharer_inherits() {
        let mut shares = Shares::default();
        shares.add(owner(2), run(5, 2), false);
        shares.add(owner(3), run(6, 1), true);
        assert_eq!(shares.heir(5, owner(1)), Heir::Session(owner(2)));
        assert_eq!(shares.heir(6, owner(1)), Heir::Session(owner(2)));
        assert_eq!(shares.heir(6, owner(2)), Heir::Session(owner(3)));
        assert_eq!(shares.heir(4, owner(1)), Heir::None);
        shares.end(owner(2));
        assert_eq!(shares.heir(5, owner(1)), Heir::None);
        assert_eq!(shares.heir(6, owner(1)), Heir::Session(owner(3)));
        assert!(!shares.is_shared(5) && shares.is_shared(6));
        assert_eq!(shares.count(owner(1), run(5, 2)), 1);
        assert_eq!(shares.count(owner(3), run(5, 2)), 0);
    }

    #[test]
    fn a_share_lasts_as_long_as_its_last_grant() {
        let mut shares = Shares::default();
        shares.add(owner(2), run(0, 1), false);
        assert!(shares.permits(owner(2), 0, false) && !shares.permits(owner(2), 0, true));
        shares.add(owner(2), run(0, 1), true);
        assert!(shares.permits(owner(2), 0, true) && !shares.permits(owner(3), 0, false));
        assert_eq!(shares.remove(owner(3), 0), None);
        assert_eq!(shares.remove(owner(2), 0), Some(false));
        assert_eq!(shares.remove(owner(2), 0), Some(true));
        assert_eq!(shares.remove(owner(2), 0), None);
        assert!(shares.is_empty());
    }
}
