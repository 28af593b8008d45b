//! Requests on the fabric: to the right node and session, again after a connection was lost, or
//! not, where that could do them twice.
//!
//! A READ and a WRITE may be repeated: the node closes a lost connection before it accepts another,
//! so no late WRITE follows. An atomic that was sent and not answered is not repeated.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use farcore_rdma::{CompareAndSwap, InitiatorError, QueueOf, ReadInto, Status, WriteFrom};

use crate::allocation::{Allocation, Doubt, FarWord, Given, Part};
use crate::error::{PoolError, Result};
use crate::lane::Lane;
use crate::node::Node;
use crate::shared::Shared;

/// Whether a request whose outcome is unknown is performed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Repeat {
    Again,
    Never,
}

/// How long a request has waited for its node.
struct Patience<'a> {
    shared: &'a Shared,
    node: usize,
    session: u64,
    since: Option<Instant>,
}

/// Counts an operation at its node, as long as it is under way.
struct Load<'a>(&'a AtomicUsize);

impl<'a> Load<'a> {
    fn new(node: &'a Node) -> Self {
        node.operations.fetch_add(1, Ordering::Relaxed);
        Self(&node.operations)
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a> Patience<'a> {
    fn new(shared: &'a Shared, node: usize, session: u64) -> Self {
        Self {
            shared,
            node,
            session,
            since: None,
        }
    }

    fn of(&self) -> QueueOf {
        QueueOf {
            queue: self.node,
            session: Some(self.session),
        }
    }

    fn lost(&self) -> PoolError {
        PoolError::Renewed {
            node: self.shared.nodes[self.node].name(),
        }
    }

    /// Returns when the request may be performed again, or why it failed.
    async fn again(&mut self, error: InitiatorError, repeat: Repeat) -> Result<()> {
        let node = &self.shared.nodes[self.node];
        match error {
            InitiatorError::OtherSession { .. } => return Err(self.lost()),
            InitiatorError::Failed { status, .. } => {
                let connection_was_lost = matches!(
                    status,
                    Status::RetryExceeded | Status::Flushed | Status::ResponseTimeout
                );
                if !connection_was_lost {
                    return Err(PoolError::Refused {
                        node: node.name(),
                        reason: status.to_string(),
                    });
                }
                if repeat == Repeat::Never {
                    let node = node.name();
                    return Err(PoolError::UnknownOutcome { node });
                }
            }
            InitiatorError::Down { .. } => {}
            other => {
                return Err(PoolError::Refused {
                    node: node.name(),
                    reason: other.to_string(),
                });
            }
        }
        let limit = self.shared.options.timeout;
        let since = *self.since.get_or_insert_with(Instant::now);
        if node.session() != self.session {
            return Err(self.lost());
        }
        if since.elapsed() >= limit {
            return Err(PoolError::Down {
                node: node.name(),
                limit,
                reason: node.reason(),
            });
        }
        self.shared.ticks.next().await;
        Ok(())
    }
}

/// Reads places of one node and session.
async fn read_places(
    shared: &Shared,
    lane: &Lane,
    (node, session): (usize, u64),
    reads: &mut [ReadInto<'_>],
) -> Result<()> {
    let _load = Load::new(&shared.nodes[node]);
    let mut patience = Patience::new(shared, node, session);
    loop {
        match lane.initiator().read_many(patience.of(), reads).await {
            Ok(()) => return Ok(()),
            Err(error) => patience.again(error, Repeat::Again).await?,
        }
    }
}

/// Writes places of one node and session.
async fn write_places(
    shared: &Shared,
    lane: &Lane,
    (node, session): (usize, u64),
    writes: &[WriteFrom<'_>],
) -> Result<()> {
    let _load = Load::new(&shared.nodes[node]);
    let mut patience = Patience::new(shared, node, session);
    loop {
        match lane.initiator().write_many(patience.of(), writes).await {
            Ok(()) => return Ok(()),
            Err(error) => patience.again(error, Repeat::Again).await?,
        }
    }
}

/// Bytes to be read, wherever they lie.
pub(crate) struct Read<'a, 'b> {
    pub(crate) allocation: &'a Allocation,
    pub(crate) offset: u64,
    pub(crate) into: &'b mut [u8],
}

/// Bytes to be written, wherever they go.
pub(crate) struct Write<'a, 'b> {
    pub(crate) allocation: &'a Allocation,
    pub(crate) offset: u64,
    pub(crate) from: &'b [u8],
}

/// A part that is all of an access: most are.
fn only_part(allocation: &Allocation, offset: u64, bytes: usize) -> Option<Part> {
    let part = allocation.parts(offset, bytes as u64).next()?;
    (part.bytes == bytes).then_some(part)
}

/// Reads checked bytes.
pub(crate) async fn read(shared: &Shared, lane: &Lane, read: Read<'_, '_>) -> Result<()> {
    let Read {
        allocation,
        offset,
        into,
    } = read;
    if into.is_empty() {
        return Ok(());
    }
    let unfinished = allocation.begin();
    let done = if let Some(part) = only_part(allocation, offset, into.len()) {
        let remote = part.slice;
        let reads = &mut [ReadInto { remote, into }];
        read_places(shared, lane, (part.node, part.session), reads).await
    } else {
        let mut reads = [Read {
            allocation,
            offset,
            into,
        }];
        read_all(shared, lane, &mut reads).await
    };
    unfinished.finish(&done);
    done
}

/// Reads checked bytes of many places, all nodes at once.
pub(crate) async fn read_all(
    shared: &Shared,
    lane: &Lane,
    reads: &mut [Read<'_, '_>],
) -> Result<()> {
    let mut of_nodes: Vec<((usize, u64), Vec<ReadInto<'_>>)> = Vec::new();
    for read in reads.iter_mut() {
        let allocation = read.allocation;
        let mut into = &mut read.into[..];
        for part in allocation.parts(read.offset, into.len() as u64) {
            let (first, rest) = into.split_at_mut(part.bytes);
            into = rest;
            let one = ReadInto {
                remote: part.slice,
                into: first,
            };
            push(&mut of_nodes, (part.node, part.session), one);
        }
    }
    if let [(node, reads)] = &mut of_nodes[..] {
        return read_places(shared, lane, *node, reads).await;
    }
    let all = of_nodes.iter_mut().map(|(node, reads)| {
        let work = read_places(shared, lane, *node, reads);
        Box::pin(work) as PendingPart<'_>
    });
    Together::new(all).await
}

/// Writes checked bytes.
pub(crate) async fn write(shared: &Shared, lane: &Lane, write: Write<'_, '_>) -> Result<()> {
    let Write {
        allocation,
        offset,
        from,
    } = write;
    if from.is_empty() {
        return Ok(());
    }
    let unfinished = allocation.begin();
    let done = if let Some(part) = only_part(allocation, offset, from.len()) {
        let remote = part.slice;
        let writes = &[WriteFrom { remote, from }];
        write_places(shared, lane, (part.node, part.session), writes).await
    } else {
        let writes = [Write {
            allocation,
            offset,
            from,
        }];
        write_all(shared, lane, &writes).await
    };
    unfinished.finish(&done);
    done
}

/// Writes checked bytes to many places, all nodes at once; in order on one node.
pub(crate) async fn write_all(
    shared: &Shared,
    lane: &Lane,
    writes: &[Write<'_, '_>],
) -> Result<()> {
    let mut of_nodes: Vec<((usize, u64), Vec<WriteFrom<'_>>)> = Vec::new();
    for write in writes {
        let mut from = write.from;
        for part in write.allocation.parts(write.offset, from.len() as u64) {
            let (first, rest) = from.split_at(part.bytes);
            from = rest;
            let one = WriteFrom {
                remote: part.slice,
                from: first,
            };
            push(&mut of_nodes, (part.node, part.session), one);
        }
    }
    if let [(node, writes)] = &of_nodes[..] {
        return write_places(shared, lane, *node, writes).await;
    }
    let all = of_nodes.iter().map(|(node, writes)| {
        let work = write_places(shared, lane, *node, writes);
        Box::pin(work) as PendingPart<'_>
    });
    Together::new(all).await
}

fn push<T>(of_nodes: &mut Vec<((usize, u64), Vec<T>)>, node: (usize, u64), one: T) {
    match of_nodes.iter_mut().find(|(other, _)| *other == node) {
        Some((_, all)) => all.push(one),
        None => of_nodes.push((node, vec![one])),
    }
}

/// The part that holds a checked word.
fn word_part(allocation: &Allocation, offset: u64) -> Result<Part> {
    let part = only_part(allocation, offset, 8);
    part.ok_or(PoolError::Unaligned { offset, align: 8 })
}

/// Stores `desired` in a checked word if it equals `expected`. Returns the old value.
pub(crate) async fn compare_and_swap(
    shared: &Shared,
    lane: &Lane,
    (allocation, offset): (&Allocation, u64),
    (expected, desired): (u64, u64),
) -> Result<u64> {
    let part = word_part(allocation, offset)?;
    let unfinished = allocation.begin();
    let _load = Load::new(&shared.nodes[part.node]);
    let mut patience = Patience::new(shared, part.node, part.session);
    let swap = CompareAndSwap {
        remote: part.slice,
        expected,
        desired,
    };
    let mut old = [0];
    let done = loop {
        let swapped = lane
            .initiator()
            .compare_and_swap_many(patience.of(), &[swap], &mut old)
            .await;
        match swapped {
            Ok(()) => break Ok(old[0]),
            Err(error) => match patience.again(error, Repeat::Never).await {
                Ok(()) => {}
                Err(error) => break Err(error),
            },
        }
    };
    unfinished.finish(&done);
    done
}

/// Adds to a checked word, wrapping. Returns the old value.
pub(crate) async fn fetch_add(
    shared: &Shared,
    lane: &Lane,
    (allocation, offset): (&Allocation, u64),
    addend: u64,
) -> Result<u64> {
    let part = word_part(allocation, offset)?;
    let unfinished = allocation.begin();
    let _load = Load::new(&shared.nodes[part.node]);
    let mut patience = Patience::new(shared, part.node, part.session);
    let done = loop {
        let added = lane
            .initiator()
            .fetch_add(patience.of(), part.slice, addend)
            .await;
        match added {
            Ok(old) => break Ok(old),
            Err(error) => match patience.again(error, Repeat::Never).await {
                Ok(()) => {}
                Err(error) => break Err(error),
            },
        }
    };
    unfinished.finish(&done);
    done
}

/// Reads a word that belongs to no allocation of this process.
pub(crate) async fn read_word(
    shared: &Shared,
    lane: &Lane,
    word: FarWord,
    into: &mut [u8; 8],
) -> Result<()> {
    let reads = &mut [ReadInto {
        remote: word.slice,
        into,
    }];
    read_places(shared, lane, (word.node, word.session), reads).await
}

/// Stores a value, the second, in such a word if it equals the first. Returns the old value.
pub(crate) async fn swap_word(
    shared: &Shared,
    lane: &Lane,
    word: FarWord,
    (expected, desired): (u64, u64),
) -> Result<u64> {
    let mut patience = Patience::new(shared, word.node, word.session);
    loop {
        let swapped = lane
            .initiator()
            .compare_and_swap(patience.of(), word.slice, expected, desired)
            .await;
        match swapped {
            Ok(old) => return Ok(old),
            Err(error) => patience.again(error, Repeat::Never).await?,
        }
    }
}

/// Swaps a checked word some time later, once what this process has posted to its node is done.
pub(crate) fn swap_later(allocation: &Allocation, offset: u64, values: (u64, u64)) {
    if let Some(part) = only_part(allocation, offset, 8) {
        let word = FarWord {
            node: part.node,
            session: part.session,
            slice: part.slice,
        };
        let given = Given::Swap(word, values.0, values.1);
        let doubt = Doubt {
            running: Arc::default(),
            nodes: vec![(part.node, part.session)],
        };
        allocation.pool.give(given, Some(doubt));
    }
}

/// Performs requests of which a few dozen are in flight at once; the first error.
pub(crate) async fn some_at_once<'a>(
    works: impl IntoIterator<Item = PendingPart<'a>>,
) -> Result<()> {
    let mut works = works.into_iter();
    loop {
        let some = Together::new(works.by_ref().take(AT_ONCE));
        if some.left.is_empty() {
            return Ok(());
        }
        some.await?;
    }
}

/// Requests that are in flight at once.
const AT_ONCE: usize = 32;

pub(crate) type PendingPart<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// Several requests at once; the first error, after all have ended.
struct Together<'a> {
    left: Vec<Option<PendingPart<'a>>>,
    failed: Option<PoolError>,
}

impl<'a> Together<'a> {
    fn new(parts: impl Iterator<Item = PendingPart<'a>>) -> Self {
        Self {
            left: parts.map(Some).collect(),
            failed: None,
        }
    }
}

impl Future for Together<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { left, failed } = &mut *self;
        let mut is_pending = false;
        for one in left {
            let Some(work) = one else { continue };
            match work.as_mut().poll(context) {
                Poll::Pending => is_pending = true,
                Poll::Ready(done) => {
                    *one = None;
                    if let Err(error) = done {
                        failed.get_or_insert(error);
                    }
                }
            }
        }
        if is_pending {
            return Poll::Pending;
        }
        Poll::Ready(self.failed.take().map_or(Ok(()), Err))
    }
}
