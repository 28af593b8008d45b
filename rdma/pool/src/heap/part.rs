//! What the pool has claimed of one node, in one session.

use std::collections::{BTreeSet, HashMap};

use farcore_rdma::RemoteSlice;

use super::extent::Extent;
use super::lengths::{self, PAGE_BYTES};
use super::slab::Slab;
use super::{Home, Run};

/// A table whose places are reused.
#[derive(Debug)]
struct Places<T> {
    all: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            vacant: Vec::new(),
        }
    }
}

impl<T> Places<T> {
    fn put(&mut self, one: T) -> u32 {
        if let Some(place) = self.vacant.pop() {
            self.all[place as usize] = Some(one);
            return place;
        }
        self.all.push(Some(one));
        u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
    }

    fn get(&mut self, place: u32) -> Option<&mut T> {
        self.all.get_mut(place as usize)?.as_mut()
    }

    fn take(&mut self, place: u32) -> Option<T> {
        let one = self.all.get_mut(place as usize)?.take()?;
        self.vacant.push(place);
        Some(one)
    }
}

/// What the pool has claimed of one node.
#[derive(Debug)]
pub(crate) struct Part {
    session: u64,
    extent_bytes: u64,
    extents: Places<Extent>,
    /// Extents by their longest run of free pages.
    by_longest: BTreeSet<(u32, u32)>,
    empty_extents: usize,
    slabs: Places<Slab>,
    /// The slabs that have room, by the index of their pieces' length.
    with_room: Vec<Vec<u32>>,
    /// The lengths of the runs given out whole, by their first extents.
    runs: HashMap<u32, u64>,
    claimed_bytes: u64,
    used_bytes: u64,
    /// Nothing is taken any more, and no memory is kept for later.
    is_leaving: bool,
}

impl Part {
    pub(crate) fn new(session: u64, extent_bytes: u64) -> Self {
        Self {
            session,
            extent_bytes,
            extents: Places::default(),
            by_longest: BTreeSet::new(),
            empty_extents: 0,
            slabs: Places::default(),
            with_room: vec![Vec::new(); lengths::COUNT],
            runs: HashMap::new(),
            claimed_bytes: 0,
            used_bytes: 0,
            is_leaving: false,
        }
    }

    /// Keeps no memory for later from now on. Returns the numbers of the runs to be returned to the
    /// node now; those that are given out follow as they are given back.
    pub(crate) fn leave(&mut self) -> Vec<u32> {
        self.is_leaving = true;
        let is_empty = |(place, slab): (usize, &Option<Slab>)| {
            let is_empty = slab.as_ref().is_some_and(Slab::is_empty);
            is_empty.then(|| u32::try_from(place).unwrap_or(u32::MAX))
        };
        let slabs = self.slabs.all.iter().enumerate().filter_map(is_empty);
        let slabs: Vec<u32> = slabs.collect();
        let folded = |place| self.fold_slab(place).ok().flatten();
        let mut returned: Vec<u32> = slabs.into_iter().filter_map(folded).collect();
        for place in 0..u32::try_from(self.extents.all.len()).unwrap_or(u32::MAX) {
            if let Some(extent) = self.extents.get(place)
                && extent.is_empty()
            {
                let longest = extent.longest();
                self.by_longest.remove(&(longest, place));
                self.empty_extents -= 1;
                returned.extend(self.forget_extent(place));
            }
        }
        returned
    }

    /// Forgets an empty extent, which is listed nowhere. Returns its number.
    fn forget_extent(&mut self, place: u32) -> Option<u32> {
        let extent = self.extents.take(place)?;
        self.claimed_bytes -= u64::from(extent.free_pages()) * PAGE_BYTES;
        Some(extent.number)
    }

    /// The session that its extents were claimed in.
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// Bytes claimed, given out or not.
    pub(crate) fn claimed_bytes(&self) -> u64 {
        self.claimed_bytes
    }

    /// Bytes given out, with what rounding adds.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Adds a claimed extent.
    pub(crate) fn add(&mut self, run: Run) {
        let extent = Extent::new(run.first, run.slice, run.bytes);
        let longest = extent.longest();
        let place = self.extents.put(extent);
        self.by_longest.insert((longest, place));
        self.empty_extents += 1;
        self.claimed_bytes += run.bytes;
    }

    /// Notes a run that is given out whole.
    pub(crate) fn add_whole(&mut self, run: Run) -> Home {
        self.runs.insert(run.first, run.bytes);
        self.claimed_bytes += run.bytes;
        self.used_bytes += run.bytes;
        Home::Run { first: run.first }
    }

    /// Takes a piece or pages; `None` if nothing claimed has room. `bytes` is at most an extent.
    pub(crate) fn take(&mut self, bytes: u64, align: u64) -> Option<(RemoteSlice, Home)> {
        match lengths::index_for(bytes, align) {
            Some(length) => self.take_piece(length),
            None => self.take_pages(bytes),
        }
    }

