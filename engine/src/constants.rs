//! Every limit of the engine, in one place, with the relations that must hold between them.
//!
//! A limit that callers can exceed has a typed error that names it.

/// The log's grain and one AES block, in bytes.
pub const UNIT_BYTES: usize = 16;
/// A unit, as lengths in work requests count it.
pub(crate) const UNIT: u32 = 16;
/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest value that any configuration allows, in bytes; half a page may be less.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Longest value that is stored in pieces, in bytes.
pub const LONG_VALUE_BYTES_MAX: u64 = 64 << 20;
/// Long values of a shard that can be written at once.
pub(crate) const UNFINISHED_LONG_VALUES_MAX: usize = 64;
/// Long values of a shard that readers can keep at once.
pub(crate) const LONG_PINS_MAX: usize = 64;
/// How many of them those may keep that could read the value without keeping it.
pub(crate) const LONG_READER_PINS_MAX: usize = 48;
/// The longest pause of a client that writes or keeps a long value, in nanoseconds.
pub(crate) const LONG_PAUSE_NS: u64 = 60_000_000_000;
/// How long a piece of a long value waits for room while far memory is full, in nanoseconds.
pub(crate) const LONG_ROOM_WAIT_NS: u64 = 2_000_000_000;
/// The most keys of one transaction.
pub const TRANSACTION_KEYS_MAX: usize = 128;
/// The most keys that a section can name.
pub const SECTION_KEYS_MAX: usize = 1024;
/// The most shards whose sections one client can hold at once.
pub const SECTION_SHARDS_MAX: usize = 64;
/// The most clients that can wait for the section of one shard.
pub(crate) const SECTION_WAITERS_MAX: usize = 4096;
/// The shortest and the longest time for which a section can be lent, in nanoseconds.
pub(crate) const SECTION_NS_RANGE: std::ops::RangeInclusive<u64> = 1_000_000..=10_000_000_000;
/// Values that one push adds to a list, at most: it is one step of its shard.
pub const TREE_PUSH_MAX: usize = 1024;
/// Changes of a map's elements that one [`TreeOp::Update`](crate::TreeOp::Update) makes whatever
/// they cost; further ones as far as one step can.
pub const TREE_CHANGES_WHOLE: usize = 8;
/// Values of removed elements that are longer are noted for a feed: an application may have them
/// hold what is too long for a key.
pub(crate) const NOTED_BYTES: usize = 900;
/// Bytes of the elements of a collection that lies in the record of its key, at most, by default.
pub(crate) const INLINE_COLLECTION_BYTES: usize = 2 << 10;
/// Its bound, whatever is configured: a node of a collection is no longer.
pub(crate) const INLINE_COLLECTION_BYTES_MAX: usize = 4 << 10;
/// Bytes that an expiry takes of a value's room.
pub(crate) const EXPIRY_BYTES: usize = 8;
/// Smallest page, in bytes.
pub const PAGE_BYTES_MIN: usize = 64 << 10;
/// Largest page, in bytes.
pub const PAGE_BYTES_MAX: usize = 2 << 20;
/// The largest batch of requests that a core takes from a lane.
pub const BATCH_MAX: usize = 128;
/// The largest share of the page frames that the read cache can be given, in percent.
pub const CACHE_PERCENT_MAX: u8 = 90;
/// The most chunks kept ahead of all walks of a shard together.
pub const READ_AHEAD_CHUNKS_MAX: u32 = 12;
/// The longest time that an idle core can be set to spin, in nanoseconds.
pub const SPIN_NS_MAX: u64 = 1_000_000_000;
/// Lane numbers of a shard; the last one is for clients on its own core.
pub(crate) const LANE_NUMBERS: usize = 256;
/// The lane number of requests under the shard's section. Parked requests and facts of the holder
/// are apart from those of the plain requests of its lane.
pub(crate) const SECTION_LANE: u8 = 254;
/// Requests that one queue pair holds.
pub(crate) const QUEUE_DEPTH: usize = 256;
/// A cache line, in bytes.
pub const LINE_BYTES: usize = 64;
/// Frames below which the smallest shard cannot work.
pub(crate) const FRAMES_MIN: usize = 16;
/// A segment of the index, in bytes.
pub const SEGMENT_BYTES: usize = 16 << 10;

const _: () = assert!(UNIT as usize == UNIT_BYTES);
const _: () = assert!(LONG_READER_PINS_MAX < LONG_PINS_MAX);
const _: () = assert!(VALUE_BYTES_MAX <= PAGE_BYTES_MAX / 2);
const _: () = assert!(PAGE_BYTES_MIN.is_multiple_of(SEGMENT_BYTES));
