//! Sorting in slices: a turn that sorts a million things at once would take too long.
//!
//! ```text
//! runs of PIECE things, each sorted -> merged two by two into runs of 2, 4, 8 ... times PIECE
//! ```

use farcore::Core;

use crate::steps;

/// Sorts things; equal ones may change places.
pub(super) async fn sort<T: Copy + Ord>(mut all: Vec<T>, core: &Core) -> Vec<T> {
    for run in all.chunks_mut(steps::PIECE) {
        run.sort_unstable();
        steps::count(steps::PIECE);
        steps::end_slice(core).await;
    }
    let mut length = steps::PIECE;
    let mut merged = Vec::new();
    while length < all.len() {
        merged.clear();
        merged.reserve_exact(all.len());
        for pair in all.chunks(2 * length) {
            let (one, other) = pair.split_at(length.min(pair.len()));
            merge(one, other, &mut merged, core).await;
        }
        std::mem::swap(&mut all, &mut merged);
        length *= 2;
    }
    all
}

/// Appends the things of two sorted runs in their order.
async fn merge<T: Copy + Ord>(mut one: &[T], mut other: &[T], into: &mut Vec<T>, core: &Core) {
    while let ([first, rest @ ..], [second, others @ ..]) = (one, other) {
        if second < first {
            into.push(*second);
            other = others;
        } else {
            into.push(*first);
            one = rest;
        }
        if into.len().is_multiple_of(steps::PIECE) {
            steps::count(steps::PIECE);
            steps::end_slice(core).await;
        }
    }
    for piece in [one, other]
        .iter()
        .flat_map(|rest| rest.chunks(steps::PIECE))
    {
        into.extend_from_slice(piece);
        steps::count_copied(size_of_val(piece));
        steps::end_slice(core).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn things_are_sorted_however_many_there_are() {
        on_first_core(1, |bench| async move {
            let mut numbers = crate::random::Numbers::new();
            for count in [0, 1, 2, 1023, 1024, 1025, 2048, 5000, 9 * 1024 + 7] {
                let things: Vec<_> = (0..count).map(|_| numbers.below(3000)).collect();
                let mut expected = things.clone();
                expected.sort_unstable();
                assert_eq!(sort(things, &bench.core).await, expected);
            }
        });
    }
}
