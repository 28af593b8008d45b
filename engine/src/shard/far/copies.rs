//! How many copies each page has in far memory, and what fits with that many.
//!
//! Copies of a page lie on distinct nodes. So what fits is not what all nodes have together: of
//! nodes with 10, 2 and 2 free extents, four pages of two copies fit, not seven.

use super::extents::Extent;

/// Copies of a page, at most.
pub(crate) const COPIES_MAX: usize = 3;

/// How many copies a page should have, and with how many it counts as flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CopyPlan {
    most: u8,
    least: u8,
}

impl CopyPlan {
    /// One copy of each page.
    #[cfg(test)]
    pub(crate) const ONE: Self = Self { most: 1, least: 1 };

    /// `most` copies, 1 to [`COPIES_MAX`], of which `least` must be written.
    pub(crate) fn new(most: usize, least: usize) -> Self {
        let copies = |count: usize| u8::try_from(count.clamp(1, COPIES_MAX)).unwrap_or(1);
        Self {
            most: copies(most),
            least: copies(least.min(most)),
        }
    }

    /// Copies that a page should have.
    #[inline]
    pub(in crate::shard) fn most(self) -> usize {
        usize::from(self.most)
    }

    /// Copies with which a page counts as flushed.
    #[inline]
    pub(in crate::shard) fn least(self) -> usize {
        usize::from(self.least)
    }

    /// Copies of a page where this many nodes take them; `None` if they are too few.
    pub(super) fn at(self, nodes: usize) -> Option<usize> {
        let copies = self.most().min(nodes);
        (copies >= self.least()).then_some(copies)
    }
}

/// How many pages of `copies` copies fit these numbers of extents, one number a node.
///
/// A node holds one copy of a page at most, so with `p` pages it uses `min(extents, p)`, and all
/// together must give `p * copies`. The nodes with the most extents are the only ones that can have
/// more than `p`: each bound leaves out some of them.
pub(super) fn pages_of(extents: impl Iterator<Item = usize>, copies: usize) -> usize {
    let (mut total, mut largest) = (0, [0; COPIES_MAX]);
    for count in extents {
        total += count;
        let place = largest.iter().position(|&known| known < count);
        if let Some(place) = place {
            largest[place..].rotate_right(1);
            largest[place] = count;
        }
    }
    let mut most = usize::MAX;
    for (count, copies) in largest.into_iter().zip((1..=copies).rev()) {
        most = most.min(total / copies);
        total -= count;
    }
    most
}

/// How badly a node with this number of free extents is needed for the next page, where this number
/// of pages fits: that many do only if each node that has as many extents, or more, has a copy of
/// each of them. 0 if it has fewer.
pub(super) fn need(free: usize, fits: usize) -> usize {
    free.saturating_sub(fits.saturating_sub(1))
}

/// The copies of a page, from the first on.
#[derive(Clone, Debug)]
pub(super) struct Copies<'a> {
    first: Option<Extent>,
    others: std::slice::Iter<'a, Option<Extent>>,
}

impl<'a> Copies<'a> {
    #[inline]
    pub(super) fn new(first: Option<Extent>, others: &'a [Option<Extent>]) -> Self {
        let others = others.iter();
        Self { first, others }
    }
}

impl Iterator for Copies<'_> {
    type Item = Extent;

    #[inline]
    fn next(&mut self) -> Option<Extent> {
        self.first
            .take()
            .or_else(|| self.others.find_map(|&copy| copy))
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;

    /// Places pages one after the other, each on the nodes with the most extents left.
    fn placed(mut extents: Vec<usize>, copies: usize) -> usize {
        let mut pages = 0;
        loop {
            extents.sort_unstable_by(|one, other| other.cmp(one));
            if extents.len() < copies || extents[copies - 1] == 0 {
                return pages;
            }
            for count in &mut extents[..copies] {
                *count -= 1;
            }
            pages += 1;
        }
    }

    proptest! {
        #[test]
        fn as_many_pages_fit_as_can_be_placed(
            extents in prop::collection::vec(0usize..40, 1..7),
            copies in 1usize..=COPIES_MAX,
        ) {
            let fits = pages_of(extents.iter().copied(), copies);
            prop_assert_eq!(fits, placed(extents, copies));
        }
    }

    /// Places pages one after the other on the nodes of which the smallest share is held, but first
    /// on those that are needed.
    fn placed_by_share(sizes: &[(usize, usize)], copies: usize) -> usize {
        let mut free: Vec<usize> = sizes.iter().map(|&(_, free)| free).collect();
        for pages in 0.. {
            let mut holds = vec![false; free.len()];
            for _ in 0..copies {
                let fits = pages_of(free.iter().copied(), copies);
                let rank = |&node: &usize| {
                    let (count, free) = (sizes[node].0, free[node]);
                    (need(free, fits), Reverse((count - free) * 1_000 / count))
                };
                let others = (0..free.len()).filter(|&node| !holds[node] && free[node] > 0);
                let Some(best) = others.max_by_key(rank) else {
                    return pages;
                };
                (holds[best], free[best]) = (true, free[best] - 1);
            }
        }
        unreachable!("nodes become full")
    }

    proptest! {
        #[test]
        fn as_many_pages_fit_if_they_go_to_the_smallest_share(
            sizes in prop::collection::vec((1usize..40, 0usize..40), 1..7),
            copies in 1usize..=COPIES_MAX,
        ) {
            let sizes: Vec<_> = sizes.into_iter().map(|(count, free)| (count, free.min(count))).collect();
            let fits = pages_of(sizes.iter().map(|&(_, free)| free), copies);
            prop_assert_eq!(fits, placed_by_share(&sizes, copies));
        }
    }

    #[test]
    fn fewer_nodes_have_fewer_copies_down_to_the_least() {
        let plan = CopyPlan::new(3, 2);
        let copies: Vec<_> = (0..5).map(|nodes| plan.at(nodes)).collect();
        assert_eq!(copies, [None, None, Some(2), Some(3), Some(3)]);
        assert_eq!(CopyPlan::ONE.at(9), Some(1));
    }
}
