//! Effects as commands: what an operation has done to a collection of the engine, as the Redis
//! commands that make the same change at a replica.
//!
//! ```text
//! effect -> maps (hashes, sets) · lists · sorted (sorted sets) · streams -> gather -> words
//! ```
//!
//! A replica is a Redis, a Valkey or a Farcore whose key is in the state that the source's key had
//! before the operation. It needs nothing of the engine's own: a command names elements, ranks and
//! IDs as clients do.
//!
//! - E1: what was done is sent and nothing else: of an operation that ended midway, its part.
//! - E2: the commands depend on the effect alone. What commands cannot make exactly is no command,
//!   and the replica needs the whole key.
//! - E3: no bytes cause a panic.

#![allow(dead_code, reason = "what feeds replicas follows")]

mod gather;
mod lists;
mod maps;
mod sorted;
mod streams;
#[cfg(test)]
mod tests;

use farcore::{TreeEffect, TreeKind, TreeOp};

use self::gather::Gather;
use crate::types::kind::Kind;

/// Why an effect is no command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoCommand {
    /// No kind of collections has this tag.
    #[error("no kind of collections has the tag {0}")]
    Tag(u8),
    /// The server sends no such operation for the kind.
    #[error("there is no command for this operation on a {}", .0.name())]
    Operation(Kind),
    /// The operation, its answer or an element is not as the server writes it.
    #[error("the effect on a {} is not whole", .0.name())]
    Malformed(Kind),
    /// No commands make the change exactly: the replica needs the whole key.
    #[error("no commands make this change of a {}: {reason}", kind.name())]
    NeedsWhole { kind: Kind, reason: &'static str },
}

type Done = Result<(), NoCommand>;

/// Calls `out` with the words of each command that makes the change of an effect at a replica. The
/// key is as clients know it, without the prefix of its database.
///
/// They are several at times, which belong into one transaction. A key that an operation begins
/// without replacing what was there must be absent at the replica.
///
/// # Errors
/// [`NoCommand`]; then `out` may have been called with a part of the change, which is not to be
/// sent.
pub(crate) fn commands(key: &[u8], effect: &TreeEffect<'_>, out: &mut dyn FnMut(&[&[u8]])) -> Done {
    let kind = Kind::of_tag(effect.tag).ok_or(NoCommand::Tag(effect.tag))?;
    let tree = match kind {
        Kind::Hash | Kind::Set | Kind::Stream => TreeKind::Map,
        Kind::List => TreeKind::List,
        Kind::SortedSet => TreeKind::Scored,
    };
    if effect.kind != tree {
        return Err(NoCommand::Malformed(kind));
    }
    let mut gather = Gather::new(key, out);
    if replaces(&effect.op) {
        gather.send(&[b"DEL", key]);
    }
    match kind {
        Kind::Hash | Kind::Set => maps::add(kind, effect, &mut gather)?,
        Kind::List => lists::add(effect, &mut gather)?,
        Kind::SortedSet => sorted::add(effect, &mut gather)?,
        Kind::Stream => streams::add(effect, &mut gather)?,
    }
    gather.flush();
    Ok(())
}

fn replaces(op: &TreeOp<'_>) -> bool {
    match op {
        TreeOp::Push { replaces, .. }
        | TreeOp::Update { replaces, .. }
        | TreeOp::Score { replaces, .. } => *replaces,
        _ => false,
    }
}

/// How many changes of an operation were made: the first ones.
fn done(effect: &TreeEffect<'_>, place: usize) -> usize {
    usize::try_from(effect.number(place)).unwrap_or(usize::MAX)
}

/// The ends that a trim has removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Trimmed {
    /// Elements that there were.
    before: u64,
    front: u64,
    back: u64,
}

impl Trimmed {
    /// What a trim to these ranks has removed; `None` if the answer is none of a trim.
    fn of(effect: &TreeEffect<'_>, (first, last): (i64, i64)) -> Option<Self> {
        let (removed, after) = (effect.number(0), effect.number(4));
        let before = after.checked_add(removed)?;
        let place = |rank: i64| match u64::try_from(rank) {
            Ok(rank) => Some(rank),
            Err(_) => before.checked_sub(rank.unsigned_abs()),
        };
        let start = place(first).unwrap_or(0).min(before);
        let end = place(last).map_or(0, |last| last.saturating_add(1).min(before));
        // The elements behind the slice go first; all are behind a slice of none.
        let behind = if end <= start { before } else { before - end };
        let back = removed.min(behind);
        let front = removed - back;
        (front <= start).then_some(Self {
            before,
            front,
            back,
        })
    }
}
