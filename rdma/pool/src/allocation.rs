//! An allocation: where its bytes lie, and whether it still lives.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farcore_rdma::{ExtentRun, RemoteSlice};

use crate::error::{PoolError, Result};
use crate::heap::Home;
use crate::pool::Handle;

/// Bytes of an allocation that lie one behind the other on one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) node: usize,
    pub(crate) session: u64,
    /// The first byte.
    pub(crate) slice: RemoteSlice,
    /// Its offset in the allocation.
    pub(crate) start: u64,
    /// The length in bytes: what the allocation uses of it.
    pub(crate) bytes: u64,
    pub(crate) home: Home,
}

/// Part of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) node: usize,
    pub(crate) session: u64,
    pub(crate) slice: RemoteSlice,
    pub(crate) bytes: usize,
}

/// A word on a node, in a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FarWord {
    pub(crate) node: usize,
    pub(crate) session: u64,
    pub(crate) slice: RemoteSlice,
}

/// Extents that another session owns and this one shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SharedRun {
    pub(crate) node: usize,
    pub(crate) session: u64,
    pub(crate) run: ExtentRun,
}

/// Whose an allocation's memory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Holding {
    /// This process's alone.
    Owned,
    /// Others may import it.
    Exported {
        word: Span,
        generation: u32,
        /// Whether some may share it without being counted by the word.
        has_readers: bool,
    },
    /// Another process's.
    Imported {
        /// The word that counts this share; `None` if it is not counted.
        word: Option<FarWord>,
        runs: Vec<SharedRun>,
        may_write: bool,
    },
}

/// What an allocation gives back when it is freed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Given {
    /// Memory of this process.
    Spans(Vec<Span>),
    /// Exported memory, to be freed after its last owner.
    Exported(Lingering),
    /// A share.
    Imported {
        word: Option<FarWord>,
        runs: Vec<SharedRun>,
    },
    /// A word that is still the first value, to become the second: a lock of one that was given up.
    Swap(FarWord, u64, u64),
}

/// Exported memory whose exporter has no use for it any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lingering {
    pub(crate) word: Span,
    pub(crate) generation: u32,
    pub(crate) has_readers: bool,
    /// Whether the word still counts the exporter.
    pub(crate) is_counted: bool,
    pub(crate) spans: Vec<Span>,
}

/// An allocation. Its owner frees it, at the latest when dropped.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) pool: Arc<Handle>,
    spans: Box<[Span]>,
    bytes: u64,
    holding: Mutex<Holding>,
    is_read_only: bool,
    /// Operations under way.
    running: Arc<AtomicU32>,
    /// Whether an operation was given up, or its outcome is unknown: what it posted may still be
    /// performed.
    is_in_doubt: AtomicBool,
    is_freed: AtomicBool,
}

impl Allocation {
    pub(crate) fn new(
        pool: Arc<Handle>,
        mut spans: Vec<Span>,
        bytes: u64,
        holding: Holding,
    ) -> Self {
        let is_read_only = matches!(
            holding,
            Holding::Imported {
                may_write: false,
                ..
            }
        );
        let mut start = 0;
        for span in &mut spans {
            span.start = start;
            start += span.bytes;
        }
        debug_assert!(start >= bytes);
        Self {
            pool,
            spans: spans.into_boxed_slice(),
            bytes,
            holding: Mutex::new(holding),
            is_read_only,
            running: Arc::default(),
            is_in_doubt: AtomicBool::new(false),
            is_freed: AtomicBool::new(false),
        }
    }

    /// The length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Why its contents are lost, if they are.
    pub(crate) fn loss(&self) -> Option<PoolError> {
        let lost = self.spans.iter().find(|span| {
            let node = &self.pool.nodes[span.node];
            node.session() != span.session
        })?;
        Some(PoolError::Renewed {
            node: self.pool.nodes[lost.node].name(),
        })
    }

    /// Checks an access of `bytes` at an offset.
    pub(crate) fn check(&self, offset: i128, bytes: u64, align: u64) -> Result<u64> {
        // ORDERING: relaxed; an access that races with the free is as good as one before it.
        if self.is_freed.load(Ordering::Relaxed) {
            return Err(PoolError::Freed);
        }
        let limit = self.bytes;
        let outside = || PoolError::OutOfBounds {
            offset,
            bytes,
            limit,
        };
        let start = u64::try_from(offset).map_err(|_| outside())?;
        if start.checked_add(bytes).is_none_or(|end| end > limit) {
            return Err(outside());
        }
        if !start.is_multiple_of(align) {
            let offset = start;
            return Err(PoolError::Unaligned { offset, align });
        }
        Ok(start)
    }

