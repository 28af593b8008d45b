//! Members of sorted sets as the engine's scored maps hold them.
//!
//! ```text
//! member: | member |                                value: | nothing |
//! member: | its first 900 bytes | SHA-256 of it |   value: | member |
//! ```
//!
//! A member of more than [`INLINE_BYTES_MAX`] bytes is too long for a key of a tree: its beginning
//! and its digest stand for it there.
//!
//! - M1: each member is stored as one, and no two as the same, as far as SHA-256 tells them apart:
//!   none that lies in its key is as long as one that does not.
//! - M2: members of equal scores are in the order of their bytes, unless they begin with the same
//!   900 bytes.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::types::element::{INLINE_BYTES_MAX, is_long};

/// Bytes of what stands for a member that is too long.
const STORED_BYTES: usize = INLINE_BYTES_MAX + 32;

/// A member as it is stored.
pub(crate) fn stored_member(member: &[u8]) -> Cow<'_, [u8]> {
    if !is_long(member) {
        return Cow::Borrowed(member);
    }
    let mut stored = Vec::with_capacity(STORED_BYTES);
    stored.extend_from_slice(&member[..INLINE_BYTES_MAX]);
    stored.extend_from_slice(&Sha256::digest(member));
    Cow::Owned(stored)
}

/// What is stored as the value of a member.
pub(crate) fn value_of(member: &[u8]) -> &[u8] {
    if is_long(member) { member } else { &[] }
}

/// A member from what is stored.
pub(crate) fn whole_member<'a>(stored: &'a [u8], value: &'a [u8]) -> &'a [u8] {
    if is_digest(stored) { value } else { stored }
}

/// True if what is stored stands for a member that is too long.
pub(crate) fn is_digest(stored: &[u8]) -> bool {
    stored.len() == STORED_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_they_were_stored_and_keep_their_order() {
        let members: Vec<_> = [0, 1, 899, 900, 901, 932, 5000]
            .map(|bytes| vec![b'm'; bytes])
            .into();
        let stored: Vec<_> = members.iter().map(|member| stored_member(member)).collect();
        for (member, stored) in members.iter().zip(&stored) {
            assert_eq!(whole_member(stored, value_of(member)), member);
            assert_eq!(is_digest(stored), member.len() > 900);
        }
        assert!(stored[..5].is_sorted());
        assert!(stored_member(&[b'n'; 2000])[..] > stored_member(&[b'm'; 3000])[..]);
    }
}
