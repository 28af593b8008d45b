//! Which commands of a stream are about slots that are brought here.

use crate::cluster::{SlotSet, slot_of};
use crate::resp::Arguments;
use std::sync::Arc;

/// What a command is to one who wants the keys of some slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    Yes,
    No,
    /// It is about all keys: what was brought is no state of the stream any more.
    Unknown,
}

/// The slots that are brought here.
#[derive(Debug)]
pub(super) struct SlotFilter {
    pub(super) slots: Arc<SlotSet>,
    /// The beginning of a transaction of which nothing was wanted yet.
    pub(super) begin: Option<Vec<u8>>,
}

impl SlotFilter {
    /// Whether a command is wanted, as a Farcore writes it: its keys have one slot, and follow its
    /// name, or the name of what it does.
    pub(super) fn wants(&self, name: &[u8], arguments: &Arguments, input: &[u8]) -> Wanted {
        let place = match name {
            b"flushall" | b"flushdb" | b"swapdb" => return Wanted::Unknown,
            b"xgroup" => 2,
            _ => 1,
        };
        if place >= arguments.len() {
            return Wanted::Unknown;
        }
        let slot = slot_of(arguments.get(place, input));
        match self.slots.contains(slot) {
            true => Wanted::Yes,
            false => Wanted::No,
        }
    }
}
