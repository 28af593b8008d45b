//! Effects on hashes and sets.

use farcore::{TreeChange, TreeEffect, TreeOp};

use super::gather::Gather;
use super::parts::{Done, NoCommand, done};
use crate::types::element::{Entry, entry_of, is_long_key};
use crate::types::kind::Kind;

/// Adds the commands of an effect on a hash or a set.
pub(super) fn add<'a>(kind: Kind, effect: &TreeEffect<'a>, into: &mut Gather<'a, '_>) -> Done {
    let mut changes = Changes {
        kind,
        noted: Noted::of(effect),
        into,
    };
    match effect.op {
        TreeOp::Update { changes: all, .. } => {
            let mut all = all.iter().take(done(effect, 2));
            all.try_for_each(|change| changes.make(change, None))
        }
        TreeOp::Insert { key, value, .. } => {
            let value = Some(value);
            changes.make(TreeChange { key, value }, None)
        }
        TreeOp::Remove { key } => {
            changes.make(TreeChange { key, value: None }, Some(effect.answer))
        }
        TreeOp::CompareAndSet {
            key,
            expected,
            value,
        } => changes.make(TreeChange { key, value }, expected),
        TreeOp::Pop { .. } | TreeOp::TakeAt { .. } | TreeOp::Draw { removes: true, .. } => {
            (effect.elements()).try_for_each(|element| changes.remove(entry_of(element)))
        }
        _ => Err(NoCommand::Operation(kind)),
    }
}

/// Changes of elements.
struct Changes<'c, 'a, 'o> {
    kind: Kind,
    noted: Noted<'a>,
    into: &'c mut Gather<'a, 'o>,
}

impl<'a> Changes<'_, 'a, '_> {
    /// Adds a change; `before` is what the key is known to have held.
    fn make(&mut self, change: TreeChange<'a>, before: Option<&'a [u8]>) -> Done {
        let TreeChange { key, value } = change;
        if let Some(value) = value {
            let entry = entry_of((key, value));
            let (element, value) = entry.ok_or(NoCommand::Malformed(self.kind))?;
            match self.kind {
                Kind::Set => self.into.add("SADD", [element]),
                _ => self.into.add("HSET", [element, value]),
            }
            return Ok(());
        }
        if !is_long_key(key) {
            return self.remove(entry_of((key, &[])));
        }
        // Its element lay before its value. Where it is not known, there was none.
        match self.noted.find(key).or(before) {
            Some(stored) => self.remove(entry_of((key, stored))),
            None => Ok(()),
        }
    }

    /// Adds the removal of an element.
    fn remove(&mut self, entry: Option<Entry<'a>>) -> Done {
        let (element, _) = entry.ok_or(NoCommand::Malformed(self.kind))?;
        let name = match self.kind {
            Kind::Set => "SREM",
            _ => "HDEL",
        };
        self.into.add(name, [element]);
        Ok(())
    }
}

/// The long values of removed elements.
pub(super) struct Noted<'a> {
    all: Vec<(&'a [u8], &'a [u8])>,
    /// Where the next one that is sought is likely.
    next: usize,
}

impl<'a> Noted<'a> {
    pub(super) fn of(effect: &TreeEffect<'a>) -> Self {
        Self {
            all: effect.removed().collect(),
            next: 0,
        }
    }

    /// The value that was removed with a key.
    pub(super) fn find(&mut self, key: &[u8]) -> Option<&'a [u8]> {
        let places = (self.next..self.all.len()).chain(0..self.next);
        let place = places.into_iter().find(|&place| self.all[place].0 == key)?;
        self.next = place + 1;
        Some(self.all[place].1)
    }
}
