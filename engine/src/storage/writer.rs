//! Writes a file as a stream of bytes, without blocking and without allocating: what is appended
//! fills blocks, full ones are sealed and written, and syncs make them durable.
//!
//! ```text
//! append -> open block -> sealed, due -> under way -> written -> durable
//!                flush, sync, finish ^       | failed  ^ a sync that began later
//!                                    +-------+ retry
//! ```
//!
//! A block whose write has failed is kept and written again at its place once `retry` is called;
//! nothing else is submitted until then. After a failed sync the kernel may have dropped what was
//! written before, and it is no longer here. The file is given up then, and another is needed.
//!
//! - I1: what counts as synced was written before a sync began that has succeeded.
//! - I2: no block is submitted before the super block is durable.
//! - I3: a block is written with the same bytes however often, and each at a place of its own.

use std::collections::VecDeque;

use super::block::{
    BLOCK_BYTES_MAX, BlockHeader, Chain, END_BYTES, FileEnd, HEADER_BYTES, PAYLOAD_BYTES_MAX,
    Sealer, block_bytes,
};
use super::super_block::{SUPER_BYTES, SuperBlock};
use crate::cipher::EncryptionKey;
use crate::disk::{
    DISK_BLOCK_BYTES, Disk, DiskBuffer, DiskCompletion, DiskError, DiskRefused, DiskRequest,
    DiskWork,
};

/// Buffers of a writer, at least and at most.
const BUFFERS: std::ops::RangeInclusive<usize> = 2..=4;
/// The token of a sync. Those of writes are places in a short table.
const SYNC: u64 = u64::MAX;

/// How far something has come: blocks, the super block among them, and bytes of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Position {
    blocks: u64,
    bytes: u64,
}

/// A sealed block on its way.
#[derive(Debug)]
struct Sealed {
    /// Blocks and bytes of the stream before it.
    before: Position,
    place: u64,
    /// `None` while the disk has it.
    buffer: Option<DiskBuffer>,
}

/// Writes a file.
#[derive(Debug)]
pub(crate) struct FileWriter<D> {
    disk: D,
    blocks: Blocks,
}

/// All of a writer but its disk.
#[derive(Debug)]
struct Blocks {
    sealer: Sealer,
    spare: Vec<DiskBuffer>,
    /// The block that is being filled, and the bytes of its payload: 0 if there is none.
    open: Option<DiskBuffer>,
    filled: usize,
    /// Sealed and not submitted, or failed, in their order.
    due: VecDeque<Sealed>,
    /// Submitted, by token.
    under_way: [Option<Sealed>; *BUFFERS.end()],
    /// What was sealed, and where the next block lies.
    sealed: Position,
    place: u64,
    chain: Chain,
    durable: Position,
    /// The sync under way, with what had been written when it began.
    syncing: Option<Position>,
    /// Blocks that are to be durable next, and after that.
    goal: u64,
    later: u64,
    ending: bool,
    ended: bool,
    failure: Option<DiskError>,
    is_given_up: bool,
}

impl<D: Disk> FileWriter<D> {
    /// Begins a file that is empty, with this many buffers (two to four) of 256 KiB.
    pub(crate) fn new(
        disk: D,
        super_block: &SuperBlock,
        key: Option<&EncryptionKey>,
        buffers: usize,
    ) -> Self {
        let buffers = buffers.clamp(*BUFFERS.start(), *BUFFERS.end());
        let sealer = Sealer::new(key, super_block.salt);
        let buffer = || DiskBuffer::new(BLOCK_BYTES_MAX / DISK_BLOCK_BYTES);
        let spare = (1..buffers).map(|_| buffer()).collect();
        let mut first = buffer();
        if let Some(bytes) = first.bytes_mut().first_chunk_mut() {
            super_block.write(&sealer, bytes);
        }
        first.set_blocks(SUPER_BYTES / DISK_BLOCK_BYTES);
        let mut due = VecDeque::with_capacity(buffers);
        due.push_back(Sealed {
            before: Position::default(),
            place: 0,
            buffer: Some(first),
        });
        let mut blocks = Blocks {
            sealer,
            spare,
            open: None,
            filled: 0,
            due,
            under_way: [const { None }; *BUFFERS.end()],
            sealed: Position {
                blocks: 1,
                bytes: 0,
            },
            place: SUPER_BYTES as u64,
            chain: Chain::default(),
            durable: Position::default(),
            syncing: None,
            goal: 1,
            later: 0,
            ending: false,
            ended: false,
            failure: None,
            is_given_up: false,
        };
        blocks.spare.reserve_exact(1);
        Self { disk, blocks }
    }

