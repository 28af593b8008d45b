//! Export and import: how a process comes to share the memory of another.
//!
//! ```text
//! export   a reference word beside the memory; a grant for each run of extents
//! import   share the extents at their nodes, by the grants; then raise the word
//! drop     lower the word; then give up the shares
//! free     the exporter's, once the word is dead
//! ```
//!
//! - I1: an importer shares the word's extent before it looks at the word, and the exporter looks
//!   at the shares after the word is dead. So either the importer finds it dead, or the exporter
//!   knows of the importer.
//! - I2: what fails half-way is undone: the shares are given up, and what a lost answer may have
//!   raised the word by is lowered by the exporter when no one shares the extent.

use std::sync::Arc;

use async_channel::bounded;
use farcore_rdma::control::Grant;
use farcore_rdma::session::SessionFacts;
use farcore_rdma::{ExtentRun, RemoteSlice};
use farcore_tuning::entropy_u32;

use crate::access;
use crate::allocate;
use crate::allocation::{Allocation, FarWord, Given, Holding, SharedRun, Span};
use crate::command::Command;
use crate::error::{PoolError, Result};
use crate::export::{Access, Parts, Place};
use crate::heap::Home;
use crate::lane::Lane;
use crate::pool::Handle;
use crate::shared::Shared;
use crate::word::Count;

/// The length of a reference word's piece.
const WORD_BYTES: u64 = 8;

fn gone(reason: &str) -> PoolError {
    PoolError::Gone {
        reason: reason.to_owned(),
    }
}

/// The facts of a session of this pool, if it is still the node's.
fn facts_of(shared: &Shared, node: usize, session: u64) -> Result<SessionFacts> {
    let facts = shared.nodes[node].facts().ok_or(PoolError::Embedded)?;
    if shared.nodes[node].session() != session {
        let node = shared.nodes[node].name();
        return Err(PoolError::Renewed { node });
    }
    Ok(facts)
}

/// The extents of a span, and its offset in them.
fn run_of(facts: &SessionFacts, span: &Span) -> Result<(ExtentRun, u64)> {
    let outside = || gone("its place is outside the node's memory");
    let (first, offset) = facts.map().extent_of(span.slice).ok_or_else(outside)?;
    let extents = (offset + span.bytes).div_ceil(facts.map().extent_bytes);
    let count = u32::try_from(extents).map_err(|_| outside())?;
    let run = ExtentRun::new(first, count).ok_or_else(outside)?;
    Ok((run, offset))
}

fn place_of(shared: &Shared, span: &Span, may_write: bool) -> Result<Place> {
    let facts = facts_of(shared, span.node, span.session)?;
    let (run, offset) = run_of(&facts, span)?;
    shared.note_exported(span.node, run);
    Ok(Place {
        incarnation: facts.incarnation(),
        grant: facts.grant(run, may_write),
        offset,
        bytes: span.bytes,
    })
}

/// Makes what a pointer to an allocation says, all but the type.
pub(crate) async fn export(allocation: &Allocation, lane: &Lane, access: Access) -> Result<Parts> {
    let shared: &Shared = &allocation.pool;
    allocation.check(0, 0, 1)?;
    let may_write = access != Access::Read;
    let (word, generation) = exported_word(allocation, lane, access).await?;
    let place = |span: &Span| place_of(shared, span, may_write);
    let places = allocation.spans().iter().map(place);
    Ok(Parts {
        mark: 0,
        count: 0,
        access,
        generation,
        places: places.collect::<Result<_>>()?,
        word: place_of(shared, &word, may_write)?,
    })
}

