//! Renames and copies of collections, of any size: page by page.
//!
//! - I1: a target is whole, as the source was in one moment, or is removed again.
//! - I2: what is renamed is not taken from under both names. What one step can store is removed
//!   under its old name first, and stored again if it cannot be stored under the new one. While
//!   more is renamed or copied, no client writes.

use farcore::constants::TREE_CHANGES_WHOLE;
use farcore::{
    Condition, Core, DeleteOutcome, Error, Expiry, ExpiryCondition, ExpiryOutcome, Operation,
    TreeChange, TreeChanges, TreeGuard, TreeLength, TreeOp, TreePage, TreeValues, TreeView,
    Version,
};

use super::trees::{OTHERS, Step, ask, size_of_page};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::waits::readiness::Readiness;

/// Bytes that a page takes while it is copied: as it was read, and on its way.
const PAGE_BYTES: usize = 48 << 10;
/// Bytes of a short collection, which one page holds, with those that each element has beside it.
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
    /// Where it is said that elements are put back.
    pub(super) readiness: &'k Readiness,
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

impl Source {
    /// True if one step can store it whole.
    fn is_one_step(&self) -> bool {
        let length = &self.length;
        let beside = length.elements.saturating_mul(BESIDE_ELEMENT);
        let most = if length.is_list {
            VALUES_AT_ONCE
        } else {
            TREE_CHANGES_WHOLE
        };
        length.bytes.saturating_add(beside) < SHORT_BYTES
            && length.elements <= most as u64
            && self.expiry == Expiry::Never
    }
}