    /// Appends as many of some bytes as there is room for, and returns how many: 0 where the caller
    /// must wait. Cost: a copy, and the sealing of each block that is full.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> usize {
        self.blocks.append(bytes)
    }

    /// Bytes that can be appended now.
    pub(crate) fn room(&self) -> usize {
        self.blocks.room()
    }

    /// Has what was appended written, though its block is not full.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn flush(&mut self) {
        self.blocks.flush();
    }

    /// Has what was appended made durable, and returns its end in the stream: it is when
    /// [`synced`](Self::synced) has come there. One sync is under way at a time, and further ones
    /// are one.
    pub(crate) fn sync(&mut self) -> u64 {
        self.blocks.sync();
        self.appended()
    }

    /// Ends the file: what was appended is made durable, and then an end block.
    /// Nothing can be appended any more.
    pub(crate) fn finish(&mut self) {
        self.blocks.ending = true;
        self.blocks.end();
    }

    /// Submits what is due and sees what has completed; returns how many requests have.
    pub(crate) fn poll(&mut self) -> usize {
        let mut count = 0;
        loop {
            self.blocks.end();
            // Again after completions only if they have made another request due.
            if self.submit() == 0 && count > 0 {
                return count;
            }
            let blocks = &mut self.blocks;
            let completed = self.disk.poll(&mut |done| blocks.complete(done));
            count += completed;
            if completed == 0 {
                return count;
            }
        }
    }

    /// Submits what is due; returns how many requests were.
    fn submit(&mut self) -> usize {
        let mut count = 0;
        while let Some(request) = self.blocks.next_request() {
            match self.disk.submit(request) {
                Ok(()) => count += 1,
                Err(DiskRefused::Busy(back)) => {
                    self.blocks.take_back(back.token, back.work.into_buffer());
                    break;
                }
                Err(DiskRefused::Wrong(back, error)) => {
                    self.blocks.take_back(back.token, back.work.into_buffer());
                    self.blocks.failure = Some(error);
                }
            }
        }
        count
    }

    /// Bytes that were appended.
    pub(crate) fn appended(&self) -> u64 {
        self.blocks.sealed.bytes + self.blocks.filled as u64
    }

    /// Those of them, from the first one on, that are durable.
    pub(crate) fn synced(&self) -> u64 {
        self.blocks.durable.bytes
    }

    /// Whether polls have nothing to do: nothing is due, under way or to be synced.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.blocks.is_idle()
    }

    /// Whether the end block is durable.
    pub(crate) fn is_finished(&self) -> bool {
        let is_durable = self.blocks.durable.blocks == self.blocks.sealed.blocks;
        let is_early = farcore_tuning::mutated!("finished-before-durable");
        self.blocks.ended && (is_durable || is_early)
    }

    /// Why a write or a sync has failed, until [`retry`](Self::retry) is called.
    pub(crate) fn error(&self) -> Option<&DiskError> {
        self.blocks.failure.as_ref()
    }

    /// Whether a sync has failed, so that nothing more becomes durable here: what was not synced
    /// must be written to a new file.
    pub(crate) fn needs_new_file(&self) -> bool {
        self.blocks.is_given_up
    }

    /// Has what failed written again. Of no use where a new file is needed.
    pub(crate) fn retry(&mut self) {
        if !self.blocks.is_given_up {
            self.blocks.failure = None;
        }
    }

    /// Bytes of the file with all that was sealed.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.blocks.place
    }

    /// The digest of the tags of all sealed blocks.
    pub(crate) fn chain(&self) -> Chain {
        self.blocks.chain
    }

    /// The disk.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }
}

impl Blocks {
    fn room(&self) -> usize {
        if self.ending || self.is_given_up {
            return 0;
        }
        let open = self
            .open
            .as_ref()
            .map_or(0, |_| PAYLOAD_BYTES_MAX - self.filled);
        open + self.spare.len() * PAYLOAD_BYTES_MAX
    }

    /// Begins a block if none is open and there is a buffer for it.
    fn begin(&mut self) -> Option<&mut DiskBuffer> {
        if self.open.is_none() {
            let mut buffer = self.spare.pop()?;
            buffer.set_blocks(BLOCK_BYTES_MAX / DISK_BLOCK_BYTES);
            self.open = Some(buffer);
        }
        self.open.as_mut()
    }

    fn append(&mut self, mut bytes: &[u8]) -> usize {
        let fits = self.room().min(bytes.len());
        bytes = &bytes[..fits];
        while !bytes.is_empty() {
            let filled = self.filled;
            let (now, rest) = bytes.split_at(bytes.len().min(PAYLOAD_BYTES_MAX - filled));
            let Some(buffer) = self.begin() else { break };
            let start = HEADER_BYTES + filled;
            buffer.bytes_mut()[start..start + now.len()].copy_from_slice(now);
            self.filled = filled + now.len();
            bytes = rest;
            if self.filled == PAYLOAD_BYTES_MAX {
                self.seal(false);
            }
        }
        fits - bytes.len()
    }

