//! What the shards of a simulated server have changed, as its thread for replicas takes it.
//!
//! - I1: an entry is noted when the change is made, and may be taken later.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use farcore::Fed;

use crate::replication::replicas::port::Changes;

#[derive(Debug, Default)]
struct Row {
    /// Entries that were not taken.
    entries: VecDeque<Vec<u8>>,
    /// Bytes that were noted since the start.
    noted: u64,
    /// Entries that may be taken now.
    allowed: usize,
}

#[derive(Debug)]
struct Inner {
    is_on: bool,
    rows: Vec<Row>,
    next_section: u64,
}

/// The rows of all shards.
#[derive(Debug)]
pub(super) struct Rows(Mutex<Inner>);

impl Rows {
    pub(super) fn new(shards: usize) -> Self {
        Self(Mutex::new(Inner {
            is_on: false,
            rows: (0..shards).map(|_| Row::default()).collect(),
            next_section: 1,
        }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next section.
    pub(super) fn draw_section(&self) -> u64 {
        let mut inner = self.inner();
        inner.next_section += 1;
        inner.next_section - 1
    }

    /// Notes a change, if changes are noted.
    pub(super) fn note(&self, shard: usize, fed: &Fed<'_>) {
        let mut inner = self.inner();
        if inner.is_on {
            let mut entry = Vec::new();
            fed.append(&mut entry);
            let row = &mut inner.rows[shard];
            row.noted += entry.len() as u64;
            row.entries.push_back(entry);
        }
    }

    /// Allows more entries of a shard to be taken.
    pub(super) fn allow(&self, shard: usize, entries: usize) {
        let row = &mut self.inner().rows[shard];
        row.allowed = (row.allowed + entries).min(row.entries.len());
    }
}

impl Changes for Arc<Rows> {
    fn shards(&self) -> usize {
        self.inner().rows.len()
    }

    fn start(&self, _: &Waker) -> bool {
        let mut inner = self.inner();
        inner.is_on = true;
        inner.rows.fill_with(Row::default);
        true
    }

    fn stop(&self) {
        let mut inner = self.inner();
        inner.is_on = false;
        inner.rows.fill_with(Row::default);
    }

    fn whole_sections(&self) -> u64 {
        self.inner().next_section
    }

    fn noted(&self, shard: usize) -> u64 {
        self.inner().rows[shard].noted
    }

    fn take(&self, shard: usize) -> Option<Vec<u8>> {
        let row = &mut self.inner().rows[shard];
        let taken = row.allowed.min(row.entries.len());
        row.allowed -= taken;
        let chunk: Vec<u8> = row.entries.drain(..taken).flatten().collect();
        (!chunk.is_empty()).then_some(chunk)
    }

    fn give_back(&self, _: usize, _: Vec<u8>) {}

    fn wait(&self) -> bool {
        true
    }
}