/// The reference word of an allocation, made the first time.
async fn exported_word(
    allocation: &Allocation,
    lane: &Lane,
    access: Access,
) -> Result<(Span, u32)> {
    let shared: &Shared = &allocation.pool;
    let reads_only = access == Access::Read;
    if let Some(found) = found_word(allocation, reads_only)? {
        return Ok(found);
    }
    if shared.nodes.iter().all(|node| node.facts().is_none()) {
        return Err(PoolError::Embedded);
    }
    let word = Span {
        bytes: WORD_BYTES,
        ..take_word(allocation).await?
    };
    let generation = entropy_u32().map_err(|error| gone(&error.to_string()))?;
    let own = Allocation::new(
        Arc::clone(&allocation.pool),
        vec![word],
        WORD_BYTES,
        Holding::Owned,
    );
    let bytes = Count::first(generation).word().to_le_bytes();
    let write = access::Write {
        allocation: &own,
        offset: 0,
        from: &bytes,
    };
    access::write(shared, lane, write).await?;
    let mut holding = allocation.holding();
    if *holding == Holding::Owned {
        *holding = Holding::Exported {
            word,
            generation,
            has_readers: reads_only,
        };
        // The exported allocation gives the word back.
        own.disown();
        return Ok((word, generation));
    }
    drop(holding);
    // Another call was faster.
    found_word(allocation, reads_only)?.ok_or_else(|| gone("it was freed meanwhile"))
}

/// Takes memory for a word: on a node that holds the allocation, if one has room.
async fn take_word(allocation: &Allocation) -> Result<Span> {
    let shared: &Shared = &allocation.pool;
    let own = allocation.spans().iter().map(|span| span.node);
    for node in own.chain(0..shared.nodes.len()) {
        if let Some(word) = allocate::take(shared, node, WORD_BYTES, WORD_BYTES).await? {
            return Ok(word);
        }
    }
    Err(PoolError::Exhausted {
        bytes: WORD_BYTES,
        free_bytes: 0,
    })
}

fn found_word(allocation: &Allocation, reads_only: bool) -> Result<Option<(Span, u32)>> {
    match &mut *allocation.holding() {
        Holding::Owned => Ok(None),
        Holding::Exported {
            word,
            generation,
            has_readers,
        } => {
            *has_readers |= reads_only;
            Ok(Some((*word, *generation)))
        }
        Holding::Imported { .. } => Err(gone("it was imported: its exporter can export it again")),
    }
}

/// Gives an exported allocation up for a pointer with the right to free.
pub(crate) async fn send(allocation: &Allocation, lane: &Lane) -> Result<()> {
    let shared: &Shared = &allocation.pool;
    let word = match *allocation.holding() {
        Holding::Exported { word, .. } => FarWord {
            node: word.node,
            session: word.session,
            slice: word.slice,
        },
        _ => return Err(gone("it is not exported")),
    };
    let mut seen = read_word(shared, lane, word).await?;
    loop {
        if seen.is_on_its_way() {
            return Err(gone("another pointer with the right to free is on its way"));
        }
        let old = access::swap_word(shared, lane, word, (seen.word(), seen.sent().word())).await?;
        if old == seen.word() {
            allocation.send_away();
            return Ok(());
        }
        seen = Count::of(old);
    }
}

async fn read_word(shared: &Shared, lane: &Lane, word: FarWord) -> Result<Count> {
    let mut bytes = [0; 8];
    access::read_word(shared, lane, word, &mut bytes).await?;
    Ok(Count::of(u64::from_le_bytes(bytes)))
}

/// Shares that are given up unless the import succeeds.
struct Attempt<'a> {
    shared: &'a Shared,
    word: Option<FarWord>,
    runs: Vec<SharedRun>,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.word.is_some() || !self.runs.is_empty() {
            let runs = std::mem::take(&mut self.runs);
            let word = self.word.take();
            self.shared.give(Given::Imported { word, runs }, None);
        }
    }
}

