//! Renames and copies of collections, of any size: page by page.
//!
//! - I1: a target is whole, as the source was in one moment, or is removed again.
//! - I2: what is renamed is not taken from under both names. A short collection is removed
//!   under its old name first, and stored again if it cannot be stored under the new one. While a
//!   longer one is renamed, no client writes.

use std::sync::Arc;

use farcore::{
    Condition, Core, DeleteOutcome, Error, Expiry, ExpiryCondition, ExpiryOutcome, Operation,
    TreeChange, TreeChanges, TreeGuard, TreeLength, TreeOp, TreePage, TreeValues, TreeView,
    Version,
};

use super::trees::{Step, ask};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::tasks::gate_hold::GateHold;

/// Bytes that a page takes while it is copied: as it was read, and on its way.
const PAGE_BYTES: usize = 48 << 10;
/// Bytes of a short collection, with those that each element has beside it.
const SHORT_BYTES: u64 = 12 << 10;
const BESIDE_ELEMENT: u64 = 8;
/// Values that one push adds, at most.
const VALUES_AT_ONCE: usize = 512;

/// What becomes of a collection.
#[derive(Clone, Copy)]
pub(super) struct TreeMove<'k> {
    pub(super) from: &'k [u8],
    pub(super) to: &'k [u8],
    /// The target may exist, and is replaced.
    pub(super) replaces: bool,
    /// The source is removed.
    pub(super) renames: bool,
}

/// What a rename or a copy has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TreeMoved {
    Yes,
    /// The source is a plain value.
    NotOfTree,
    NoSource,
    TargetExists,
}

/// The collection that is renamed or copied.
#[derive(Clone, Copy)]
struct Source {
    length: TreeLength,
    expiry: Expiry,
}

