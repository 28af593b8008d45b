//! Growth: a table of twice the size takes the place of one that is full.
//!
//! ```text
//! state: this session grows -> freeze each bucket -> copy -> attach the new memory to the root's
//!        -> describe it -> state: the next table
//! ```
//!
//! Look-ups go on meanwhile; changes wait. If the process dies, another begins anew: what is frozen
//! stays so, and the memory of the new table is freed with its session, or with the root.

use std::sync::Arc;

use async_channel::bounded;

use super::bucket::{Buckets, Layout, frozen};
use super::locked::{Locks, Waiting};
use super::table::{
    NUMBER, RUNS_MAX, Root, STATE, Shape, Table, WORDS_AT_ONCE, description, lock_number, place,
    run_of,
};
use crate::access::{PendingPart, some_at_once};
use crate::allocate;
use crate::allocation::Span;
use crate::command::Command;
use crate::error::{PoolError, Result};
use crate::structures::block::Block;

/// The session of a growth that was given up.
const GIVEN_UP: u64 = (u32::MAX as u64) << 32;

/// The number of the table after one.
fn following(number: u32) -> u32 {
    u32::try_from((u64::from(number) + 1) & NUMBER).unwrap_or(0)
}

/// Gives the root's state back if the growth is given up.
struct Growing<'a> {
    root: &'a Root,
    state: u64,
    number: u32,
    is_done: bool,
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let given_up = GIVEN_UP | u64::from(self.number);
            self.root.block().swap_later(STATE, self.state, given_up);
        }
    }
}

/// Has a map grow, unless another process has, or does.
pub(super) async fn grow(root: &Root, table: &Arc<Table>, layout: Layout) -> Result<()> {
    let number = table.number;
    let attempt = u64::from(lock_number()?) & NUMBER;
    let own = u64::from(root.session) << 32 | attempt << 16 | u64::from(number);
    let mut expected = u64::from(number);
    let mut waiting = Waiting::new(root);
    let mut growing = Growing {
        root,
        state: own,
        number,
        is_done: true,
    };
    loop {
        // Before it is taken: the answer may be lost.
        growing.is_done = false;
        let found = root.block().swap(STATE, expected, own).await?;
        if found == expected {
            break;
        }
        growing.is_done = true;
        if found & NUMBER != u64::from(number) {
            return root.refresh(layout).await;
        }
        // Another has it grow.
        expected = if found >> 32 != 0 && waiting.is_over(found).await? {
            found
        } else {
            u64::from(number)
        };
    }
    freeze(root, table).await?;
    let (shape, image) = copy(table, layout).await?;
    let new = place_table(root, shape, (number, own), image.words()).await?;
    let next = following(number);
    if root.block().swap(STATE, own, next.into()).await? != own {
        return root.refresh(layout).await;
    }
    growing.is_done = true;
    root.set(new);
    Ok(())
}

/// Freezes all buckets: each once its lock is free.
async fn freeze(root: &Root, table: &Arc<Table>) -> Result<()> {
    let works = table.all().map(|bucket| {
        let work = async move {
            let mut locks = Locks::new(root, table);
            locks.lock(bucket).await?;
            let word = table.word(bucket);
            let ident = table.block.read_one(word).await?;
            table.block.swap(word, ident, frozen(ident)).await?;
            locks.unlock().await
        };
        Box::pin(work) as PendingPart<'_>
    });
    some_at_once(works).await
}

/// The words of a table with twice the buckets, or more.
async fn copy(table: &Table, layout: Layout) -> Result<(Shape, Buckets)> {
    let mut buckets = table.shape.buckets;
    loop {
        buckets = buckets.saturating_mul(2);
        let shape = Shape::new(layout, buckets);
        let exhausted = || PoolError::Exhausted {
            bytes: u64::MAX,
            free_bytes: 0,
        };
        let words = shape.words().ok_or_else(exhausted)?;
        let mut image = Buckets::new(layout, vec![0; words]);
        let mut fits = true;
        table
            .each_entry(|key, value| {
                fits = fits && put(&mut image, shape, key, value);
                Ok(())
            })
            .await?;
        if fits {
            return Ok((shape, image));
        }
    }
}