/// Imports a pointer.
pub(crate) async fn import(
    pool: &Arc<Handle>,
    lane: &Lane,
    parts: &Parts,
    value_bytes: usize,
) -> Result<Allocation> {
    let shared: &Shared = pool;
    let malformed = |reason: &str| PoolError::Malformed {
        reason: reason.to_owned(),
    };
    let lengths = parts.places.iter().map(|place| place.bytes);
    let held = lengths.fold(0_u64, u64::saturating_add);
    let bytes = parts.count.checked_mul(value_bytes as u64);
    let bytes = bytes.filter(|&bytes| bytes <= held && usize::try_from(bytes).is_ok());
    let bytes = bytes.ok_or_else(|| malformed("it names more values than bytes"))?;
    let mut attempt = Attempt {
        shared,
        word: None,
        runs: Vec::new(),
    };
    let (word, is_own) = join(shared, &parts.word, &mut attempt).await?;
    if parts.word.bytes != WORD_BYTES || !word.slice.offset.is_multiple_of(WORD_BYTES) {
        return Err(malformed("its reference word is none"));
    }
    let mut spans = Vec::with_capacity(parts.places.len());
    for place in &parts.places {
        let (at, _) = join(shared, place, &mut attempt).await?;
        spans.push(Span {
            node: at.node,
            session: at.session,
            slice: at.slice,
            start: 0,
            bytes: place.bytes,
            // Nothing is given back by it.
            home: Home::Run { first: u32::MAX },
        });
    }
    let word = FarWord {
        node: word.node,
        session: word.session,
        slice: word.slice,
    };
    // A share that only reads cannot raise the word, unless the memory is this pool's own.
    let counts = parts.access != Access::Read || is_own;
    if is_own {
        shared.begin_own_import(word.node, word.slice);
    }
    if let Err(error) = raise(shared, lane, word, parts, counts).await {
        if is_own {
            shared.end_own_import(word.node, word.slice);
        }
        return Err(error);
    }
    attempt.word = counts.then_some(word);
    let holding = Holding::Imported {
        word: attempt.word.take(),
        runs: std::mem::take(&mut attempt.runs),
        may_write: parts.access != Access::Read,
    };
    Ok(Allocation::new(Arc::clone(pool), spans, bytes, holding))
}

/// Looks whether the exported memory lives, and counts this share.
async fn raise(
    shared: &Shared,
    lane: &Lane,
    word: FarWord,
    parts: &Parts,
    counts: bool,
) -> Result<()> {
    let mut seen = read_word(shared, lane, word).await?;
    loop {
        if !seen.is_alive(parts.generation) {
            return Err(gone("it was freed"));
        }
        if !counts {
            return Ok(());
        }
        let raised = match parts.access {
            Access::Take if !seen.is_on_its_way() => {
                return Err(gone("another process has taken it"));
            }
            Access::Take => seen.arrived(),
            Access::Read | Access::Write => seen.joined(),
        };
        let raised = raised.ok_or_else(|| gone("too many processes share it"))?;
        let old = access::swap_word(shared, lane, word, (seen.word(), raised.word())).await?;
        if old == seen.word() {
            return Ok(());
        }
        seen = Count::of(old);
    }
}

/// A checked place.
struct Joined {
    node: usize,
    session: u64,
    slice: RemoteSlice,
}

/// Shares the extents of a place. Returns where it lies, and whether it is this pool's own.
async fn join(shared: &Shared, place: &Place, attempt: &mut Attempt<'_>) -> Result<(Joined, bool)> {
    let incarnation = place.incarnation;
    let other = || PoolError::OtherNode { incarnation };
    let is_here = |node: &crate::node::Node| {
        node.facts()
            .is_some_and(|facts| facts.incarnation() == incarnation)
    };
    let node = shared.nodes.iter().position(is_here).ok_or_else(other)?;
    let session = shared.nodes[node].session();
    let facts = facts_of(shared, node, session)?;
    let malformed = || PoolError::Malformed {
        reason: "it names bytes outside its extents".to_owned(),
    };
    let map = facts.map();
    let run = place.grant.chunk.run().ok_or_else(malformed)?;
    let start = map.slice(run.first(), 0).ok_or_else(malformed)?;
    let end = place.offset.checked_add(place.bytes);
    if end.is_none_or(|end| end > map.contiguous_bytes(run)) {
        return Err(malformed());
    }
    let is_own = place.grant.session == facts.owner();
    if !is_own {
        share_run(shared, node, place.grant).await?;
        attempt.runs.push(SharedRun { node, session, run });
    }
    let slice = RemoteSlice {
        offset: start.offset + place.offset,
        ..start
    };
    let joined = Joined {
        node,
        session,
        slice,
    };
    Ok((joined, is_own))
}

async fn share_run(shared: &Shared, node: usize, grant: Grant) -> Result<()> {
    let (answer, answered) = bounded(1);
    if !shared.send(node, Command::Share { grant, answer }) {
        return Err(PoolError::Closed);
    }
    let shared = answered.recv().await.map_err(|_| PoolError::Closed)?;
    shared.map_err(|reason| PoolError::Gone { reason })
}
