//! The live allocations by number, so that a copied pointer notices that its allocation was freed.
//!
//! - I1: a number and a generation name one allocation, for ever: the generation is raised when the
//!   allocation is removed.

use std::sync::{Arc, PoisonError, RwLock, Weak};

use crate::allocation::Allocation;
use crate::error::{PoolError, Result};

/// An allocation's number and generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Name {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    allocation: Option<Weak<Allocation>>,
}

/// The allocations that pointers lead to.
#[derive(Debug, Default)]
pub(crate) struct Table(RwLock<Slots>);

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    vacant: Vec<u32>,
}

impl Table {
    /// Names an allocation.
    pub(crate) fn put(&self, allocation: &Arc<Allocation>) -> Name {
        let slots = &mut *self.0.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.vacant.pop().unwrap_or_else(|| {
            slots.all.push(Slot {
                generation: 0,
                allocation: None,
            });
            u32::try_from(slots.all.len() - 1).unwrap_or(u32::MAX)
        });
        let place = &mut slots.all[slot as usize];
        place.allocation = Some(Arc::downgrade(allocation));
        Name {
            slot,
            generation: place.generation,
        }
    }

    /// The allocation of a name.
    ///
    /// # Errors
    /// [`PoolError::Freed`].
    pub(crate) fn get(&self, name: Name) -> Result<Arc<Allocation>> {
        let slots = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.all.get(name.slot as usize);
        slot.filter(|slot| slot.generation == name.generation)
            .and_then(|slot| slot.allocation.as_ref()?.upgrade())
            .ok_or(PoolError::Freed)
    }

    /// Forgets a name.
    pub(crate) fn remove(&self, name: Name) {
        let slots = &mut *self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = slots.all.get_mut(name.slot as usize) else {
            return;
        };
        if slot.generation != name.generation {
            return;
        }
        slot.allocation = None;
        // A slot whose generations are exhausted is not used again.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            slots.vacant.push(name.slot);
        }
    }
}
