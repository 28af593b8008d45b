//! The least log that is right, for tests of disks: blocks that are appended, each with its number,
//! a digest of the block before and one of itself.
//!
//! ```text
//! block: | digest:64 | digest of the block before:64 | number:64 | filling | entry:64 |
//! ```
//!
//! - A1: an entry is acknowledged once its block, and all before it, have been synced.
//! - A2: what is recovered are the first blocks that are whole, each behind the one before it.

use std::collections::VecDeque;

use farcore::disk::{
    DISK_BLOCK_BYTES, Disk, DiskBuffer, DiskError, DiskRefused, DiskRequest, DiskWork,
};

/// A step that is left out, which a test must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeftOut {
    Nothing,
    /// Entries are acknowledged when they are written.
    Sync,
    /// A block is taken for whole whatever its digest says.
    Digest,
    /// A block is taken for the next one whatever came before it.
    Chain,
}

const BLOCK: u64 = DISK_BLOCK_BYTES as u64;
/// The token of a sync.
const SYNC: u64 = u64::MAX;

/// A log that is being written.
#[derive(Debug)]
pub(super) struct Appended {
    left_out: LeftOut,
    /// Digest and number of the next block.
    chain: u64,
    next: u64,
    /// Blocks that are to be written, by number, again where a write has failed.
    to_write: VecDeque<(u64, DiskBuffer)>,
    spare: Vec<DiskBuffer>,
    /// Which blocks, from the first one that is not, have been written.
    written: VecDeque<bool>,
    /// Blocks that are written, and those that were when the sync under way began.
    whole: u64,
    syncing: Option<u64>,
    pub(super) acknowledged: u64,
}

/// The number of a block's last word, which is in its last sector.
const LAST: usize = DISK_BLOCK_BYTES / 8 - 1;

fn words(block: &[u8]) -> [u64; 4] {
    let (words, _) = block.as_chunks();
    [0, 1, 2, LAST].map(|place| u64::from_le_bytes(words[place]))
}

fn digest(block: &[u8]) -> u64 {
    block[8..]
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
        })
}

/// Reads a block again until the disk does not fail; false if the file ends before.
fn read(disk: &mut dyn Disk, number: u64, buffer: &mut Option<DiskBuffer>) -> bool {
    loop {
        let work = DiskWork::Read {
            at: number * BLOCK,
            buffer: buffer.take().expect("it came back"),
        };
        let sent = disk.submit(DiskRequest { token: 0, work });
        assert!(sent.is_ok(), "nothing else is under way");
        let mut result = None;
        while result.is_none() {
            disk.poll(&mut |done| {
                *buffer = done.buffer;
                result = Some(done.result);
            });
        }
        match result.expect("it has completed") {
            Ok(()) => return true,
            Err(DiskError::Io { .. }) => {}
            Err(_) => return false,
        }
    }
}

/// Reads the entries that are there, and goes on behind them.
pub(super) fn recover(disk: &mut dyn Disk, left_out: LeftOut) -> (Vec<u64>, Appended) {
    let (mut entries, mut chain) = (Vec::new(), 0);
    let mut buffer = Some(DiskBuffer::new(1));
    while (entries.len() as u64 + 1) * BLOCK <= disk.capacity()
        && read(disk, entries.len() as u64, &mut buffer)
    {
        let block = buffer.as_ref().expect("it came back").bytes();
        let [known, before, number, entry] = words(block);
        let is_whole = known == digest(block) || left_out == LeftOut::Digest;
        let follows = before == chain || left_out == LeftOut::Chain;
        // One of zeros was never written.
        if known == 0 || !is_whole || !follows || number != entries.len() as u64 {
            break;
        }
        entries.push(entry);
        chain = known;
    }
    let count = entries.len() as u64;
    let log = Appended {
        left_out,
        chain,
        next: count,
        to_write: VecDeque::new(),
        spare: buffer.into_iter().collect(),
        written: VecDeque::new(),
        whole: count,
        syncing: None,
        acknowledged: count,
    };
    (entries, log)
}

impl Appended {
    /// Appends an entry.
    pub(super) fn append(&mut self, entry: u64) {
        let mut buffer = self.spare.pop().unwrap_or_else(|| DiskBuffer::new(1));
        let block = buffer.bytes_mut();
        let (words, _) = block.as_chunks_mut();
        words.fill(entry.to_le_bytes());
        (words[1], words[2]) = (self.chain.to_le_bytes(), self.next.to_le_bytes());
        self.chain = digest(block);
        block[..8].copy_from_slice(&self.chain.to_le_bytes());
        self.to_write.push_back((self.next, buffer));
        self.written.push_back(false);
        self.next += 1;
    }

    /// Submits what is due and sees what has completed; true if the disk is full.
    pub(super) fn step(&mut self, disk: &mut dyn Disk) -> bool {
        while disk.room() > 1
            && let Some((number, buffer)) = self.to_write.pop_front()
        {
            let work = DiskWork::Write {
                at: number * BLOCK,
                buffer,
            };
            let token = number;
            if let Err(DiskRefused::Busy(back) | DiskRefused::Wrong(back, _)) =
                disk.submit(DiskRequest { token, work })
            {
                let buffer = back.work.into_buffer().expect("it had one");
                self.to_write.push_front((number, buffer));
                break;
            }
        }
        if self.syncing.is_none() && self.whole > self.acknowledged && disk.room() > 0 {
            let (token, work) = (SYNC, DiskWork::Sync);
            let sent = disk.submit(DiskRequest { token, work });
            self.syncing = sent.is_ok().then_some(self.whole);
        }
        let mut is_full = false;
        let mut done = Vec::new();
        disk.poll(&mut |one| done.push(one));
        for one in done {
            if one.token == SYNC {
                let synced = self.syncing.take().expect("it was under way");
                // One that has failed is done again.
                if one.result.is_ok() {
                    self.acknowledged = self.acknowledged.max(synced);
                }
                continue;
            }
            let buffer = one.buffer.expect("it had one");
            match one.result {
                Ok(()) => {
                    let first = self.next - self.written.len() as u64;
                    let place = usize::try_from(one.token - first).unwrap_or(usize::MAX);
                    self.written[place] = true;
                    self.spare.push(buffer);
                }
                Err(DiskError::Full) => is_full = true,
                Err(_) => self.to_write.push_back((one.token, buffer)),
            }
        }
        while self.written.front() == Some(&true) {
            self.written.pop_front();
            self.whole += 1;
        }
        if self.left_out == LeftOut::Sync {
            self.acknowledged = self.whole;
        }
        is_full
    }
}
