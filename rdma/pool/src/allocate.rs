//! Allocation: which node, and what is claimed there if nothing claimed has room.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_channel::{Receiver, bounded};

use crate::allocation::Span;
use crate::command::{Command, Granted};
use crate::error::{PoolError, Result};
use crate::heap::ALIGN_MAX;
use crate::options::Placement;
use crate::shared::Shared;

/// Extents that are claimed at once: a word of a node's bitmap.
const RUN_MAX: u64 = 64;

/// Frees what was taken if the allocation fails or is given up.
struct Taken<'a> {
    shared: &'a Shared,
    spans: Vec<Span>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.shared.give_spans(&self.spans);
    }
}

/// Takes memory of at least `bytes`. Cost: no round trip if what is claimed has room; else a claim,
/// which takes two.
pub(crate) async fn allocate(
    shared: &Shared,
    bytes: u64,
    align: u64,
    placement: &Placement,
) -> Result<Vec<Span>> {
    if align > ALIGN_MAX {
        let limit = ALIGN_MAX;
        return Err(PoolError::Alignment { align, limit });
    }
    if bytes == 0 {
        return Ok(Vec::new());
    }
    if *placement != Placement::Spread {
        let order = order(shared, placement)?;
        for &node in &order {
            if bytes > shared.nodes[node].extent_bytes() {
                continue;
            }
            if let Some(mut span) = take(shared, node, bytes, align).await? {
                span.bytes = bytes;
                return Ok(vec![span]);
            }
        }
    }
    allocate_spans(shared, bytes, align, placement).await
}

/// Takes a piece or pages of one node; `None` if it has no room.
pub(crate) async fn take(
    shared: &Shared,
    node: usize,
    bytes: u64,
    align: u64,
) -> Result<Option<Span>> {
    loop {
        if shared.nodes[node].is_leaving() {
            // An extent that was granted before that was known goes back, too.
            shared.leave(node);
            return Ok(None);
        }
        if let Some(span) = shared.take(node, bytes, align) {
            return Ok(Some(span));
        }
        let Some(granted) = claim(shared, node, 1).await? else {
            return Ok(None);
        };
        // If the session has ended meanwhile, its successor is tried.
        shared.add(node, granted.session, &[granted.run]);
    }
}

/// Claims extents of a node that lie one behind the other; `None` if it has none or does not
/// answer.
async fn claim(shared: &Shared, node: usize, count: u64) -> Result<Option<Granted>> {
    if !shared.nodes[node].is_up() || shared.nodes[node].is_leaving() {
        return Ok(None);
    }
    let (answer, answered) = bounded(1);
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    if !shared.send(node, Command::Claim { count, answer }) {
        return Err(PoolError::Closed);
    }
    let answered = Answered {
        shared,
        node,
        answered,
    };
    answered
        .answered
        .recv()
        .await
        .map_err(|_| PoolError::Closed)
}

/// The answer to a claim. If it is given up before it comes, the task frees what it has claimed;
/// after that, it is freed here.
struct Answered<'a> {
    shared: &'a Shared,
    node: usize,
    answered: Receiver<Option<Granted>>,
}

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        self.answered.close();
        if let Ok(Some(Granted { session, run })) = self.answered.try_recv() {
            let first = run.first;
            self.shared
                .send(self.node, Command::Free { session, first });
        }
    }
}

/// Takes whole extents, of several nodes if need be, and a piece for the rest.
async fn allocate_spans(
    shared: &Shared,
    bytes: u64,
    align: u64,
    placement: &Placement,
) -> Result<Vec<Span>> {
    let mut taken = Taken {
        shared,
        spans: Vec::new(),
    };
    let mut nodes = order(shared, placement)?;
    let mut left = bytes;
    let mut turn = 0;
    while left > 0 && !nodes.is_empty() {
        let place = turn % nodes.len();
        let node = nodes[place];
        let extent_bytes = shared.nodes[node].extent_bytes();
        let span = if left < extent_bytes {
            take(shared, node, left, align).await?
        } else {
            let wanted = (left / extent_bytes.max(1)).min(RUN_MAX);
            let wanted = match placement {
                Placement::Spread => wanted.min(share(bytes, extent_bytes, shared.nodes.len())),
                _ => wanted,
            };
            take_run(shared, node, wanted).await?
        };
        match span {
            Some(mut span) => {
                span.bytes = span.bytes.min(left);
                left -= span.bytes;
                taken.spans.push(span);
                if *placement == Placement::Spread {
                    turn += 1;
                }
            }
            None => {
                nodes.remove(place);
            }
        }
    }
    if left > 0 {
        let usable = order(shared, placement).unwrap_or_default();
        let free = shared.free_bytes();
        let free_bytes = usable.iter().map(|&node| free[node]).sum();
        return Err(PoolError::Exhausted { bytes, free_bytes });
    }
    Ok(std::mem::take(&mut taken.spans))
}

