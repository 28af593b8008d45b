//! Things by number: each takes the least number that is free, and memory that none uses is given
//! back.
//!
//! ```text
//! groups: | taken:16 | things | -> 16 things     | 0 | none |     | taken:16 | things | -> ..
//! full:   a bit a group
//! ```
//!
//! The least number first: so a table that was long becomes short again from its end, and what is
//! left of it in between is a group's header.
//!
//! - G1: a group has things if and only if one of its numbers is taken.
//! - G2: the last group has a number that is taken.
//! - G3: a bit of `full` is set if and only if all numbers of its group are taken.
//!
//! To find a free number takes a look at 1024 numbers a word of `full`, at worst.

/// Numbers of a group.
const GROUP: usize = 16;
/// What the memory of a group's things takes more, in its allocator.
const BESIDE_BYTES: usize = 16;

/// Some neighbouring numbers.
#[derive(Debug)]
struct Group<T> {
    /// Which are taken, a bit each, the least one lowest.
    taken: u16,
    things: Option<Box<[T; GROUP]>>,
}

/// Things by number. That of a number which is not taken is the default.
#[derive(Debug, Default)]
pub(crate) struct Numbered<T> {
    groups: Vec<Group<T>>,
    full: Vec<u64>,
    /// Groups that have things.
    used: usize,
    /// Numbers that are taken.
    count: usize,
}

/// Group and place in it of a number.
fn split(number: u32) -> (usize, usize) {
    (number as usize / GROUP, number as usize % GROUP)
}

fn joined(group: usize, place: u32) -> u32 {
    u32::try_from(group * GROUP).map_or(u32::MAX, |first| first.saturating_add(place))
}

impl<T: Default> Numbered<T> {
    /// Bytes of a group's header; its vector may be twice as long as it is filled.
    const HEADER_BYTES: usize = 2 * size_of::<Group<T>>() + 1;
    /// Bytes of a group's things.
    const THINGS_BYTES: usize = GROUP * size_of::<T>() + BESIDE_BYTES;

    /// Numbers that are taken.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bytes that the table takes at most.
    pub(crate) fn bytes(&self) -> u64 {
        (self.groups.len() * Self::HEADER_BYTES + self.used * Self::THINGS_BYTES) as u64
    }

    /// Bytes that the table grows by when this many numbers are taken.
    pub(crate) fn growth(&self, numbers: usize) -> u64 {
        let (mut bytes, mut before, mut seen) = (0, None, None);
        for _ in 0..numbers {
            let number = self.free_after(before);
            let (group, _) = split(number);
            if seen != Some(group) {
                bytes += match self.groups.get(group) {
                    None => Self::HEADER_BYTES + Self::THINGS_BYTES,
                    Some(group) if group.things.is_none() => Self::THINGS_BYTES,
                    Some(_) => 0,
                };
            }
            (before, seen) = (Some(number), Some(group));
        }
        bytes as u64
    }

    fn taken(&self, group: usize) -> u16 {
        self.groups.get(group).map_or(0, |group| group.taken)
    }

    /// The first group from one on that has a free number.
    fn not_full_from(&self, group: usize) -> usize {
        let full_at = |word: usize| self.full.get(word).copied().unwrap_or(0);
        let mut word = group / 64;
        let mut full = full_at(word) | ((1 << (group % 64)) - 1);
        while full == u64::MAX {
            word += 1;
            full = full_at(word);
        }
        word * 64 + full.trailing_ones() as usize
    }

    /// The least free number that is greater than another.
    pub(crate) fn free_after(&self, before: Option<u32>) -> u32 {
        let (mut group, place) = split(before.map_or(0, |before| before.saturating_add(1)));
        let mut taken = self.taken(group) | ((1 << place) - 1);
        if taken == u16::MAX {
            group = self.not_full_from(group + 1);
            taken = self.taken(group);
        }
        joined(group, taken.trailing_ones())
    }

    /// Takes the least free number.
    pub(crate) fn take(&mut self) -> u32 {
        let number = self.free_after(None);
        self.take_this(number);
        number
    }

