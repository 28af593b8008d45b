//! What clients of all kinds check before they take the sections of shards.

use super::refused::check;
use crate::constants::{SECTION_KEYS_MAX, SECTION_SHARDS_MAX};
use crate::error::{Error, Result};
use crate::message::hash::Hasher128;
use crate::message::operation::{Operation, RequestParts};
use crate::message::section::SectionShards;

/// The shards of the keys of a section.
///
/// # Errors
/// [`Error::SectionKeys`] and [`Error::SectionShards`] if there are none or too many, and those of
/// a key that is too short or too long.
pub(super) fn section_shards(
    keys: &[&[u8]],
    hasher: Hasher128,
    shards: u16,
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
    if set.count() > SECTION_SHARDS_MAX {
        return Err(Error::SectionShards {
            shards: set.count(),
            max: SECTION_SHARDS_MAX,
        });
    }
    Ok(set)
}
