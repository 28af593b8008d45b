//! Compact names of verbs objects: a table hands out a 32-bit handle, and a token packs it with
//! what a request needs.
//!
//! ```text
//! handle   31    28 27          16 15           0
//!          [ kind ] [  version   ] [   index    ]      the all-zero word names nothing
//! tokens   domain           handle:32                                4 bytes
//!          completion queue handle:32 | entries:32                   8 bytes
//!          region           handle:32 | lkey:32 | bytes:64          16 bytes
//!          queue pair       handle:32 | number:32 | depth:16 | inline:16 | completion queue:32   16 bytes
//! ```
//!
//! - I1: a handle names one object for ever: the version of a place counts up when its object is
//!   removed, and a place whose versions are used up is not used again.

use std::fmt;
use std::marker::PhantomData;

/// What a handle names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A protection domain.
    Domain = 1,
    /// A memory region.
    Region = 2,
    /// A completion queue.
    CompletionQueue = 3,
    /// A queue pair.
    QueuePair = 4,
}

const INDEX_BITS: u32 = 16;
const VERSION_BITS: u32 = 12;
const KIND_SHIFT: u32 = INDEX_BITS + VERSION_BITS;
const VERSION_MAX: u16 = (1 << VERSION_BITS) - 1;
/// The most objects of one kind at a time.
pub const OBJECTS_MAX: usize = 1 << INDEX_BITS;
const _: () = assert!(KIND_SHIFT + 4 == u32::BITS);

/// The name of an object in its table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Handle(u32);

impl Handle {
    fn new(kind: Kind, version: u16, index: usize) -> Self {
        debug_assert!(version <= VERSION_MAX && index < OBJECTS_MAX);
        #[allow(clippy::cast_possible_truncation)] // bounded by the table
        let index = index as u32;
        Self((kind as u32) << KIND_SHIFT | u32::from(version) << INDEX_BITS | index)
    }

    /// From a word that was a handle's.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// As a word.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// What it names; `None` for a word that is no handle.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        match self.0 >> KIND_SHIFT {
            1 => Some(Kind::Domain),
            2 => Some(Kind::Region),
            3 => Some(Kind::CompletionQueue),
            4 => Some(Kind::QueuePair),
            _ => None,
        }
    }

    fn version(self) -> u16 {
        #[allow(clippy::cast_possible_truncation)] // masked
        let version = (self.0 >> INDEX_BITS) as u16 & VERSION_MAX;
        version
    }

    fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Some(kind) => write!(f, "{kind:?}#{}v{}", self.index(), self.version()),
            None => write!(f, "Handle({:#x})", self.0),
        }
    }
}

/// What kind of handle a table hands out for a type.
pub trait Named {
    /// The kind.
    const KIND: Kind;
}

#[derive(Debug)]
struct Place<T> {
    version: u16,
    object: Option<T>,
}

/// Objects by handle. Cost of a look: one cache line of the table.
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
    /// Takes an object in. A full table hands it back.
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
        Ok(Handle::new(T::KIND, place.version, index))
    }

    /// The object that a handle names, if it is still there.
    #[must_use]
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        let place = self.places.get(handle.index())?;
        if place.version != handle.version() || handle.kind() != Some(T::KIND) {
            return None;
        }
        place.object.as_ref()
    }

    /// The same, to be changed.
    #[must_use]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        self.get(handle)?;
        self.places[handle.index()].object.as_mut()
    }

    /// Takes an object out; its handle names nothing from then on.
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        self.get(handle)?;
        let index = handle.index();
        let place = &mut self.places[index];
        let object = place.object.take();
        if place.version < VERSION_MAX {
            place.version += 1;
            self.free.push(index);
        }
        object
    }

    /// Objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let taken = |place: &&Place<T>| place.object.is_some();
        self.places.iter().filter(taken).count()
    }

    /// True if there is none.
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
    /// Completions that it holds.
    pub entries: u32,
}

/// All that a request needs of a memory region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionToken {
    /// The region.
    pub handle: Handle,
    /// What names it to the device in this side's requests.
    pub lkey: u32,
    /// Its length.
    pub bytes: u64,
}

/// All that a request needs of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePairToken {
    /// The queue pair.
    pub handle: Handle,
    /// Its number on the wire.
    pub number: u32,
    /// Requests that it holds.
    pub depth: u16,
    /// Payload that it takes inline, in bytes.
    pub inline_bytes: u16,
    /// Where its requests complete.
    pub completion_queue: Handle,
}

const _: () = assert!(size_of::<Handle>() == 4);
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
        fn no_word_is_a_danger(bits in any::<u32>()) {
            let mut table = Table::default();
            let good = table.insert(Thing(1)).expect("room");
            let strange = Handle::from_bits(bits);
            prop_assert_eq!(table.get(strange).is_some(), strange == good);
        }
    }

    #[test]
    fn a_place_that_is_used_up_is_left() {
        let mut table = Table::default();
        let mut seen = std::collections::HashSet::new();
        for turn in 0..=u32::from(VERSION_MAX) + 1 {
            let handle = table.insert(Thing(turn)).expect("room");
            assert!(seen.insert(handle.bits()));
            table.remove(handle);
        }
        assert_eq!(table.places.len(), 2);
        assert_eq!(Handle::default().kind(), None);
    }
}
