//! What a put does when memory is full.

/// What a put does when neither local nor far memory has room for its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenFull {
    /// It fails with [`Error::FarFull`](crate::Error::FarFull),
    /// [`Error::IndexFull`](crate::Error::IndexFull) or, where no node takes pages,
    /// [`Error::Unavailable`](crate::Error::Unavailable). No record is removed.
    #[default]
    Refuse,
    /// Local and far memory together are a cache: records are removed ahead of need, so that puts
    /// find room. Expired records are removed first, then records that were not read since they
    /// were written, the oldest first; records that were read stay longer. A removed key is absent.
    /// Where no node takes pages, records that are only local are removed as well; where the index
    /// has no memory to grow, records whose slots lie near the new key's.
    ///
    /// A shard counts recent reads in one byte for each 32 bytes of local memory, or for each 128
    /// bytes of all memory where that is less; they are part of the cap. Cost: one cache line for
    /// each read and put.
    Evict,
}
