//! What is known of a key beside its value, and how an answer carries it.

use crate::message::operation::Version;
use crate::tree::TreeKind;

/// What is known of a key beside its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The version.
    pub version: Version,
    /// Bytes of the value.
    pub length: u64,
    /// When the key expires, in milliseconds since 1970; `None` if it does not.
    pub expiry_ms: Option<u64>,
    /// What is known of the collection that the key holds, if it holds one: its length is the bytes
    /// of all keys and values.
    pub collection: Option<CollectionMetadata>,
}

/// What is known of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionMetadata {
    /// What it is.
    pub kind: TreeKind,
    /// How many elements there are.
    pub elements: u64,
}

/// Bytes of encoded metadata.
pub(crate) const METADATA_BYTES: usize = 16;
/// Bytes of encoded metadata of a key that holds a collection: behind the others, its kind
/// and its elements.
pub(crate) const COLLECTION_BYTES: usize = METADATA_BYTES + 1 + 8;

impl Metadata {
    /// The metadata that an [`Answer::Value`](crate::Answer::Value) to an
    /// [`Operation::Inspect`](crate::Operation::Inspect), an append or a range carries; `None` if
    /// the value is not that.
    #[must_use]
    pub fn decode(version: Version, value: &[u8]) -> Option<Self> {
        let (encoded, rest) = value.split_first_chunk::<METADATA_BYTES>()?;
        let collection = match rest {
            [] => None,
            [kind, elements @ ..] => Some(CollectionMetadata {
                kind: TreeKind::of(*kind)?,
                elements: u64::from_le_bytes(elements.try_into().ok()?),
            }),
        };
        let (length, expiry) = encoded.split_first_chunk()?;
        let length = u64::from_le_bytes(*length);
        let expiry_ms = u64::from_le_bytes(*expiry.first_chunk()?);
        Some(Self {
            version,
            length,
            expiry_ms: (expiry_ms != u64::MAX).then_some(expiry_ms),
            collection,
        })
    }

    /// As [`Metadata::encode`], for a key that holds a collection.
    pub(crate) fn encode_collection(
        bytes: u64,
        expiry_ms: Option<u64>,
        collection: CollectionMetadata,
    ) -> [u8; COLLECTION_BYTES] {
        let mut encoded = [0; COLLECTION_BYTES];
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let head = Self::encode(length, expiry_ms);
        encoded[..METADATA_BYTES].copy_from_slice(&head);
        encoded[METADATA_BYTES] = collection.kind as u8;
        encoded[METADATA_BYTES + 1..].copy_from_slice(&collection.elements.to_le_bytes());
        encoded
    }

    /// The value that carries length and expiry.
    pub(crate) fn encode(length: usize, expiry_ms: Option<u64>) -> [u8; METADATA_BYTES] {
        let mut encoded = [0; METADATA_BYTES];
        encoded[..8].copy_from_slice(&(length as u64).to_le_bytes());
        encoded[8..].copy_from_slice(&expiry_ms.unwrap_or(u64::MAX).to_le_bytes());
        encoded
    }
}