impl TreeMove<'_> {
    /// Renames or copies a collection.
    pub(super) async fn run(self, (core, output): Step<'_>) -> Result<TreeMoved, TaskFailure> {
        let moved = self.attempts((core, output)).await;
        output.open_gate();
        moved
    }

    async fn attempts(self, (core, output): Step<'_>) -> Result<TreeMoved, TaskFailure> {
        let mut attempts = Attempts::default();
        let mut held = None;
        loop {
            output.pass_to_write(core).await;
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
            match self.attempt((&mut *core, output), length).await {
                Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => {
                    attempts.again(core, output).await;
                }
                // Then it is looked at anew.
                Ok(None) => {
                    if !output.close_gate(core).await {
                        return Err(OTHERS.into());
                    }
                }
                Ok(Some(moved)) => return Ok(moved),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Does it if no client changes source or target meanwhile; `None` if no client may write
    /// meanwhile.
    async fn attempt(
        self,
        (core, output): Step<'_>,
        length: TreeLength,
    ) -> Result<Option<TreeMoved>, TaskFailure> {
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
            return Ok(Some(TreeMoved::Yes));
        }
        if !self.replaces && core.exists(self.to).await? {
            return Ok(Some(TreeMoved::TargetExists));
        }
        if source.is_one_step() {
            self.move_short((core, output), &source).await?;
            return Ok(Some(TreeMoved::Yes));
        }
        if !output.is_alone() {
            return Ok(None);
        }
        let mut target = None;
        let failure = match self.copy((&mut *core, output), &source, &mut target).await {
            Ok(true) => return Ok(Some(TreeMoved::Yes)),
            Ok(false) => changed(),
            Err(failure) => failure,
        };
        if let Some(version) = target {
            self.discard(core, version).await;
        }
        Err(failure)
    }

    /// Renames or copies what one step stores.
    async fn move_short(
        self,
        (core, output): Step<'_>,
        source: &Source,
    ) -> Result<(), TaskFailure> {
        let page = self.read(core, source, 0).await?;
        if self.renames {
            let condition = Condition::Version(source.length.version);
            let deleted = core.delete_if(self.from, condition).await?;
            if !matches!(deleted, DeleteOutcome::Deleted) {
                return Err(changed());
            }
        }
        let failure = match self.add(core, source, (&page, &mut None)).await {
            Err(failure) if self.renames => failure,
            added => return added,
        };
        let back = Self {
            to: self.from,
            replaces: false,
            ..self
        };
        match back.add(core, source, (&page, &mut None)).await {
            Ok(()) => {
                // Who waits for the key looks at it only while others may write.
                output.open_gate();
                self.readiness.note(core, output, self.from).await;
            }
            Err(second) => tracing::warn!(
                rename = ?failure,
                put_back = ?second,
                "a collection that could not be renamed is lost, or was made anew meanwhile"
            ),
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
            let (count, bytes) = size_of_page(&page);
            rank += count as u64;
            output.end_read(core, (count, bytes)).await?;
            self.add(core, source, (&page, target)).await?;
            steps::count_copied(bytes);
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
            let done = usize::try_from(done).unwrap_or(usize::MAX);
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
        let values: Vec<_> = page.iter().map(|(_, value)| value).collect();
        for some in values.chunks(VALUES_AT_ONCE) {
            let op = TreeOp::Push {
                front: false,
                exists: false,
                replaces: self.replaces && target.is_none(),
                values: TreeValues::Slices(some),
            };
            let (version, _) = self.write(core, (source, op, *target)).await?;
            *target = Some(version);
        }
        Ok(())
    }

    /// Writes to the target; returns its version then, and how many changes of a map were made.
    async fn write(
        self,
        core: &mut Core,
        (source, op, target): (&Source, TreeOp<'_>, Option<Version>),
    ) -> Result<(Version, u64), TaskFailure> {
        let operation = Operation::Tree {
            key: self.to,
            op,
            guard: self.guard(source, target),
        };
        let answered = ask(core, operation, |answer| {
            let view = TreeView::of(answer);
            (view.version(), view.number(2))
        });
        match answered.await {
            // Another client has made the target something else meanwhile.
            Err(
                Error::NoCollection | Error::CollectionTag { .. } | Error::CollectionKind { .. },
            ) => Err(changed()),
            answered => Ok(answered?),
        }
    }
}

/// What has another attempt begin.
fn changed() -> TaskFailure {
    Error::CollectionVersion { current: 0 }.into()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::rc::Rc;
    use std::sync::Arc;

    use futures_lite::future::poll_once;

    use super::super::trees::update_all;
    use super::*;
    use crate::by_hand::on_first_core;
    use crate::tasks::output::TaskOutput;
    use crate::types::kind::Kind;
    use crate::waits::key_queues::{ReadyKeys, Waiter};

    async fn push(core: &mut Core, key: &[u8], values: &[&[u8]]) {
        let mut list = core.tree(key).tagged(Kind::List.tag());
        list.push_last(values).await.expect("a list");
    }

    async fn values(core: &mut Core, key: &[u8]) -> Vec<Vec<u8>> {
        let page = core.tree(key).tagged(Kind::List.tag());
        let page = { page }.slice(0, -1, u32::MAX).await.expect("a list");
        page.iter().map(|(_, value)| value.to_vec()).collect()
    }

    async fn source(core: &mut Core, key: &[u8]) -> Source {
        Source {
            length: core.tree(key).len().await.expect("a collection"),
            expiry: Expiry::Never,
        }
    }

    #[test]
    fn a_list_whose_target_has_come_meanwhile_is_put_back_and_wakes() {
        on_first_core(1, |bench| async move {
            let output = bench.output();
            let mut core = bench.core;
            let waiter = Waiter {
                client: 1,
                core: 0,
                number: 0,
            };
            bench.shared.waiting.enter(&[b"from".to_vec()], waiter);
            let ready = ReadyKeys::default();
            let readiness = Readiness::later(Arc::clone(&bench.shared), Rc::clone(&ready));
            push(&mut core, b"from", &[b"a", b"b"]).await;
            push(&mut core, b"to", &[b"theirs"]).await;
            let source = source(&mut core, b"from").await;
            assert!(source.is_one_step());
            let rename = TreeMove {
                from: b"from",
                to: b"to",
                replaces: false,
                renames: true,
                readiness: &readiness,
            };
            let moved = rename.move_short((&mut core, &output), &source).await;
            assert!(matches!(
                moved,
                Err(TaskFailure::Engine(Error::CollectionVersion { .. }))
            ));
            assert_eq!(values(&mut core, b"from").await, [b"a", b"b"]);
            assert_eq!(values(&mut core, b"to").await, [b"theirs"]);
            assert_eq!(ready.take(), [b"from"]);
            // What is replaced is replaced in one step.
            let rename = TreeMove {
                replaces: true,
                ..rename
            };
            let step = (&mut core, &output);
            assert!(matches!(rename.run(step).await, Ok(TreeMoved::Yes)));
            assert_eq!(values(&mut core, b"to").await, [b"a", b"b"]);
            assert!(!core.exists(b"from").await.expect("read"));
        });
    }

    /// Elements enough for several pages.
    const ELEMENTS: usize = 3_000;

    async fn fill(core: &mut Core, output: &TaskOutput, key: &[u8]) {
        let members: Vec<_> = (0..ELEMENTS).map(|member| member.to_string()).collect();
        let members = members.iter().map(|one| (one.as_bytes(), Some(&[][..])));
        let (_, failure) = update_all((core, output), (Kind::Set, key), members, false).await;
        assert!(failure.is_none(), "{failure:?}");
    }

    #[test]
    fn no_client_writes_while_a_long_collection_is_copied() {
        on_first_core(1, |bench| async move {
            let output = bench.output();
            let (mut core, shared) = (bench.core.another(), &bench.shared);
            let mut serving = bench.serving(0);
            let readiness = Readiness::at_once(Arc::clone(shared));
            for renames in [false, true] {
                fill(&mut core, &output, b"from").await;
                let copy = TreeMove {
                    from: b"from",
                    to: b"to",
                    replaces: renames,
                    renames,
                    readiness: &readiness,
                };
                let moved = {
                    let mut moves = pin!(copy.run((&mut core, &output)));
                    let mut polls = 0;
                    loop {
                        if let Some(moved) = poll_once(moves.as_mut()).await {
                            break moved;
                        }
                        polls += 1;
                        assert!(polls < 100_000, "it goes on");
                        if output.is_alone() {
                            assert!(serving.passes.take(false).is_none());
                        }
                        bench.receive(&mut serving);
                        serving.gate_turn(&bench.core);
                        bench.core.yield_now().await;
                    }
                };
                assert!(matches!(moved, Ok(TreeMoved::Yes)), "{moved:?}");
                assert!(!output.is_alone());
                bench.receive(&mut serving);
                assert!(serving.passes.take(false).is_some());
                let length = core.tree(b"to").len().await.expect("a set");
                assert_eq!(length.elements, ELEMENTS as u64);
                let exists = core.exists(b"from").await.expect("read");
                assert_eq!(exists, !renames);
            }
            assert_eq!(shared.counters[0].gate_closings.get(), 2);
        });
    }
}
