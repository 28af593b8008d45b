//! The allocations of a pool, by slot and generation.
//!
//! - I1: a slot and a generation name one allocation, for ever: the generation is raised when the
//!   allocation is taken out. Generations begin at 1, so zeros name nothing.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use farcore_pool::{PoolError, RemoteSlice};

use crate::error::{Code, Failure};

/// What owns an allocation.
pub(super) type Owner = RemoteSlice<u8>;

/// An allocation's slot and generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    owner: Option<Arc<Owner>>,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    vacant: Vec<u32>,
}

/// The allocations of a pool.
#[derive(Debug, Default)]
pub(super) struct Owners(RwLock<Slots>);

impl Slots {
    fn find(&mut self, name: Name) -> Result<&mut Slot, PoolError> {
        let slot = self.all.get_mut(name.slot as usize);
        let slot = slot.filter(|slot| slot.generation == name.generation && slot.owner.is_some());
        slot.ok_or(PoolError::Freed)
    }

    fn take(&mut self, name: Name) -> Result<Arc<Owner>, PoolError> {
        let slot = self.find(name)?;
        let owner = slot.owner.take().ok_or(PoolError::Freed)?;
        // A slot whose generations are exhausted is not used again.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.vacant.push(name.slot);
        }
        Ok(owner)
    }
}

impl Owners {
    fn read(&self) -> RwLockReadGuard<'_, Slots> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Slots> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an allocation; `None` if all names are in use.
    pub(super) fn put(&self, owner: Owner) -> Option<Name> {
        let slots = &mut *self.write();
        let slot = match slots.vacant.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(slots.all.len()).ok()?;
                slots.all.push(Slot {
                    generation: 1,
                    owner: None,
                });
                slot
            }
        };
        let place = &mut slots.all[slot as usize];
        place.owner = Some(Arc::new(owner));
        let generation = place.generation;
        Some(Name { slot, generation })
    }

    /// The allocation of a name.
    pub(super) fn get(&self, name: Name) -> Result<Arc<Owner>, PoolError> {
        let slots = self.read();
        let slot = slots.all.get(name.slot as usize);
        let slot = slot.filter(|slot| slot.generation == name.generation);
        slot.and_then(|slot| slot.owner.clone())
            .ok_or(PoolError::Freed)
    }

    /// Takes an allocation out. It is freed when the last operation that uses it has ended.
    pub(super) fn take(&self, name: Name) -> Result<Arc<Owner>, PoolError> {
        self.write().take(name)
    }

    /// Takes out an allocation that no operation uses.
    pub(super) fn take_unused(&self, name: Name) -> Result<Owner, Failure> {
        let slots = &mut *self.write();
        let slot = slots.find(name)?;
        // Under the lock none is cloned: what is alone stays alone.
        let is_alone = slot
            .owner
            .as_mut()
            .is_some_and(|owner| Arc::get_mut(owner).is_some());
        let in_use = || {
            Failure::new(
                Code::InUse,
                c"calls or operations that are under way use the allocation: wait for them",
            )
        };
        if !is_alone {
            return Err(in_use());
        }
        Arc::into_inner(slots.take(name)?).ok_or_else(in_use)
    }

    /// Takes all out.
    pub(super) fn clear(&self) {
        let slots = std::mem::take(&mut *self.write());
        // Freed without the lock.
        drop(slots);
    }
}

#[cfg(test)]
mod tests {
    use farcore_pool::RemotePool;

    use super::*;

    #[test]
    fn a_name_leads_to_one_allocation_only() {
        let pool = RemotePool::embedded(1 << 20).expect("memory");
        let owner = || pool.alloc::<u8>(8).wait().expect("memory");
        let owners = Owners::default();
        let first = owners.put(owner()).expect("few");
        let second = owners.put(owner()).expect("few");
        assert_eq!((first.slot, first.generation, second.slot), (0, 1, 1));
        assert!(owners.get(first).is_ok());
        assert!(owners.take(first).is_ok());
        assert_eq!(owners.get(first).err(), Some(PoolError::Freed));
        assert_eq!(owners.take(first).err(), Some(PoolError::Freed));
        let again = owners.put(owner()).expect("few");
        assert_eq!((again.slot, again.generation), (0, 2));
        assert_eq!(owners.get(first).err(), Some(PoolError::Freed));
        for (slot, generation) in [(0, 0), (0, 3), (2, 0), (u32::MAX, u32::MAX)] {
            let name = Name { slot, generation };
            assert_eq!(owners.get(name).err(), Some(PoolError::Freed));
        }
        let used = owners.get(again).expect("it lives");
        let failure = owners.take_unused(again).expect_err("it is used");
        assert_eq!(failure.code, Code::InUse);
        drop(used);
        assert!(owners.take_unused(again).is_ok());
        owners.clear();
        assert_eq!(owners.get(second).err(), Some(PoolError::Freed));
    }

    #[test]
    fn a_slot_without_generations_is_not_used_again() {
        let pool = RemotePool::embedded(1 << 20).expect("memory");
        let owner = || pool.alloc::<u8>(8).wait().expect("memory");
        let owners = Owners::default();
        let first = owners.put(owner()).expect("few");
        owners.write().all[0].generation = u32::MAX;
        let last = Name {
            generation: u32::MAX,
            ..first
        };
        assert!(owners.take(last).is_ok());
        assert_eq!(owners.get(last).err(), Some(PoolError::Freed));
        assert_eq!(owners.put(owner()).expect("few").slot, 1);
    }
}
