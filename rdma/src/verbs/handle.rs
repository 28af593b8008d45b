//! Compact names of verbs objects: a table issues a 32-bit handle, and a token packs it with the
//! facts that a request needs. Handles are those of the simulator of cards, where their layout is
//! drawn: [`farcore_card::Handle`].
//!
//! ```text
//! tokens   domain           handle:32                                4 bytes
//!          completion queue handle:32 | entries:32                   8 bytes
//!          region           handle:32 | lkey:32 | bytes:64          16 bytes
//!          queue pair       handle:32 | number:32 | depth:16 | inline:16 | completion queue:32   16 bytes
//! ```
//!
//! - I1: a handle names one object for ever: the version of a place counts up when its object is
//!   removed, and a place whose versions are exhausted is not reused.

use std::marker::PhantomData;

pub use farcore_card::{Handle, Kind, OBJECTS_MAX};

/// The kind of handle that a table issues for a type.
pub trait Named {
    /// The kind.
    const KIND: Kind;
}

#[derive(Debug)]
struct Place<T> {
    version: u8,
    object: Option<T>,
}

/// Objects by handle. A lookup touches one cache line of the table.
#[derive(Debug)]
pub struct Table<T> {
    places: Vec<Place<T>>,
    free: Vec<usize>,
    kind: PhantomData<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            kind: PhantomData,
        }
    }
}

impl<T: Named> Table<T> {
    /// Inserts an object. A full table returns it.
    ///
    /// # Errors
    /// The object, if there are [`OBJECTS_MAX`] already.
    pub fn insert(&mut self, object: T) -> Result<Handle, T> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.places.len() < OBJECTS_MAX => {
                self.places.push(Place {
                    version: 0,
                    object: None,
                });
                self.places.len() - 1
            }
            None => return Err(object),
        };
        let place = &mut self.places[index];
        place.object = Some(object);
        #[expect(clippy::cast_possible_truncation, reason = "below OBJECTS_MAX")]
        let index = index as u16;
        Ok(Handle::new(T::KIND, place.version, index))
    }

    /// The object that a handle names, if it still exists.
    #[must_use]
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        let place = self.places.get(usize::from(handle.index()))?;
        if place.version != handle.version() || handle.kind() != Some(T::KIND) {
            return None;
        }
        place.object.as_ref()
    }

    /// The object that a handle names, mutably, if it still exists.
    #[must_use]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        self.get(handle)?;
        self.places[usize::from(handle.index())].object.as_mut()
    }

    /// Removes an object; its handle names nothing from then on.
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        self.get(handle)?;
        let index = usize::from(handle.index());
        let place = &mut self.places[index];
        let object = place.object.take();
        if place.version < Handle::VERSION_MAX {
            place.version += 1;
            self.free.push(index);
        }
        object
    }

    /// The objects, by place.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.object.as_ref())
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        let taken = |place: &&Place<T>| place.object.is_some();
        self.places.iter().filter(taken).count()
    }

    /// True if the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The name of a protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DomainToken {
    /// The domain.
    pub handle: Handle,
}

/// The name of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletionQueueToken {
    /// The queue.
    pub handle: Handle,
    /// The completions that it holds.
    pub entries: u32,
}

/// The facts of a memory region that a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionToken {
    /// The region.
    pub handle: Handle,
    /// The key in this side's requests.
    pub lkey: u32,
    /// The length in bytes.
    pub bytes: u64,
}

/// The facts of a queue pair that a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePairToken {
    /// The queue pair.
    pub handle: Handle,
    /// The number on the wire.
    pub number: u32,
    /// The requests that it holds.
    pub depth: u16,
    /// The longest inline payload, in bytes.
    pub inline_bytes: u16,
    /// The queue that its requests complete in.
    pub completion_queue: Handle,
}

const _: () = assert!(size_of::<DomainToken>() == 4);
const _: () = assert!(size_of::<CompletionQueueToken>() == 8);
const _: () = assert!(size_of::<RegionToken>() == 16);
const _: () = assert!(size_of::<QueuePairToken>() == 16);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq, Clone)]
    struct Thing(u32);
    impl Named for Thing {
        const KIND: Kind = Kind::Region;
    }

    proptest! {
        #[test]
        fn a_handle_names_one_object_for_ever(steps in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..200)) {
            let (mut table, mut model) = (Table::default(), HashMap::new());
            let (mut all, mut next) = (Vec::new(), 0);
            for (insert, which) in steps {
                if insert || all.is_empty() {
                    let handle = table.insert(Thing(next)).expect("room");
                    prop_assert!(!all.contains(&handle), "a handle came twice");
                    prop_assert_eq!(handle.kind(), Some(Kind::Region));
                    model.insert(handle, Thing(next));
                    all.push(handle);
                    next += 1;
                } else {
                    let handle = *which.get(&all);
                    prop_assert_eq!(table.remove(handle), model.remove(&handle));
                }
                for handle in &all {
                    prop_assert_eq!(table.get(*handle), model.get(handle));
                }
                prop_assert_eq!(table.len(), model.len());
            }
        }

        #[test]
        fn arbitrary_bits_are_harmless(bits in any::<u32>()) {
            let mut table = Table::default();
            let good = table.insert(Thing(1)).expect("room");
            let strange = Handle::from_bits(bits);
            prop_assert_eq!(table.get(strange).is_some(), strange == good);
        }
    }

    #[test]
    fn an_exhausted_place_is_not_reused() {
        let mut table = Table::default();
        let mut seen = std::collections::HashSet::new();
        for turn in 0..=u32::from(Handle::VERSION_MAX) + 1 {
            let handle = table.insert(Thing(turn)).expect("room");
            assert!(seen.insert(handle.bits()));
            table.remove(handle);
        }
        assert_eq!(table.places.len(), 2);
        assert_eq!(Handle::default().kind(), None);
    }
}
