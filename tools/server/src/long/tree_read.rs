//! The read of a collection in several steps: its reply is longer than one answer, or too long to
//! be made with it.
//!
//! The reply is gathered in memory that its client is charged for, page by page, all of one version
//! of the collection, and then sent as the client takes it.

use farcore::{
    Answer, Core, Error, Operation, TreeBound, TreeGuard, TreeLength, TreeOp, TreePage,
    TreeScoreRange,
};

use crate::events::classes::EventClasses;
use crate::long::copy::send_chunks;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::replies::{ReplyKind, write_answer};
use crate::types::sorted::reply::write_score;

/// Bytes of a reply beside each element and its value, at most: their types, lengths and ends.
const BESIDE_BYTES: usize = 48;
/// Bytes that a page has beside the reply.
const PAGE_BYTES: usize = 32 << 10;
/// Values of a command that are read in one step.
const VALUES_AT_ONCE: usize = 64;

type Result<T> = std::result::Result<T, TaskFailure>;

/// A collection to read.
#[derive(Debug)]
pub(crate) struct TreeRead {
    key: Vec<u8>,
    /// The operation, as it was encoded.
    op: Vec<u8>,
    kind: ReplyKind,
}

/// The key of an operation on a collection, and the operation, as they are kept until it is known
/// whether it must be done in steps.
///
/// ```text
/// | key bytes:16 | key | operation |
/// ```
pub(crate) fn keep(operation: &Operation<'_>, into: &mut Vec<u8>) {
    if let Operation::Tree { key, op, guard } = operation {
        into.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
        into.extend_from_slice(key);
        op.encode(*guard, into);
    }
}

impl TreeRead {
    /// The read that was kept, of which this is replied.
    pub(crate) fn of(kind: ReplyKind, kept: &[u8]) -> Option<Self> {
        let (bytes, rest) = kept.split_first_chunk()?;
        let (key, op) = rest.split_at_checked(u16::from_le_bytes(*bytes).into())?;
        TreeOp::decode(op)?;
        Some(Self {
            key: key.to_vec(),
            op: op.to_vec(),
            kind,
        })
    }

    /// The read that an operation is.
    pub(crate) fn of_operation(kind: ReplyKind, operation: &Operation<'_>) -> Option<Self> {
        let mut kept = Vec::new();
        keep(operation, &mut kept);
        Self::of(kind, &kept)
    }

    /// Bytes that it has before it begins.
    pub(crate) fn held_bytes(&self) -> usize {
        self.key.capacity() + self.op.capacity()
    }

    /// Reads the collection and writes the reply.
    pub(crate) async fn run(self, core: &mut Core, output: &TaskOutput, protocol: Protocol) {
        let mut held = output.hold(0);
        let gathered = {
            let mut attempts = Attempts::default();
            loop {
                let gathered = self.gather((&mut *core, output), &mut held, protocol);
                match gathered.await {
                    Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => {
                        attempts.again(core, output, &[&self.key]).await;
                    }
                    gathered => break gathered,
                }
            }
        };
        output.leave(core);
        match gathered {
            Ok(Some(reply)) => {
                held.shrink_to(reply.capacity());
                send_chunks(core, output, &reply).await;
            }
            Ok(None) => {
                output.notify(EventClasses::MISSED, "keymiss", &self.key);
                output.write(|bytes| {
                    write_answer(
                        self.kind,
                        &Answer::Absent,
                        &mut Writer::new(bytes, protocol),
                    );
                });
            }
            Err(failure) => failure.write(output, protocol),
        }
    }

    /// The whole reply; none if there is no collection.
    async fn gather(
        &self,
        (core, output): (&mut Core, &TaskOutput),
        held: &mut Charge,
        protocol: Protocol,
    ) -> Result<Option<Vec<u8>>> {
        let Some((guard, op)) = TreeOp::decode(&self.op) else {
            return Ok(None);
        };
        // A key that is too long cannot exist.
        let length = match core.tree(&self.key).len().await {
            Err(Error::KeyTooLong { .. }) => TreeLength::default(),
            length => length?,
        };
        if length.version == 0 {
            return Ok(None);
        }
        if length.tag != guard.tag {
            return Err(Error::CollectionTag { tag: length.tag }.into());
        }
        let mut gathering = Gathering {
            core,
            output,
            key: &self.key,
            guard: TreeGuard {
                version: Some(length.version),
                ..guard
            },
            kind: self.kind,
            protocol,
            reply: Vec::new(),
        };
        gathering.hold(held, &length, &op).await?;
        gathering.read(held, &length, op).await?;
        Ok(Some(gathering.reply))
    }
}

