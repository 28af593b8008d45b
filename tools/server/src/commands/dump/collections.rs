//! Payloads of lists, sets, hashes and sorted sets.

use std::sync::Arc;

use farcore::{Error, TreeBound, TreeLength};
use farcore_rdb::Packer;
use farcore_rdb::write::{self, ListNodes, Pairs, types};

use super::pages::{BESIDE_ELEMENT, COPIES, To, changed, end_step, hold_page, size};
use super::parts::Parts;
use super::streams;
use crate::commands::sorted_trees::{ALL, members, read_members};
use crate::commands::trees::{Step, entries, small};
use crate::tasks::failure::TaskFailure;
use crate::types::element::entry_of;
use crate::types::encoding_limits::SKIPLIST;
use crate::types::kind::Kind;
use crate::types::sorted::reply::whole;

/// The encoding of a set of integers.
const INTEGERS: &str = "intset";

/// What the payload of a collection is made of, if it has the same version still.
pub(super) async fn parts(
    (core, output): Step<'_>,
    key: &[u8],
    length: &TreeLength,
) -> Result<Parts, TaskFailure> {
    let mut parts = Parts::new(output);
    parts.hold(Packer::BYTES)?;
    let mut packer = Packer::default();
    let to = (&mut parts, &mut packer);
    let step = (&mut *core, output);
    match Kind::of_tag(length.tag) {
        Some(Kind::List) => list(step, key, length, to).await?,
        Some(kind @ (Kind::Hash | Kind::Set)) => elements(step, (kind, key), length, to).await?,
        Some(Kind::SortedSet) => sorted_set(step, key, length, to).await?,
        Some(Kind::Stream) => streams::write(step, key, length, to).await?,
        None => return Err(Error::CollectionTag { tag: length.tag }.into()),
    }
    Ok(parts)
}

async fn list(
    (core, output): Step<'_>,
    key: &[u8],
    length: &TreeLength,
    (parts, packer): To<'_>,
) -> Result<(), TaskFailure> {
    parts.bytes().push(types::LIST);
    let count = parts.place();
    let (mut nodes, mut rank) = (ListNodes::default(), 0);
    while rank < length.elements {
        let mut tree = core.tree(key).tagged(length.tag).at_version(length.version);
        let page = tree.range_by_rank(rank, u64::MAX, false, u32::MAX).await?;
        let read = hold_page(parts, &page)?;
        if read.0 == 0 {
            return Err(changed());
        }
        for (_, element) in page.iter() {
            nodes.push(parts.bytes(), element, packer);
        }
        rank += read.0 as u64;
        end_step((core, output), read).await?;
    }
    let all = nodes.finish(parts.bytes(), packer);
    parts.fill(count, |bytes| write::length(bytes, all));
    Ok(())
}

async fn elements(
    (core, output): Step<'_>,
    (kind, key): (Kind, &[u8]),
    length: &TreeLength,
    (parts, packer): To<'_>,
) -> Result<(), TaskFailure> {
    let step = (&mut *core, output);
    if let Some((pages, _held)) = small(step, (kind, key), length).await? {
        let all = entries(&pages);
        parts.hold(
            Packer::BYTES + COPIES * size(length.bytes) + BESIDE_ELEMENT * size(length.elements),
        )?;
        let limits = &Arc::clone(output.shared()).encoding_limits;
        if kind == Kind::Hash {
            let mut pairs = Pairs::default();
            all.for_each(|(field, value)| pairs.push(field, value));
            parts.bytes().push(types::SMALL_HASH);
            pairs.finish(parts.bytes(), packer);
            return Ok(());
        }
        if limits.encoding(kind, all.clone()) == INTEGERS {
            let mut integers: Vec<_> = all.filter_map(|(one, _)| write::integer(one)).collect();
            integers.sort_unstable();
            parts.bytes().push(types::INTEGERS);
            write::intset(parts.bytes(), &integers, packer);
            return Ok(());
        }
    }
    let is_hash = kind == Kind::Hash;
    (parts.bytes()).push(if is_hash { types::HASH } else { types::SET });
    write::length(parts.bytes(), length.elements);
    let (mut last, mut written) = (None::<Vec<u8>>, 0);
    while written < length.elements {
        let from = match &last {
            None => TreeBound::Unbounded,
            Some(last) => TreeBound::Excluded(last),
        };
        let mut tree = core.tree(key).tagged(length.tag).at_version(length.version);
        let page = tree
            .range(from, TreeBound::Unbounded, false, u32::MAX)
            .await?;
        let read = hold_page(parts, &page)?;
        if read.0 == 0 {
            return Err(changed());
        }
        for (element, value) in page.iter().filter_map(entry_of) {
            write::string(parts.bytes(), element, packer);
            if is_hash {
                write::string(parts.bytes(), value, packer);
            }
            written += 1;
        }
        last = page.last().map(|(key, _)| key.to_vec());
        end_step((core, output), read).await?;
    }
    Ok(())
}

async fn sorted_set(
    (core, output): Step<'_>,
    key: &[u8],
    length: &TreeLength,
    (parts, packer): To<'_>,
) -> Result<(), TaskFailure> {
    let limits = &Arc::clone(output.shared()).encoding_limits;
    if limits.may_be_compact(Kind::SortedSet, length) {
        let (pages, _held) = read_members((&mut *core, output), key, length).await?;
        let all = || members(&pages);
        if limits.sorted_encoding(all().map(|(member, _)| member)) != SKIPLIST {
            parts.hold(
                Packer::BYTES
                    + COPIES * size(length.bytes)
                    + BESIDE_ELEMENT * size(length.elements),
            )?;
            let mut pairs = Pairs::default();
            all().for_each(|(member, score)| pairs.push_scored(member, score));
            parts.bytes().push(types::SMALL_SORTED_SET);
            pairs.finish(parts.bytes(), packer);
            return Ok(());
        }
    }
    parts.bytes().push(types::SORTED_SET);
    write::length(parts.bytes(), length.elements);
    let mut written = 0;
    while written < length.elements {
        // As Redis, from the greatest score on: a reader adds each member as the first.
        let mut tree = core.tree(key).tagged(length.tag).at_version(length.version);
        let page = tree.score_range(ALL, true, written, u32::MAX).await?;
        let read = hold_page(parts, &page)?;
        if read.0 == 0 {
            return Err(changed());
        }
        for (member, score) in whole(page.scored()) {
            write::string(parts.bytes(), member, packer);
            write::binary_score(parts.bytes(), score);
        }
        written += read.0 as u64;
        end_step((core, output), read).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_have_the_names_of_the_limits() {
        let limits = crate::types::encoding_limits::EncodingLimits::default();
        let members = [(&b"1"[..], &b""[..])];
        assert_eq!(limits.encoding(Kind::Set, members.into_iter()), INTEGERS);
    }
}