    /// Seals the open block, so that it is due.
    fn seal(&mut self, is_end: bool) {
        let Some(mut buffer) = self.open.take() else {
            return;
        };
        let filled = std::mem::take(&mut self.filled);
        let length = block_bytes(filled);
        buffer.set_blocks(length / DISK_BLOCK_BYTES);
        let block = buffer.bytes_mut();
        block[HEADER_BYTES + filled..].fill(0);
        let header = BlockHeader {
            number: self.sealed.blocks,
            place: self.place,
            position: self.sealed.bytes,
            durable: self.durable.blocks,
            bytes: u32::try_from(filled).unwrap_or(u32::MAX),
            is_end,
        };
        self.chain.add(&self.sealer.seal(&header, block));
        self.due.push_back(Sealed {
            before: self.sealed,
            place: self.place,
            buffer: Some(buffer),
        });
        self.place += length as u64;
        self.sealed.blocks += 1;
        // An end block is no part of the stream.
        self.sealed.bytes += if is_end { 0 } else { filled as u64 };
    }

    fn flush(&mut self) {
        if self.filled > 0 {
            self.seal(false);
        }
    }

    fn sync(&mut self) {
        self.flush();
        let wanted = self.sealed.blocks;
        if wanted <= self.durable.blocks {
            return;
        }
        if self.goal <= self.durable.blocks {
            self.goal = wanted;
        } else if self.goal < wanted {
            self.later = wanted;
        }
    }

    /// Writes the end block once all before it is durable, as it then says.
    fn end(&mut self) {
        if !self.ending || self.ended || self.is_given_up {
            return;
        }
        self.sync();
        if self.durable.blocks < self.sealed.blocks {
            return;
        }
        let end = FileEnd {
            length: self.sealed.bytes,
            chain: self.chain,
            blocks: self.sealed.blocks,
        };
        let Some(buffer) = self.begin() else { return };
        let payload = end.to_payload();
        buffer.bytes_mut()[HEADER_BYTES..HEADER_BYTES + END_BYTES].copy_from_slice(&payload);
        self.filled = END_BYTES;
        self.seal(true);
        self.ended = true;
        self.sync();
    }

    /// What was written: all before the first block that was not.
    fn written(&self) -> Position {
        let under_way = self.under_way.iter().flatten();
        let first = under_way.chain(&self.due).map(|block| block.before);
        first
            .min_by_key(|before| before.blocks)
            .unwrap_or(self.sealed)
    }

    /// The next request that can be submitted. It counts as under way.
    fn next_request(&mut self) -> Option<DiskRequest> {
        if self.failure.is_some() || self.is_given_up {
            return None;
        }
        let written = self.written();
        if self.syncing.is_none() && self.goal > self.durable.blocks && written.blocks >= self.goal
        {
            self.syncing = Some(written);
            return Some(DiskRequest {
                token: SYNC,
                work: DiskWork::Sync,
            });
        }
        let is_super = self.due.front()?.before.blocks == 0;
        if self.durable.blocks == 0 && !is_super {
            return None;
        }
        let token = self.under_way.iter().position(Option::is_none)?;
        let mut block = self.due.pop_front()?;
        let (at, buffer) = (block.place, block.buffer.take()?);
        self.under_way[token] = Some(block);
        Some(DiskRequest {
            token: token as u64,
            work: DiskWork::Write { at, buffer },
        })
    }

    /// Takes back a request that was not performed. A block is due again, in its order.
    fn take_back(&mut self, token: u64, buffer: Option<DiskBuffer>) {
        if token == SYNC {
            self.syncing = None;
            return;
        }
        let Some(mut block) = self.take(token) else {
            return;
        };
        block.buffer = buffer;
        let number = block.before.blocks;
        let place = self.due.partition_point(|due| due.before.blocks < number);
        self.due.insert(place, block);
    }

    fn take(&mut self, token: u64) -> Option<Sealed> {
        let place = usize::try_from(token).ok()?;
        self.under_way.get_mut(place).and_then(Option::take)
    }

    fn complete(&mut self, done: DiskCompletion) {
        match (done.token, done.result) {
            (SYNC, result) if result.is_ok() || farcore_tuning::mutated!("failed-sync-counted") => {
                if let Some(covered) = self.syncing.take() {
                    self.durable = covered;
                }
                if self.goal <= self.durable.blocks {
                    self.goal = std::mem::take(&mut self.later);
                }
            }
            (SYNC, Err(error)) => {
                self.syncing = None;
                self.failure = Some(error);
                self.is_given_up = true;
            }
            (token, Ok(())) => {
                self.take(token);
                self.spare.extend(done.buffer);
            }
            (token, Err(error)) => {
                self.take_back(token, done.buffer);
                self.failure = self.failure.or(Some(error));
            }
        }
    }

    #[cfg(test)]
    fn is_idle(&self) -> bool {
        let has_goal = self.goal > self.durable.blocks || (self.ending && !self.ended);
        let is_under_way = self.syncing.is_some() || self.under_way.iter().any(Option::is_some);
        let is_stuck = self.failure.is_some() || self.is_given_up;
        !is_under_way && (is_stuck || (self.due.is_empty() && !has_goal))
    }
}