    /// Takes a number, unless it is taken.
    pub(crate) fn take_this(&mut self, number: u32) {
        let (at, place) = split(number);
        while at >= self.groups.len() {
            if self.groups.len() == self.groups.capacity() {
                self.groups.reserve_exact(1 + at / 4);
            }
            if self.groups.len() / 64 == self.full.len() {
                self.full.push(0);
            }
            self.groups.push(Group {
                taken: 0,
                things: None,
            });
        }
        let group = &mut self.groups[at];
        if group.taken >> place & 1 == 1 {
            return;
        }
        group.taken |= 1 << place;
        if group.taken == u16::MAX {
            self.full[at / 64] |= 1 << (at % 64);
        }
        if group.things.is_none() {
            group.things = Some(Box::new(std::array::from_fn(|_| T::default())));
            self.used += 1;
        }
        self.count += 1;
    }

    /// Gives a number back; its thing is dropped. A number that is free stays so.
    pub(crate) fn give(&mut self, number: u32) -> Option<T> {
        let (at, place) = split(number);
        let group = self.groups.get_mut(at)?;
        if group.taken >> place & 1 == 0 {
            return None;
        }
        let thing = group.things.as_mut().map(|things| &mut things[place]);
        let thing = thing.map(std::mem::take);
        group.taken &= !(1 << place);
        self.full[at / 64] &= !(1 << (at % 64));
        self.count -= 1;
        if group.taken == 0 {
            group.things = None;
            self.used -= 1;
            self.shorten();
        }
        thing
    }

    /// Drops the groups at the end that have nothing. Vectors stay less than half empty.
    fn shorten(&mut self) {
        while self.groups.pop_if(|group| group.taken == 0).is_some() {}
        let len = self.groups.len();
        if len == 0 || len < self.groups.capacity() / 2 {
            self.groups.shrink_to(len + len / 4);
            self.full.truncate(len.div_ceil(64));
            self.full.shrink_to_fit();
        }
    }

    /// Gives the greatest number that is taken back.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let at = self.groups.len().checked_sub(1)?;
        let number = joined(at, self.groups[at].taken.ilog2());
        self.give(number)
    }

    /// The least number, from one on, that is taken.
    pub(crate) fn taken_from(&self, from: u32) -> Option<u32> {
        let (first, place) = split(from);
        for at in first..self.groups.len() {
            let mut taken = self.groups[at].taken;
            if at == first {
                taken &= u16::MAX << place;
            }
            if taken != 0 {
                return Some(joined(at, taken.trailing_zeros()));
            }
        }
        None
    }

    /// True if a number is taken.
    pub(crate) fn is_taken(&self, number: u32) -> bool {
        let (group, place) = split(number);
        self.taken(group) >> place & 1 == 1
    }

    /// The thing of a number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (group, place) = split(number);
        Some(&self.groups.get(group)?.things.as_ref()?[place])
    }

    /// The thing of a number that is taken, to be changed.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let (group, place) = split(number);
        let group = self.groups.get_mut(group)?;
        let is_taken = group.taken >> place & 1 == 1;
        let things = group.things.as_mut().filter(|_| is_taken)?;
        Some(&mut things[place])
    }

    /// The things of all numbers that are taken, and of some that are not.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let things = self.groups.iter().filter_map(|group| group.things.as_ref());
        things.flat_map(|things| &**things)
    }

    /// As [`Numbered::iter`], to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let things = self
            .groups
            .iter_mut()
            .filter_map(|group| group.things.as_mut());
        things.flat_map(|things| &mut **things)
    }
}