    /// Checks an access that writes, as [`Allocation::check`].
    pub(crate) fn check_write(&self, offset: i128, bytes: u64, align: u64) -> Result<u64> {
        let start = self.check(offset, bytes, align)?;
        if self.is_read_only {
            return Err(PoolError::ReadOnly);
        }
        Ok(start)
    }

    /// Whose its memory is.
    pub(crate) fn holding(&self) -> MutexGuard<'_, Holding> {
        self.holding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parts of checked bytes, each no longer than a transfer.
    pub(crate) fn parts(&self, offset: u64, bytes: u64) -> impl Iterator<Item = Part> + '_ {
        let longest = u64::from(self.pool.options.transfer_bytes);
        let mut place = self
            .spans
            .partition_point(|span| span.start + span.bytes <= offset);
        let (mut at, end) = (offset, offset + bytes);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let span = &self.spans[place];
            let inside = at - span.start;
            let left = (span.bytes - inside).min(end - at);
            let bytes = left.min(longest);
            at += bytes;
            if inside + bytes == span.bytes {
                place += 1;
            }
            Some(Part {
                node: span.node,
                session: span.session,
                slice: RemoteSlice {
                    offset: span.slice.offset + inside,
                    ..span.slice
                },
                bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            })
        })
    }

    /// Notes that an operation is under way, until the guard is finished.
    pub(crate) fn begin(&self) -> Unfinished<'_> {
        self.running.fetch_add(1, Ordering::SeqCst);
        Unfinished {
            allocation: self,
            is_finished: false,
        }
    }

    /// Lends it to a procedure, which may write it until the loan is given back.
    pub(crate) fn lend(&self) -> Loan {
        self.running.fetch_add(1, Ordering::SeqCst);
        Loan(Arc::clone(&self.running))
    }

    /// Frees it, once.
    pub(crate) fn free(&self) {
        self.end(true);
    }

    /// Leaves its memory to another owner.
    pub(crate) fn disown(&self) {
        self.is_freed.store(true, Ordering::Relaxed);
    }

    /// Its reference word counts a pointer with the right to free in place of its exporter.
    pub(crate) fn send_away(&self) {
        self.end(false);
    }

    fn end(&self, is_counted: bool) {
        if self.is_freed.swap(true, Ordering::Relaxed) {
            return;
        }
        let is_running = self.running.load(Ordering::SeqCst) > 0;
        let in_doubt = is_running || self.is_in_doubt.load(Ordering::SeqCst);
        let spans = self.spans.to_vec();
        let given = match self.holding().clone() {
            Holding::Owned => Given::Spans(spans),
            Holding::Exported {
                word,
                generation,
                has_readers,
            } => Given::Exported(Lingering {
                word,
                generation,
                has_readers,
                is_counted,
                spans,
            }),
            Holding::Imported { word, runs, .. } => Given::Imported { word, runs },
        };
        let nodes = self.spans.iter().map(|span| (span.node, span.session));
        let doubt = in_doubt.then(|| Doubt {
            running: Arc::clone(&self.running),
            nodes: nodes.collect(),
        });
        self.pool.give(given, doubt);
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.free();
    }
}

/// Why memory may still be written after it was given back.
#[derive(Debug)]
pub(crate) struct Doubt {
    /// Operations under way, which may post more.
    pub(crate) running: Arc<AtomicU32>,
    /// Where they post, and in which sessions.
    pub(crate) nodes: Vec<(usize, u64)>,
}

/// An allocation that a procedure may write. If this is dropped, the memory is not used again
/// before its session has ended, which waits for the procedure.
#[derive(Debug)]
pub(crate) struct Loan(Arc<AtomicU32>);

impl Loan {
    /// The procedure has ended, or will never begin.
    pub(crate) fn give_back(self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An operation under way. If it is dropped without [`Unfinished::finish`], or failed, what it
/// posted may still be performed.
pub(crate) struct Unfinished<'a> {
    allocation: &'a Allocation,
    is_finished: bool,
}

impl Unfinished<'_> {
    pub(crate) fn finish<T>(mut self, done: &Result<T>) {
        self.is_finished = done.is_ok();
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.allocation.is_in_doubt.store(true, Ordering::SeqCst);
        }
        self.allocation.running.fetch_sub(1, Ordering::SeqCst);
    }
}