    fn take_piece(&mut self, length: usize) -> Option<(RemoteSlice, Home)> {
        let place = match self.with_room[length].last() {
            Some(&place) => place,
            None => self.make_slab(length)?,
        };
        let slab = self.slabs.get(place)?;
        let (piece, slice) = slab.take()?;
        if slab.is_full() {
            slab.listed = None;
            self.with_room[length].pop();
        }
        self.used_bytes += lengths::bytes_of(length);
        Some((slice, Home::Piece { slab: place, piece }))
    }

    fn make_slab(&mut self, length: usize) -> Option<u32> {
        let bytes = lengths::slab_bytes(length, self.extent_bytes);
        let pages = u32::try_from(bytes / PAGE_BYTES).ok()?;
        let (extent, first, slice) = self.take_run(pages)?;
        let mut slab = Slab::new((extent, first, pages), slice, bytes, length);
        slab.listed = Some(0);
        let place = self.slabs.put(slab);
        self.with_room[length].push(place);
        Some(place)
    }

    fn take_pages(&mut self, bytes: u64) -> Option<(RemoteSlice, Home)> {
        let count = u32::try_from(bytes.div_ceil(PAGE_BYTES)).ok()?;
        let (extent, first, slice) = self.take_run(count)?;
        self.used_bytes += u64::from(count) * PAGE_BYTES;
        let home = Home::Pages {
            extent,
            first,
            count,
        };
        Some((slice, home))
    }

    /// Takes pages of the extent that they fit most tightly.
    fn take_run(&mut self, pages: u32) -> Option<(u32, u32, RemoteSlice)> {
        let &(longest, place) = self.by_longest.range((pages, 0)..).next()?;
        let extent = self.extents.get(place)?;
        let was_empty = extent.is_empty();
        let first = extent.take(pages)?;
        let slice = extent.slice(first);
        let now = extent.longest();
        self.by_longest.remove(&(longest, place));
        self.by_longest.insert((now, place));
        self.empty_extents -= usize::from(was_empty);
        Some((place, first, slice))
    }

    /// Gives something back. Returns the number of a run of extents to be returned to the node;
    /// `Err` if it is not taken.
    pub(crate) fn give(&mut self, home: Home) -> Result<Option<u32>, NotTaken> {
        match home {
            Home::Piece { slab, piece } => self.give_piece(slab, piece),
            Home::Pages {
                extent,
                first,
                count,
            } => {
                let returned = self.give_pages(extent, first, count)?;
                self.used_bytes -= u64::from(count) * PAGE_BYTES;
                Ok(returned)
            }
            Home::Run { first } => {
                let bytes = self.runs.remove(&first).ok_or(NotTaken)?;
                self.claimed_bytes -= bytes;
                self.used_bytes -= bytes;
                Ok(Some(first))
            }
        }
    }

    fn give_piece(&mut self, place: u32, piece: u32) -> Result<Option<u32>, NotTaken> {
        let slab = self.slabs.get(place).ok_or(NotTaken)?;
        if !slab.give(piece) {
            return Err(NotTaken);
        }
        let length = slab.length;
        self.used_bytes -= lengths::bytes_of(length);
        let list = &mut self.with_room[length];
        if slab.listed.is_none() {
            slab.listed = Some(list.len());
            list.push(place);
        }
        // Unless another has room, this one's pages stay taken.
        if !slab.is_empty() || (list.len() == 1 && !self.is_leaving) {
            return Ok(None);
        }
        self.fold_slab(place)
    }

    /// Frees the pages of an empty slab.
    fn fold_slab(&mut self, place: u32) -> Result<Option<u32>, NotTaken> {
        let slab = self.slabs.get(place).ok_or(NotTaken)?;
        let list = &mut self.with_room[slab.length];
        let position = slab.listed.unwrap_or(0);
        list.swap_remove(position);
        if let Some(&moved) = list.get(position)
            && let Some(moved) = self.slabs.get(moved)
        {
            moved.listed = Some(position);
        }
        let slab = self.slabs.take(place).ok_or(NotTaken)?;
        self.give_pages(slab.extent, slab.first_page, slab.pages)
    }

    fn give_pages(&mut self, place: u32, first: u32, count: u32) -> Result<Option<u32>, NotTaken> {
        let extent = self.extents.get(place).ok_or(NotTaken)?;
        let before = extent.longest();
        if !extent.give(first, count) {
            return Err(NotTaken);
        }
        let (after, is_empty) = (extent.longest(), extent.is_empty());
        self.by_longest.remove(&(before, place));
        if is_empty && (self.empty_extents > 0 || self.is_leaving) {
            return self.forget_extent(place).map(Some).ok_or(NotTaken);
        }
        self.empty_extents += usize::from(is_empty);
        self.by_longest.insert((after, place));
        Ok(None)
    }
}

/// What was given back is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotTaken;
