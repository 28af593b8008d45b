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

mod gather;
mod lists;
mod maps;
mod parts;
mod sorted;
mod streams;
#[cfg(test)]
mod tests;

use farcore::{TreeEffect, TreeKind, TreeOp};

use self::gather::Gather;
use self::parts::Done;
pub(crate) use self::parts::NoCommand;
use crate::types::kind::Kind;

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
