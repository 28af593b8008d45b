//! Copies of collections, of any size: page by page, under the sections of source and target.
//!
//! - I1: a target is whole, as the source is, or is removed again.

use farcore::{
    Answer, Core, Error, Expiry, ExpiryCondition, Operation, TreeChange, TreeChanges, TreeGuard,
    TreeKind, TreeLength, TreeOp, TreePage, TreeScore, TreeScoreRule, TreeScores, TreeValues,
    TreeView, Version,
};

use super::trees::{Step, ask, size_of_page, undo};
use crate::steps;
use crate::tasks::failure::TaskFailure;

/// Bytes that a page takes while it is copied: as it was read, and on its way.
pub(super) const PAGE_BYTES: usize = 48 << 10;
/// Values that one push adds, at most.
const VALUES_AT_ONCE: usize = 512;

/// The copy of a collection.
#[derive(Clone, Copy)]
pub(super) struct TreeCopy<'k> {
    pub(super) from: &'k [u8],
    pub(super) to: &'k [u8],
    pub(super) length: TreeLength,
    pub(super) expiry: Expiry,
}

impl TreeCopy<'_> {
    /// Copies the collection over what the target holds.
    pub(super) async fn run(self, (core, output): Step<'_>) -> Result<(), TaskFailure> {
        let mut target = None;
        let copied = self.copy((&mut *core, output), &mut target).await;
        if let (Err(_), Some(version)) = (&copied, target) {
            undo(core, self.to, version).await?;
        }
        copied
    }

    async fn copy(
        self,
        (core, output): Step<'_>,
        target: &mut Option<Version>,
    ) -> Result<(), TaskFailure> {
        let mut rank = 0;
        while rank < self.length.elements {
            let page = self.read(core, rank).await?;
            let (count, bytes) = size_of_page(&page);
            rank += count as u64;
            output.end_read(core, (count, bytes)).await?;
            match self.length.kind {
                TreeKind::List => self.push(core, &page, target).await?,
                TreeKind::Scored => self.score(core, &page, target).await?,
                _ => self.store(core, &page, target).await?,
            }
            steps::count_copied(bytes);
        }
        if self.expiry != Expiry::Never {
            let always = ExpiryCondition::Always;
            let _ = core.expire(self.to, self.expiry, always).await?;
        }
        Ok(())
    }

    /// Reads elements of a source from a rank on: some, or it has changed.
    async fn read(self, core: &mut Core, rank: u64) -> Result<TreePage, TaskFailure> {
        let tree = core.tree(self.from).tagged(self.length.tag);
        let mut tree = tree.at_version(self.length.version);
        let page = tree.range_by_rank(rank, u64::MAX, false, u32::MAX).await?;
        if page.first().is_none() {
            // It has expired meanwhile.
            return Err(Error::CollectionVersion { current: 0 }.into());
        }
        Ok(page)
    }

    /// The version that the target must have for the next step: the first one replaces it.
    fn guard(self, target: Option<Version>) -> TreeGuard {
        TreeGuard {
            tag: self.length.tag,
            version: target,
        }
    }

    /// Stores a page of a map.
    async fn store(
        self,
        core: &mut Core,
        page: &TreePage,
        target: &mut Option<Version>,
    ) -> Result<(), TaskFailure> {
        let changes = page.iter().map(|(key, value)| TreeChange {
            key,
            value: Some(value),
        });
        let changes: Vec<_> = changes.collect();
        let mut left = &changes[..];
        while !left.is_empty() {
            let op = TreeOp::Update {
                changes: TreeChanges::Slices(left),
                replaces: target.is_none(),
            };
            let (version, done) = self.write(core, op, *target, 2).await?;
            *target = Some(version);
            let done = usize::try_from(done).unwrap_or(usize::MAX);
            left = &left[done.min(left.len())..];
        }
        Ok(())
    }

    /// Stores a page of a scored map.
    async fn score(
        self,
        core: &mut Core,
        page: &TreePage,
        target: &mut Option<Version>,
    ) -> Result<(), TaskFailure> {
        let changes = page.scored().map(|(member, score, value)| TreeScore {
            member,
            score: Some(score),
            value,
        });
        let changes: Vec<_> = changes.collect();
        let mut left = &changes[..];
        while !left.is_empty() {
            let op = TreeOp::Score {
                changes: TreeScores::Slices(left),
                rule: TreeScoreRule::default(),
                replaces: target.is_none(),
            };
            let (version, done) = self.write(core, op, *target, 3).await?;
            *target = Some(version);
            let done = usize::try_from(done).unwrap_or(usize::MAX);
            left = &left[done.min(left.len())..];
        }
        Ok(())
    }

    /// Adds a page of a list.
    async fn push(
        self,
        core: &mut Core,
        page: &TreePage,
        target: &mut Option<Version>,
    ) -> Result<(), TaskFailure> {
        let values: Vec<_> = page.iter().map(|(_, value)| value).collect();
        for some in values.chunks(VALUES_AT_ONCE) {
            let op = TreeOp::Push {
                front: false,
                exists: false,
                replaces: target.is_none(),
                values: TreeValues::Slices(some),
            };
            let (version, _) = self.write(core, op, *target, 0).await?;
            *target = Some(version);
        }
        Ok(())
    }

    /// Writes to the target; returns its version then, and the number at a place of the answer,
    /// which tells how many changes of a map were made.
    async fn write(
        self,
        core: &mut Core,
        op: TreeOp<'_>,
        target: Option<Version>,
        place: usize,
    ) -> Result<(Version, u64), TaskFailure> {
        let operation = Operation::Tree {
            key: self.to,
            op,
            guard: self.guard(target),
        };
        let take = |answer: &Answer<'_>| {
            let view = TreeView::of(answer);
            (view.version(), view.number(place))
        };
        Ok(ask(core, operation, take).await?)
    }
}
