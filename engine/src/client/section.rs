//! Sections, as clients of all kinds take them and give them back.
//!
//! ```text
//! section(keys, work) -> reads the keys -> enters each shard, in ascending order -> work
//!                        -> leaves all; a guard does so if the call is dropped or panics
//! ```
//!
//! The client that `work` gets sends all its requests over the second queues of the lanes. It names
//! itself by client numbers that no other client of the lane has meanwhile, so several clients of
//! one lane can hold and wait for sections at once.

use super::refused::check;
use super::shard_requests::{RunShardRequests, ShardRequests};
use crate::constants::{SECTION_KEYS_MAX, SECTION_SHARDS_MAX};
use crate::error::{Error, Result};
use crate::message::hash::{Hasher128, IndexHash};
use crate::message::operation::{Operation, OperationKind, RequestParts};
use crate::message::outcome::Answer;
use crate::message::section::{SectionName, SectionShards, section_parts};

/// The shards of the keys of a section.
///
/// # Errors
/// [`Error::SectionKeys`] and [`Error::SectionShards`] if there are none or too many, and those of
/// a key that is too short or too long.
pub(super) fn section_shards(
    keys: &[&[u8]],
    (hasher, shards): (Hasher128, u16),
) -> Result<SectionShards> {
    if keys.is_empty() || keys.len() > SECTION_KEYS_MAX {
        return Err(Error::SectionKeys {
            keys: keys.len(),
            max: SECTION_KEYS_MAX,
        });
    }
    let mut set = SectionShards::default();
    for key in keys {
        if let Some(parts) = RequestParts::plain(&Operation::Get { key }) {
            check(&parts, usize::MAX)?;
        }
        set.add(hasher.shard(key, hasher.hash(key), shards));
    }
    check_count(set)
}

/// These shards.
///
/// # Errors
/// [`Error::SectionShards`] if there are too many.
pub(super) fn check_count(shards: SectionShards) -> Result<SectionShards> {
    if shards.count() > SECTION_SHARDS_MAX {
        return Err(Error::SectionShards {
            shards: shards.count(),
            max: SECTION_SHARDS_MAX,
        });
    }
    Ok(shards)
}

/// Reads of the keys, so that they are near. A far record is copied to local memory when it is read
/// twice. What cannot be read fails later as well, where it matters.
pub(super) fn looks<'k>(keys: &'k [&'k [u8]]) -> impl Iterator<Item = Operation<'k>> {
    keys.iter().flat_map(|key| [Operation::Get { key }; 2])
}

/// Enters sections one after the other, in ascending order of their shards.
pub(super) async fn enter_all(
    runner: &mut impl RunShardRequests,
    shards: SectionShards,
) -> Result<()> {
    let mut requests = SectionRequests::new(OperationKind::SectionEnter, shards);
    runner.run(&mut requests).await?;
    requests.failed.map_or(Ok(()), Err)
}

/// Leaves sections. Returns a shard whose section was lost before.
pub(super) async fn leave_all(
    runner: &mut impl RunShardRequests,
    shards: SectionShards,
) -> Result<Option<u16>> {
    let mut requests = SectionRequests::new(OperationKind::SectionLeave, shards);
    runner.run(&mut requests).await?;
    Ok(requests.lost)
}

/// Requests to enter or to leave sections.
struct SectionRequests {
    kind: OperationKind,
    shards: SectionShards,
    /// Which section it is; of no meaning for those that leave.
    name: u64,
    /// The first of the shards to which none was sent.
    next: Option<u16>,
    under_way: usize,
    failed: Option<Error>,
    lost: Option<u16>,
}

impl SectionRequests {
    fn new(kind: OperationKind, shards: SectionShards) -> Self {
        Self {
            kind,
            shards,
            name: match kind {
                OperationKind::SectionEnter => SectionName::new(shards).packed(),
                _ => 0,
            },
            next: shards.from(0),
            under_way: 0,
            failed: None,
            lost: None,
        }
    }
}

impl ShardRequests for SectionRequests {
    fn next<T>(
        &mut self,
        send: impl FnOnce(u16, IndexHash, u32, &RequestParts<'_>) -> (bool, T),
    ) -> Option<T> {
        let waits = self.kind == OperationKind::SectionEnter && self.under_way > 0;
        let shard = self.next.filter(|_| !waits)?;
        let mut parts = section_parts(self.kind, &[]);
        parts.expected = self.name;
        let (is_sent, result) = send(shard, IndexHash(0), shard.into(), &parts);
        if is_sent {
            self.under_way += 1;
            self.next = self.shards.from(shard + 1);
        }
        Some(result)
    }

    fn take(&mut self, place: u32, answer: Answer<'_>) {
        self.under_way -= 1;
        match answer {
            Answer::Failed(error) => {
                self.failed = Some(error.clone());
                self.next = None;
            }
            Answer::Absent => self.lost = u16::try_from(place).ok(),
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.under_way == 0 && self.next.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_section_are_checked() {
        let hasher = Hasher128::new(7);
        let of = |keys: &[&[u8]]| section_shards(keys, (hasher, 250));
        assert!(matches!(of(&[]), Err(Error::SectionKeys { keys: 0, .. })));
        let many = vec![&b"key"[..]; SECTION_KEYS_MAX + 1];
        assert!(matches!(of(&many), Err(Error::SectionKeys { keys, .. }) if keys == many.len()));
        assert_eq!(of(&many[1..]).unwrap().count(), 1);
        assert!(matches!(of(&[b"key", b""]), Err(Error::KeyEmpty { .. })));
        assert!(matches!(of(&[&[0; 2000]]), Err(Error::KeyTooLong { .. })));
        let names: Vec<_> = (0..1000_u32).map(u32::to_le_bytes).collect();
        let keys: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
        assert!(matches!(of(&keys), Err(Error::SectionShards { shards, .. }) if shards > 64));
        let shards = of(&keys[..20]).unwrap();
        let order: Vec<_> = shards.iter().collect();
        assert!(order.is_sorted() && order.len() == shards.count() && order.len() > 10);
    }
}