/// Extents of each node, if all have equal parts.
fn share(bytes: u64, extent_bytes: u64, nodes: usize) -> u64 {
    let extents = bytes.div_ceil(extent_bytes.max(1));
    extents.div_ceil(nodes.max(1) as u64).clamp(1, RUN_MAX)
}

/// Claims up to `wanted` extents that lie one behind the other.
pub(crate) async fn take_run(shared: &Shared, node: usize, wanted: u64) -> Result<Option<Span>> {
    let mut count = wanted.max(1);
    loop {
        match claim(shared, node, count).await? {
            Some(granted) => {
                let span = shared.add_whole(node, granted.session, granted.run);
                if let Some(span) = span {
                    return Ok(Some(span));
                }
            }
            None if count > 1 => count = count.div_ceil(2),
            None => return Ok(None),
        }
    }
}

/// The nodes that may be used, the preferred one first.
pub(crate) fn order(shared: &Shared, placement: &Placement) -> Result<Vec<usize>> {
    let nodes = &shared.nodes;
    let may_be_used = |node: &usize| match placement {
        Placement::Node(only) => node == only,
        Placement::Zone(zone) => nodes[*node].zone() == Some(zone),
        Placement::Beside(other) => node != other,
        Placement::Balanced | Placement::Spread => true,
    };
    let mut order: Vec<usize> = (0..nodes.len()).filter(may_be_used).collect();
    if order.is_empty() {
        let names: Vec<_> = nodes.iter().map(crate::node::Node::name).collect();
        return Err(PoolError::NoNode {
            placement: placement.to_string(),
            nodes: names.join(", "),
        });
    }
    // What is claimed of a node that does not answer may be lost.
    let down = order[0];
    order.retain(|&node| nodes[node].is_up());
    if order.is_empty() {
        return Err(PoolError::Down {
            node: nodes[down].name(),
            limit: Duration::ZERO,
            reason: nodes[down].reason(),
        });
    }
    let leaving = order[0];
    order.retain(|&node| !nodes[node].is_leaving());
    if order.is_empty() {
        return Err(PoolError::Leaving {
            node: nodes[leaving].name(),
        });
    }
    if order.len() == 1 {
        return Ok(order);
    }
    // Drawn by free memory, less for those that are busy, so that programs with the same view do
    // not all go to one.
    let free = shared.free_bytes();
    let weight =
        |node: usize| free[node] / (1 + nodes[node].operations.load(Ordering::Relaxed) as u64);
    let own_zone = |node: usize| match placement {
        Placement::Beside(other) => nodes
            .get(*other)
            .is_some_and(|other| nodes[node].zone() != other.zone()),
        _ => shared.options.zone.is_some() && nodes[node].zone() == shared.options.zone.as_deref(),
    };
    let mut ranked: Vec<_> = order
        .iter()
        .map(|&node| (own_zone(node), weight(node), node))
        .collect();
    ranked.sort_by_key(|&(own, weight, _)| Reverse((own, weight)));
    let preferred = ranked.iter().filter(|one| one.0 == ranked[0].0).count();
    let all: u64 = ranked[..preferred].iter().map(|one| one.1).sum();
    let mut ticket = shared.random() % all.max(1);
    let first = ranked[..preferred].iter().position(|one| {
        let won = ticket < one.1;
        ticket = ticket.saturating_sub(one.1);
        won
    });
    if let Some(first) = first {
        ranked[..=first].rotate_right(1);
    }
    order.clear();
    order.extend(ranked.iter().map(|one| one.2));
    Ok(order)
}