/// A reply as it is gathered.
struct Gathering<'g> {
    core: &'g mut Core,
    output: &'g TaskOutput,
    key: &'g [u8],
    guard: TreeGuard,
    kind: ReplyKind,
    protocol: Protocol,
    reply: Vec<u8>,
}

impl Gathering<'_> {
    /// Charges what the reply may take, as far as that is known.
    async fn hold(&self, held: &mut Charge, length: &TreeLength, op: &TreeOp<'_>) -> Result<()> {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let all = number(length.bytes)
            .saturating_add(number(length.elements).saturating_mul(BESIDE_BYTES));
        let bytes = match op {
            TreeOp::Range { .. } => all.saturating_add(PAGE_BYTES),
            TreeOp::GetMany { .. } if !self.kind.is_of_one() => all.min(PAGE_BYTES),
            // As it turns out to be.
            TreeOp::ScoreRange { .. } | TreeOp::ScoreOf { .. } => all.min(PAGE_BYTES),
            // One value, which is read and then copied.
            _ => 2 * all.min(self.output.value_bytes_max()),
        };
        if held.bytes() == 0 {
            *held = self.output.hold_when_free(self.core, bytes).await?;
        } else if held.bytes() < bytes {
            // Under a section it waits for none.
            held.grow_to(bytes)?;
        }
        Ok(())
    }

    /// Reads what the reply is made of, and makes it.
    async fn read(&mut self, held: &mut Charge, length: &TreeLength, op: TreeOp<'_>) -> Result<()> {
        match op {
            TreeOp::Range { .. } => {
                self.write(|kind, writer| {
                    let count = usize::try_from(length.elements).unwrap_or(usize::MAX);
                    kind.write_head(count, writer);
                });
                let mut last = Vec::new();
                loop {
                    let from = if last.is_empty() {
                        TreeBound::Unbounded
                    } else {
                        TreeBound::Excluded(&last)
                    };
                    let (key, guard) = (self.key, self.guard);
                    let tree = self.core.tree(key).tagged(guard.tag);
                    let tree = tree.at_version(guard.version.unwrap_or(0));
                    let mut tree = tree;
                    let page = tree
                        .range(from, TreeBound::Unbounded, false, u32::MAX)
                        .await?;
                    if let Some((key, _)) = page.last().filter(|_| page.has_more()) {
                        last = key.to_vec();
                    }
                    if !self.take(held, &page).await? {
                        return Ok(());
                    }
                }
            }
            TreeOp::GetMany { keys } if !self.kind.is_of_one() => {
                let keys: Vec<_> = keys.iter().collect();
                self.write(|kind, writer| kind.write_head(keys.len(), writer));
                self.read_values(held, &keys).await
            }
            TreeOp::ScoreRange {
                range,
                reverse,
                skip,
                limit,
            } => self.read_range(held, (range, reverse), (skip, limit)).await,
            TreeOp::ScoreOf { members } => {
                let members: Vec<_> = members.iter().collect();
                self.write(|kind, writer| kind.write_head(members.len(), writer));
                self.read_scores(held, &members).await
            }
            op => self.read_one(op).await,
        }
    }

    /// Adds to the reply.
    fn write(&mut self, write: impl FnOnce(ReplyKind, &mut Writer<'_>)) {
        write(self.kind, &mut Writer::new(&mut self.reply, self.protocol));
    }

    /// Has memory for bytes that are added to the reply.
    fn grow(&mut self, held: &mut Charge, bytes: usize) -> Result<()> {
        let needed = self.reply.len() + bytes;
        if needed > self.reply.capacity() {
            let wanted = needed + needed / 4;
            if wanted + PAGE_BYTES > held.bytes() {
                held.grow_to(wanted + PAGE_BYTES)?;
            }
            self.reply.reserve_exact(wanted - self.reply.len());
        }
        Ok(())
    }

    /// Adds a page of elements; returns whether there are more.
    async fn take(&mut self, held: &mut Charge, page: &TreePage) -> Result<bool> {
        let sizes = page.iter().map(|(key, value)| key.len() + value.len());
        let (count, bytes) = sizes.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one));
        self.grow(held, bytes + count * BESIDE_BYTES)?;
        self.write(|kind, writer| kind.write_page(page, writer));
        steps::count_copied(bytes);
        self.output.end_read(self.core, (count, bytes)).await?;
        Ok(page.has_more())
    }

    /// Adds the values of several keys.
    async fn read_values(&mut self, held: &mut Charge, keys: &[&[u8]]) -> Result<()> {
        let mut done = 0;
        while done < keys.len() {
            let wanted = &keys[done..keys.len().min(done + VALUES_AT_ONCE)];
            let (key, guard) = (self.key, self.guard);
            let tree = self.core.tree(key).tagged(guard.tag);
            let mut tree = tree.at_version(guard.version.unwrap_or(0));
            let found = tree.get_many(wanted).await?;
            let values = || found.iter().zip(wanted);
            let bytes: usize = values()
                .map(|(value, _)| value.map_or(0, <[u8]>::len))
                .sum();
            let count = values().count();
            if count == 0 {
                return Err(Error::CollectionVersion { current: 0 }.into());
            }
            self.grow(held, bytes + count * BESIDE_BYTES)?;
            self.write(|kind, writer| {
                for (value, key) in values() {
                    kind.write_value(key, value, writer);
                }
            });
            done += count;
            steps::count_copied(bytes);
            self.output.end_read(self.core, (count, bytes)).await?;
        }
        Ok(())
    }

    /// Adds the members of a range of a sorted set, without some, and at most `limit`.
    async fn read_range(
        &mut self,
        held: &mut Charge,
        (range, reverse): (TreeScoreRange<'_>, bool),
        (skip, limit): (u64, u32),
    ) -> Result<()> {
        let (key, guard) = (self.key, self.guard);
        let version = guard.version.unwrap_or(0);
        let tree = self.core.tree(key).tagged(guard.tag);
        let count = tree.at_version(version).score_count(range).await?;
        let mut left = count.unwrap_or(0).saturating_sub(skip).min(limit.into());
        let (mut skip, count) = (skip, usize::try_from(left).unwrap_or(usize::MAX));
        self.write(|kind, writer| kind.write_head(count, writer));
        while left > 0 {
            let limit = u32::try_from(left).unwrap_or(u32::MAX);
            let tree = self.core.tree(key).tagged(guard.tag);
            let mut tree = tree.at_version(version);
            let page = tree.score_range(range, reverse, skip, limit).await?;
            let count = page.iter().count() as u64;
            if count == 0 {
                return Err(Error::CollectionVersion { current: 0 }.into());
            }
            skip += count;
            left = left.saturating_sub(count);
            self.take(held, &page).await?;
        }
        Ok(())
    }

    /// Adds the scores of several members.
    async fn read_scores(&mut self, held: &mut Charge, members: &[&[u8]]) -> Result<()> {
        let mut done = 0;
        while done < members.len() {
            let wanted = &members[done..members.len().min(done + VALUES_AT_ONCE)];
            let (key, guard) = (self.key, self.guard);
            let tree = self.core.tree(key).tagged(guard.tag);
            let mut tree = tree.at_version(guard.version.unwrap_or(0));
            let found = tree.scores_of(wanted).await?;
            let count = found.iter().count();
            if count == 0 {
                return Err(Error::CollectionVersion { current: 0 }.into());
            }
            self.grow(held, count * BESIDE_BYTES)?;
            self.write(|_, writer| found.iter().for_each(|score| write_score(score, writer)));
            done += count;
            self.output.end_read(self.core, (count, count)).await?;
        }
        Ok(())
    }

    /// Makes the reply of the answer to a whole operation.
    async fn read_one(&mut self, op: TreeOp<'_>) -> Result<()> {
        let operation = Operation::Tree {
            key: self.key,
            op,
            guard: self.guard,
        };
        let (kind, protocol) = (self.kind, self.protocol);
        let (reply, mut failed) = (&mut self.reply, None);
        let asked = self.core.many([operation], |_, answer| match answer {
            Answer::Failed(error) => failed = Some(error.clone()),
            answer => write_answer(kind, &answer, &mut Writer::new(reply, protocol)),
        });
        asked.await?;
        steps::count_copied(2 * self.reply.len());
        self.output.turn(self.core, self.reply.len()).await;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}