fn put(image: &mut Buckets, shape: Shape, key: &[u64], value: &[u64]) -> bool {
    let at = place(shape, key);
    let next = at.home + 1;
    let (here, there) = (image.free(at.home).count(), image.free(next).count());
    let near = if here >= there { at.home } else { next };
    if here + there > 0 {
        return image.put(near, key, value);
    }
    image.note_spill(at.home);
    image.put(at.spill, key, value)
}

/// Writes the new table into memory that follows the root's, and describes it.
async fn place_table(
    root: &Root,
    shape: Shape,
    (number, own): (u32, u64),
    words: &[u64],
) -> Result<Table> {
    let block = root.block();
    let pool = block.pool();
    let first = block.first_span().ok_or(PoolError::Freed)?;
    let node = first.node;
    let bytes = words.len() as u64 * 8;
    let mut taken = Taken {
        root,
        spans: Vec::new(),
    };
    let extent_bytes = pool.nodes[node].extent_bytes().max(1);
    let mut left = bytes;
    while left > 0 {
        let wanted = left.div_ceil(extent_bytes).min(64);
        let run = allocate::take_run(pool, node, wanted).await?;
        let span = run.filter(|_| taken.spans.len() < RUNS_MAX);
        let refused = || match pool.nodes[node].is_leaving() {
            true => PoolError::Leaving {
                node: pool.nodes[node].name(),
            },
            false => PoolError::Exhausted {
                bytes,
                free_bytes: pool.nodes[node].free_bytes(),
            },
        };
        let span = span.ok_or_else(refused)?;
        left = left.saturating_sub(span.bytes);
        taken.spans.push(span);
    }
    let total = taken.spans.iter().map(|span| span.bytes).sum();
    let anchor = run_of(pool, node, first.slice, extent_bytes);
    let new = Arc::new(match anchor {
        Some(_) => block.beside(taken.spans.clone(), total),
        // Memory of this process follows nothing: it is this handle's.
        None => block.own(std::mem::take(&mut taken.spans), total),
    });
    let mut at = 0;
    for some in words.chunks(WORDS_AT_ONCE) {
        new.write(at, some).await?;
        at += some.len();
    }
    let mut described = vec![shape.buckets as u64, shape.spills as u64, 0];
    if let Some(anchor) = anchor {
        for span in &taken.spans {
            let run = run_of(pool, node, span.slice, span.bytes).ok_or(PoolError::Freed)?;
            attach(block, node, (run.first(), anchor.first())).await?;
            described.push(u64::from(run.first()) << 32 | u64::from(run.count()));
        }
        described[2] = taken.spans.len() as u64;
        // It is no longer this session's alone.
        for span in taken.spans.drain(..) {
            pool.forget_run(&span);
        }
    }
    let next = following(number);
    // Another may have taken over: it describes its own.
    if block.read_one(STATE).await? != own {
        return Err(PoolError::Gone {
            reason: "another process has the map grow".to_owned(),
        });
    }
    block.write(description(next), &described).await?;
    Ok(root.grown_table(new, shape, next))
}

async fn attach(block: &Block, node: usize, (first, anchor): (u32, u32)) -> Result<()> {
    let (answer, answered) = bounded(1);
    let command = Command::Attach {
        first,
        anchor,
        answer,
    };
    if !block.pool().send(node, command) {
        return Err(PoolError::Closed);
    }
    match answered.recv().await {
        Ok(true) => Ok(()),
        Ok(false) => Err(PoolError::Refused {
            node: block.pool().nodes[node].name(),
            reason: "the map's new memory cannot follow its old one".to_owned(),
        }),
        Err(_) => Err(PoolError::Closed),
    }
}

/// Runs that are given back if the growth is given up.
struct Taken<'a> {
    root: &'a Root,
    spans: Vec<Span>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.root.block().pool().give_spans(&self.spans);
    }
}
