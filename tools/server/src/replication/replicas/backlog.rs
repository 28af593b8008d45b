//! The latest bytes of the stream, which replicas read at their own speed.
//!
//! - B1: bytes are numbered from the beginning of the stream, and those that are kept follow each
//!   other without a hole.

use std::collections::VecDeque;

/// Bytes of a block.
const BLOCK_BYTES: usize = 64 << 10;

/// The latest bytes of a stream.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// All but the last are full.
    blocks: VecDeque<Vec<u8>>,
    /// The number of the first byte that is kept, and of the next one that comes.
    start: u64,
    end: u64,
}

impl Backlog {
    /// Begins anew, with this byte.
    pub(crate) fn begin(&mut self, at: u64) {
        *self = Self {
            start: at,
            end: at,
            ..Self::default()
        };
    }

    /// The number of the first byte that is kept.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The number of the next byte that comes.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Adds bytes.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) {
        self.end += bytes.len() as u64;
        while !bytes.is_empty() {
            if self
                .blocks
                .back()
                .is_none_or(|block| block.len() == BLOCK_BYTES)
            {
                self.blocks.push_back(Vec::with_capacity(BLOCK_BYTES));
            }
            let Some(block) = self.blocks.back_mut() else {
                return;
            };
            let taken = bytes.len().min(BLOCK_BYTES - block.len());
            block.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
        }
    }

    /// Drops bytes before a number, in whole blocks.
    pub(crate) fn trim(&mut self, keep_from: u64) {
        while let Some(block) = self.blocks.front()
            && block.len() == BLOCK_BYTES
            && self.start + BLOCK_BYTES as u64 <= keep_from
        {
            self.start += BLOCK_BYTES as u64;
            self.blocks.pop_front();
        }
    }

    /// Bytes from a number on, as far as they lie together: none at the end, or if that one is not
    /// kept.
    pub(crate) fn bytes_from(&self, at: u64) -> &[u8] {
        let Some(behind) = at.checked_sub(self.start) else {
            return &[];
        };
        let Ok(behind) = usize::try_from(behind) else {
            return &[];
        };
        let block = self.blocks.get(behind / BLOCK_BYTES);
        block.map_or(&[], |block| {
            block.get(behind % BLOCK_BYTES..).unwrap_or(&[])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_by_their_numbers_until_they_are_dropped() {
        let mut backlog = Backlog::default();
        backlog.begin(1000);
        let all: Vec<u8> = (0..300_000u32).map(|number| (number % 251) as u8).collect();
        for part in all.chunks(777) {
            backlog.append(part);
        }
        assert_eq!((backlog.start(), backlog.end()), (1000, 301_000));
        backlog.trim(1000 + 150_000);
        let start = backlog.start();
        assert!(start > 1000 && start <= 151_000);
        let (mut read, mut at) = (Vec::new(), start);
        while at < backlog.end() {
            let bytes = backlog.bytes_from(at);
            read.extend_from_slice(bytes);
            at += bytes.len() as u64;
        }
        assert_eq!(read, all[usize::try_from(start).unwrap() - 1000..]);
        for outside in [0, start - 1, backlog.end(), u64::MAX] {
            assert!(backlog.bytes_from(outside).is_empty());
        }
    }
}