impl TreeMove<'_> {
    /// Renames or copies a collection.
    pub(super) async fn run(self, (core, output): Step<'_>) -> Result<TreeMoved, TaskFailure> {
        let mut attempts = Attempts::default();
        let mut hold = None;
        let mut held = None;
        loop {
            let length = match core.tree(self.from).len().await {
                Ok(length) if length.version > 0 => length,
                Ok(_) | Err(Error::KeyTooLong { .. }) => return Ok(TreeMoved::NoSource),
                Err(Error::NoCollection) => return Ok(TreeMoved::NotOfTree),
                Err(error) => return Err(error.into()),
            };
            let bytes = usize::try_from(length.bytes).unwrap_or(usize::MAX);
            if held.is_none() {
                let needed = PAGE_BYTES + 2 * bytes.min(output.value_bytes_max());
                held = Some(output.hold_when_free(core, needed).await?);
            }
            if self.renames && !is_short(&length) && hold.is_none() && !output.holds_gate() {
                // Then it is looked at anew.
                output.end_pass();
                let (shared, place) = (Arc::clone(output.shared()), output.place());
                hold = GateHold::take(core, &shared, place).await;
                if hold.is_none() {
                    return Err("ERR other writes have not ended in time: try again".into());
                }
                continue;
            }
            match self.attempt((&mut *core, output), length).await {
                Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => {
                    attempts.again(core, output).await;
                }
                moved => return moved,
            }
        }
    }

    /// Does it if no client changes source or target meanwhile.
    async fn attempt(
        self,
        (core, output): Step<'_>,
        length: TreeLength,
    ) -> Result<TreeMoved, TaskFailure> {
        let metadata = core.inspect(self.from).await?;
        let Some(metadata) = metadata.filter(|found| found.version == length.version) else {
            return Err(changed());
        };
        let source = Source {
            length,
            expiry: metadata.expiry_ms.map_or(Expiry::Never, Expiry::At),
        };
        if self.from == self.to {
            // Another client has made it since the command looked.
            return Ok(TreeMoved::Yes);
        }
        if !self.replaces && core.exists(self.to).await? {
            return Ok(TreeMoved::TargetExists);
        }
        if self.renames && is_short(&length) {
            return self.rename_short(core, &source).await;
        }
        let mut target = None;
        let copied = self.copy((&mut *core, output), &source, &mut target).await;
        match (copied, target) {
            (Ok(true), _) => Ok(TreeMoved::Yes),
            (Ok(false), Some(version)) => {
                self.discard(core, version).await;
                Err(changed())
            }
            (Ok(false), None) => Err(changed()),
            (Err(failure), target) => {
                if let Some(version) = target {
                    self.discard(core, version).await;
                }
                Err(failure)
            }
        }
    }

    /// Renames a short collection.
    async fn rename_short(
        self,
        core: &mut Core,
        source: &Source,
    ) -> Result<TreeMoved, TaskFailure> {
        let (length, mut target) = (&source.length, None);
        let (mut pages, mut rank) = (Vec::new(), 0);
        while rank < length.elements {
            let page = self.read(core, source, rank).await?;
            rank += page.iter().count() as u64;
            pages.push(page);
        }
        let condition = Condition::Version(length.version);
        let deleted = core.delete_if(self.from, condition).await?;
        if !matches!(deleted, DeleteOutcome::Deleted) {
            return Err(changed());
        }
        let stored = self.fill(core, source, (&pages, &mut target));
        let failure = match stored.await {
            Ok(()) => return Ok(TreeMoved::Yes),
            Err(failure) => failure,
        };
        if let Some(version) = target {
            self.discard(core, version).await;
        }
        let back = Self {
            to: self.from,
            replaces: false,
            ..self
        };
        let mut stored = None;
        let back = back.fill(core, source, (&pages, &mut stored));
        if let Err(second) = back.await {
            tracing::warn!(
                rename = ?failure,
                put_back = ?second,
                "a collection that could not be renamed is lost, or was made anew meanwhile"
            );
        }
        Err(failure)
    }

    /// Reads elements of a source from a rank on: some, or it has changed.
    async fn read(
        self,
        core: &mut Core,
        source: &Source,
        rank: u64,
    ) -> Result<TreePage, TaskFailure> {
        let tree = core.tree(self.from).tagged(source.length.tag);
        let mut tree = tree.at_version(source.length.version);
        let page = tree.range_by_rank(rank, u64::MAX, false, u32::MAX).await?;
        if page.first().is_none() {
            return Err(changed());
        }
        Ok(page)
    }

    /// Makes the target of the pages of a source.
    async fn fill(
        self,
        core: &mut Core,
        source: &Source,
        (pages, target): (&[TreePage], &mut Option<Version>),
    ) -> Result<(), TaskFailure> {
        for page in pages {
            self.add(core, source, (page, target)).await?;
        }
        self.expire(core, source, target).await
    }

    /// Adds a page to the target.
    async fn add(
        self,
        core: &mut Core,
        source: &Source,
        (page, target): (&TreePage, &mut Option<Version>),
    ) -> Result<(), TaskFailure> {
        if source.length.is_list {
            self.push(core, source, page, target).await
        } else {
            self.store(core, source, page, target).await
        }
    }

    /// Has the target expire as the source does.
    async fn expire(
        self,
        core: &mut Core,
        source: &Source,
        target: &mut Option<Version>,
    ) -> Result<(), TaskFailure> {
        if source.expiry == Expiry::Never {
            return Ok(());
        }
        let always = ExpiryCondition::Always;
        if let ExpiryOutcome::Set(version) = core.expire(self.to, source.expiry, always).await? {
            *target = Some(version);
        }
        Ok(())
    }

    /// Removes a target that is not whole, unless another client has changed it.
    async fn discard(self, core: &mut Core, version: Version) {
        if let Err(error) = core.delete_if(self.to, Condition::Version(version)).await {
            tracing::warn!(%error, "a part of a copied collection could not be removed");
        }
    }

    /// Copies all elements, and removes the source if it is renamed. Notes the version of the
    /// target as far as it is written. False if the source has changed.
    async fn copy(
        self,
        (core, output): Step<'_>,
        source: &Source,
        target: &mut Option<Version>,
    ) -> Result<bool, TaskFailure> {
        let mut rank = 0;
        while rank < source.length.elements {
            let page = self.read(core, source, rank).await?;
            let sizes = page.iter().map(|(key, value)| key.len() + value.len());
            let (count, bytes) = sizes.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one));
            rank += count as u64;
            output.turn(core, 2 * bytes).await;
            self.add(core, source, (&page, target)).await?;
            steps::count(count);
            steps::count_copied(2 * bytes);
            steps::end_slice(core).await;
        }
        self.expire(core, source, target).await?;
        if self.renames {
            let condition = Condition::Version(source.length.version);
            let deleted = core.delete_if(self.from, condition).await?;
            return Ok(matches!(deleted, DeleteOutcome::Deleted));
        }
        Ok(true)
    }

    /// The version that the target must have for the next step: none where the first one replaces
    /// it.
    fn guard(self, source: &Source, target: Option<Version>) -> TreeGuard {
        let version = match target {
            None if self.replaces => None,
            None => Some(0),
            version => version,
        };
        TreeGuard {
            tag: source.length.tag,
            version,
        }
    }

    /// Stores a page of a map.
    async fn store(
        self,
        core: &mut Core,
        source: &Source,
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
                replaces: self.replaces && target.is_none(),
            };
            let (version, done) = self.write(core, (source, op, *target)).await?;
            *target = Some(version);
            let done = usize::try_from(done(2)).unwrap_or(usize::MAX);
            left = &left[done.min(left.len())..];
        }
        Ok(())
    }

    /// Adds a page of a list.
    async fn push(
        self,
        core: &mut Core,
        source: &Source,
        page: &TreePage,
        target: &mut Option<Version>,
    ) -> Result<(), TaskFailure> {
        if target.is_none() && self.replaces {
            core.delete(self.to).await?;
            *target = Some(0);
        }
        let values: Vec<_> = page.iter().map(|(_, value)| value).collect();
        for some in values.chunks(VALUES_AT_ONCE) {
            let op = TreeOp::Push {
                front: false,
                exists: false,
                values: TreeValues::Slices(some),
            };
            let (version, _) = self.write(core, (source, op, *target)).await?;
            *target = Some(version);
        }
        Ok(())
    }

    /// Writes to the target; returns its version then, and the numbers of the answer.
    async fn write(
        self,
        core: &mut Core,
        (source, op, target): (&Source, TreeOp<'_>, Option<Version>),
    ) -> Result<(Version, impl Fn(usize) -> u64), TaskFailure> {
        let operation = Operation::Tree {
            key: self.to,
            op,
            guard: self.guard(source, target),
        };
        let answered = ask(core, operation, |answer| {
            let view = TreeView::of(answer);
            (view.version(), [0, 1, 2, 3].map(|place| view.number(place)))
        });
        match answered.await {
            Ok((version, numbers)) => Ok((version, move |place: usize| numbers[place])),
            // Another client has made the target something else meanwhile.
            Err(
                Error::NoCollection | Error::CollectionTag { .. } | Error::CollectionKind { .. },
            ) => Err(changed()),
            Err(error) => Err(error.into()),
        }
    }
}

/// True if a collection is short enough to be held while it is renamed.
fn is_short(length: &TreeLength) -> bool {
    let beside = length.elements.saturating_mul(BESIDE_ELEMENT);
    length.bytes.saturating_add(beside) < SHORT_BYTES
}

/// What has another attempt begin.
fn changed() -> TaskFailure {
    Error::CollectionVersion { current: 0 }.into()
}