#[cfg(any(test, feature = "simulation"))]
impl<T: Default> Numbered<T> {
    /// Checks the groups, and what is counted of them.
    pub(crate) fn check(&self) {
        for (at, group) in self.groups.iter().enumerate() {
            let (has_things, taken) = (group.things.is_some(), group.taken);
            assert_eq!(has_things, taken != 0, "numbered G1: group {at}");
            let is_full = self.full[at / 64] >> (at % 64) & 1 == 1;
            assert_eq!(is_full, taken == u16::MAX, "numbered G3: group {at}");
        }
        let last = self.groups.last();
        let is_used = last.is_none_or(|group| group.taken != 0);
        assert!(is_used, "numbered G2: the last group");
        let used = self.groups.iter().filter(|group| group.things.is_some());
        assert_eq!(used.count(), self.used, "numbered G1: groups in use");
        let taken = self.groups.iter().map(|group| group.taken.count_ones());
        let count = taken.sum::<u32>() as usize;
        assert_eq!(count, self.count, "numbered G1: numbers");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::breach::assert_breaks;

    #[test]
    fn a_planted_breach_of_numbers_is_found() {
        type Breach = fn(&mut Numbered<u32>);
        let breaches: [(&str, Breach); 5] = [
            ("numbered G1", |table| table.groups[0].things = None),
            ("numbered G1", |table| table.used += 1),
            ("numbered G1", |table| table.count -= 1),
            ("numbered G2", |table| {
                table.groups.push(Group {
                    taken: 0,
                    things: None,
                });
            }),
            ("numbered G3", |table| table.full[0] = 0),
        ];
        for (invariant, plant) in breaches {
            let mut table = Numbered::default();
            for _ in 0..GROUP + 3 {
                table.take();
            }
            table.check();
            plant(&mut table);
            assert_breaks(invariant, || table.check());
        }
    }

    impl Numbered<u32> {
        fn check_against(&self, model: &BTreeMap<u32, u32>) {
            self.check();
            assert_eq!(self.count(), model.len());
            for (number, thing) in model {
                assert_eq!(self.get(*number), Some(thing));
            }
            let headers = self.groups.capacity() * size_of::<Group<u32>>();
            let headers = headers + self.full.capacity() * size_of::<u64>();
            let things = self.used * Numbered::<u32>::THINGS_BYTES;
            let few = 64; // The vectors of a table that is nearly empty.
            assert!(self.bytes() + few >= (headers + things) as u64, "{self:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_least_numbers_are_taken_and_memory_is_given_back(
            phases in proptest::collection::vec((0..3u8, 0..1500usize, any::<u64>()), 1..8),
        ) {
            let (mut table, mut model) = (Numbered::default(), BTreeMap::new());
            for (what, times, seed) in phases {
                let foretold = table.growth(times);
                let before = table.bytes();
                let mut after = None;
                for turn in 0..times {
                    if what == 0 {
                        let next = table.free_after(after);
                        after = Some(next);
                        let free = (0..).find(|number| !model.contains_key(number)).unwrap();
                        if turn < 200 {
                            prop_assert_eq!(table.free_after(None), free);
                        }
                        prop_assert_eq!(table.take(), next, "as it was foretold");
                        *table.get_mut(next).unwrap() = u32::try_from(turn).unwrap() + 1;
                        model.insert(next, u32::try_from(turn).unwrap() + 1);
                    } else if what == 1 {
                        let at = seed.wrapping_mul(turn as u64 + 1) % 2000;
                        let number = u32::try_from(at).unwrap();
                        prop_assert_eq!(table.give(number), model.remove(&number));
                    } else {
                        prop_assert_eq!(table.pop(), model.pop_last().map(|(_, thing)| thing));
                    }
                }
                if what == 0 {
                    prop_assert_eq!(table.bytes() - before, foretold);
                }
                table.check_against(&model);
            }
            while let Some((number, thing)) = model.pop_first() {
                prop_assert_eq!(table.give(number), Some(thing));
            }
            table.check_against(&model);
            prop_assert_eq!(table.bytes(), 0);
            prop_assert!(table.groups.capacity() <= 1 && table.full.capacity() <= 1);
        }
    }

    /// A queue that was long and is drained, whose last element stays, has headers left; and none
    /// after its new elements have taken the least numbers.
    #[test]
    fn a_drained_queue_gives_its_table_back() {
        let mut table = Numbered::<u64>::default();
        for number in 0..100_000 {
            assert_eq!(table.take(), number);
        }
        let long = table.bytes();
        for number in 0..99_999 {
            table.give(number);
        }
        assert!(table.bytes() * 4 < long, "{} of {long}", table.bytes());
        assert_eq!(table.take(), 0);
        table.give(99_999);
        assert!(table.bytes() < 300, "{}", table.bytes());
    }
}
