//! What each kind of answer of the engine looks like to a Redis client.

use farcore::constants::LONG_VALUE_BYTES_MAX;
use farcore::{Answer, Error, Expiry, Metadata, TreeLength, TreePage, TreeView};

use crate::memory_limit::OUT_OF_MEMORY;
use crate::resp::Writer;
use crate::types::bit_counter::bit_count;
use crate::types::bit_seeker::{Sought, bit_place};
use crate::types::hash::reply::HashReply;
use crate::types::kind::{Kind, PLAIN};
use crate::types::list::reply::{ListReply, list_error_text};
use crate::types::set::reply::SetReply;
use crate::types::sorted::reply::SortedReply;
use crate::types::stream::reply::StreamReply;
use crate::words::{NO_FLOAT, NO_INTEGER, parsed_integer};

/// How an answer becomes a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyKind {
    /// The value, or null.
    Value,
    /// The value that was removed, or null.
    Taken,
    /// The value, whose expiry was set, or null.
    Expiring(Expiry),
    /// The number in the value, which need not be whole.
    Float,
    /// `OK`.
    Stored,
    /// `OK`, or null if the condition did not hold.
    StoredOrNull,
    /// 1 if it was stored, 0 if the condition did not hold.
    IsStored,
    /// 1 if the key was removed, else 0.
    IsDeleted,
    /// 1 if the key exists, else 0.
    Exists,
    /// The number in the value.
    Integer,
    /// Length of the value.
    Length,
    /// Seconds to live; -1 without an expiry, -2 without a key.
    Seconds,
    /// Milliseconds to live; -1 without an expiry, -2 without a key.
    Milliseconds,
    /// When it expires, in seconds since 1970.
    ExpirySeconds,
    /// When it expires, in milliseconds since 1970.
    ExpiryMilliseconds,
    /// 1 if the expiry was set or the key removed, else 0.
    IsExpirySet,
    /// The type of a key whose value is plain if there is one.
    PlainType,
    /// A number of an answer about a collection; 0 if it has none.
    Number { place: u8 },
    /// How many elements a collection of a kind has.
    Elements(Kind),
    /// What a hash holds.
    Hash(HashReply),
    /// What a list holds.
    List(ListReply),
    /// What a set holds.
    Set(SetReply),
    /// What a program of a stream has replied.
    Stream(StreamReply),
    /// What a sorted set holds.
    Sorted(SortedReply),
    /// A part of the value, as the engine read it; empty if the key is absent.
    Part { offset: u32, bytes: u32 },
    /// 1 if the key exists, else null.
    ReferenceCount,
    /// This error if the key exists, else null.
    Unknown(&'static str),
    /// This error if the key holds a value of the kind that is looked for; else what a command
    /// without errors replies.
    Refused {
        kind: Option<Kind>,
        absent: OfAbsent,
        text: &'static str,
    },
    /// A part of the value, from one byte to another; negative ones count from its end.
    Range { start: i64, end: i64 },
    /// Whether a bit of the value's part, which is one byte, is set.
    Bit { byte: u32, mask: u8 },
    /// Bits of the value that are set, from one byte or bit to another.
    BitCount {
        start: i64,
        end: i64,
        is_of_bits: bool,
    },
    /// The place of the first bit of the value from one byte or bit to another.
    BitPlace {
        start: i64,
        end: i64,
        sought: Sought,
    },
}

/// What is replied if a key is absent though an argument is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OfAbsent {
    Null,
    Number(i8),
    /// The error.
    Refused,
}

impl OfAbsent {
    /// Writes what a command with a wrong argument replies, of a key of this kind.
    fn write(self, kind: Option<Kind>, answer: &Answer<'_>, text: &str, writer: &mut Writer<'_>) {
        let is_there = match kind {
            Some(kind) => {
                let length = TreeView::of(answer).length();
                if length.version > 0 && length.tag != kind.tag() {
                    return writer.error(WRONG_TYPE);
                }
                length.version > 0
            }
            None => matches!(answer, Answer::Value { .. }),
        };
        match self {
            Self::Null if !is_there => writer.null(),
            Self::Number(number) if !is_there => writer.integer(number.into()),
            _ => writer.error(text),
        }
    }
}

impl ReplyKind {
    /// True if the reply is that of a read whose answer may be long.
    pub(crate) fn is_long(self) -> bool {
        matches!(
            self,
            Self::Value
                | Self::Part { .. }
                | Self::Range { .. }
                | Self::BitCount { .. }
                | Self::BitPlace { .. }
                | Self::Hash(_)
                | Self::List(ListReply::Element(_) | ListReply::Range(..))
                | Self::Set(_)
                | Self::Sorted(SortedReply::Range { .. } | SortedReply::Scores { .. })
        )
    }

    /// True if the reply is that of a read of a collection, which may have to be carried out
    /// otherwise.
    pub(crate) fn is_of_tree(self) -> bool {
        match self {
            Self::Hash(_) | Self::Set(_) => true,
            Self::Sorted(reply) => reply.may_be_part(),
            _ => false,
        }
    }

    /// True if a request of this reply may add to a collection something for which clients wait,
    /// so its key is kept.
    #[inline]
    pub(crate) fn adds_members(self) -> bool {
        match self {
            Self::Sorted(reply) => reply.adds(),
            Self::Stream(reply) => reply == StreamReply::Added,
            _ => false,
        }
    }

    /// True if the reply is about a collection, and the answer may have only a part of it.
    #[inline]
    pub(crate) fn may_be_part(self) -> bool {
        match self {
            Self::Hash(reply) => reply.may_be_part(),
            Self::Set(reply) => reply.may_be_part(),
            Self::Sorted(reply) => reply.may_be_part(),
            _ => false,
        }
    }

    /// True if an answer has only a part of the reply.
    #[inline]
    pub(crate) fn is_part(self, answer: &Answer<'_>) -> bool {
        match self {
            Self::Hash(reply) => reply.is_part(answer),
            Self::Set(reply) => reply.is_part(answer),
            Self::Sorted(reply) => reply.is_part(answer),
            _ => false,
        }
    }

    /// True if the reply is that of one element, which was looked up as the only one of several.
    pub(crate) fn is_of_one(self) -> bool {
        matches!(
            self,
            Self::Hash(HashReply::Found { .. }) | Self::Set(SetReply::Found)
        )
    }

    /// Writes what comes before the elements of a collection, of which the reply has this many.
    pub(crate) fn write_head(self, count: usize, writer: &mut Writer<'_>) {
        match self {
            Self::Hash(reply) => reply.write_head(count, writer),
            Self::Set(reply) => reply.write_head(count, writer),
            Self::Sorted(reply) => reply.write_head(count, writer),
            _ => {}
        }
    }

    /// Writes the value that an element of a collection has, of which this is the key.
    pub(crate) fn write_value(self, key: &[u8], value: Option<&[u8]>, writer: &mut Writer<'_>) {
        match self {
            Self::Hash(reply) => reply.write_value(key, value, writer),
            Self::Set(reply) => reply.write_value(value, writer),
            _ => {}
        }
    }

    /// Writes elements of a collection, one after the other.
    pub(crate) fn write_page(self, page: &TreePage, writer: &mut Writer<'_>) {
        match self {
            Self::Hash(reply) => reply.write_elements(page.iter(), writer),
            Self::Set(reply) => reply.write_elements(page.iter(), writer),
            Self::Sorted(reply) => reply.write_page(page, writer),
            _ => {}
        }
    }

    /// True if the reply has a collection's elements or their values, all of them.
    pub(crate) fn has_elements(self) -> bool {
        matches!(
            self,
            Self::Hash(HashReply::All | HashReply::Values)
                | Self::List(ListReply::Range(0, -1))
                | Self::Set(SetReply::Members)
        )
    }

    /// True if the reply is as long as the answer's value at least, whatever that is.
    pub(crate) fn has_whole_value(self) -> bool {
        matches!(self, Self::Value | Self::Part { .. })
    }

    /// The reply to a question about bits where there is no value.
    pub(crate) fn bits_of_nothing(self) -> i64 {
        match self {
            Self::BitPlace { sought, .. } => sought.in_nothing(),
            _ => 0,
        }
    }

    /// True if the reply is what the answer has as its value.
    fn is_value(self) -> bool {
        matches!(
            self,
            Self::Value | Self::Taken | Self::Expiring(_) | Self::Float | Self::Part { .. }
        )
    }
}

// Each pending reply holds one.
const _: () = assert!(size_of::<ReplyKind>() == 24);

/// A command that does not know the type of the value; as Redis.
pub(crate) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";

/// True if an operation failed because the key holds a value of another type.
pub(crate) fn is_wrong_type(error: &Error) -> bool {
    matches!(
        error,
        Error::Collection
            | Error::NoCollection
            | Error::CollectionKind { .. }
            | Error::CollectionTag { .. }
    )
}

/// Why a command failed, as the client reads it.
pub(crate) fn error_text(error: &Error) -> String {
    match error {
        Error::FarFull { .. } | Error::IndexFull { .. } => OUT_OF_MEMORY.to_owned(),
        Error::LongValues {
            writing,
            pieces,
            unfinished,
            ..
        } => format!(
            "ERR a shard takes {writing} long values at once and holds {pieces} pieces, and {unfinished} are being sent: try again, send fewer at once, delete long values or raise --local"
        ),
        Error::NotANumber { reason } if reason.contains("integer") => NO_INTEGER.to_owned(),
        Error::NotANumber { reason } if reason.contains("finite decimal") => NO_FLOAT.to_owned(),
        Error::NotANumber { .. } => "ERR increment would produce NaN or Infinity".to_owned(),
        Error::CounterOverflow { .. } => "ERR increment or decrement would overflow".to_owned(),
        Error::LongValueTooLong { bytes, max } if *max < LONG_VALUE_BYTES_MAX => format!(
            "OOM the value has {bytes} bytes, and the memory of its core holds one of at most {max}: raise --far"
        ),
        Error::ValueTooLong { .. } | Error::LongValueTooLong { .. } => {
            "ERR string exceeds maximum allowed size (proto-max-bulk-len)".to_owned()
        }
        Error::LongValue { bytes, .. } => format!(
            "ERR the value has {bytes} bytes, too many for this command: read it with GET or GETRANGE, or replace it"
        ),
        Error::KeyTooLong { bytes, max } => format!(
            "ERR the key has {bytes} bytes, and a key has at most {max}: use a shorter one, for example a hash of it"
        ),
        error if is_wrong_type(error) => WRONG_TYPE.to_owned(),
        Error::CollectionVersion { .. } => {
            "ERR other clients changed the key again and again meanwhile: try again".to_owned()
        }
        Error::SectionLost { .. } | Error::SectionRefused { .. } => {
            "ERR the command has kept others waiting, or waited for them, for too long: try again"
                .to_owned()
        }
        Error::Collections { .. } => format!("OOM {error}"),
        Error::Unavailable { node, .. } if error.is_lost() => {
            format!("UNAVAILABLE {}", lost_text(node, "FARCORE FORGET-LOST"))
        }
        Error::Unavailable { .. } | Error::Fabric { .. } => format!("UNAVAILABLE {error}"),
        Error::Damaged { .. } => format!("DAMAGED {error}"),
        Error::Cursor { .. } => {
            "ERR invalid cursor: no scan of this server returned it; begin with 0".to_owned()
        }
        Error::JournalFailed => format!("MISCONF Errors writing to the AOF file: {error}"),
        Error::Closed => "LOADING the server is closing".to_owned(),
        other => format!("ERR {other}"),
    }
}

/// Why a lost key cannot be read, and the command that ends it.
pub(crate) fn lost_text(node: &str, command: &str) -> String {
    format!(
        "the key's value is lost with memory node {node}, which was restarted, was away for too long or returned a damaged record: write or delete the key, or make all lost keys absent with {command}"
    )
}

/// The text of an error for a kind of reply: a long value is no number.
fn error_text_of(kind: ReplyKind, error: &Error) -> String {
    match (kind, error) {
        (ReplyKind::Integer, Error::LongValue { .. }) => NO_INTEGER.to_owned(),
        (ReplyKind::Float, Error::LongValue { .. }) => NO_FLOAT.to_owned(),
        (ReplyKind::List(_), error) => list_error_text(error),
        (_, error) => error_text(error),
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    farcore_tuning::system_ms()
}

/// The reply to a question about when a key expires.
fn expiry_reply(kind: ReplyKind, answer: &Answer<'_>) -> i64 {
    let &Answer::Value { version, value } = answer else {
        return -2;
    };
    let Some(at_ms) = Metadata::decode(version, value).and_then(|metadata| metadata.expiry_ms)
    else {
        return -1;
    };
    let left_ms = at_ms.saturating_sub(now_ms());
    let reply = match kind {
        ReplyKind::Seconds => left_ms.saturating_add(500) / 1000,
        ReplyKind::Milliseconds => left_ms,
        ReplyKind::ExpirySeconds => at_ms / 1000,
        _ => at_ms,
    };
    i64::try_from(reply).unwrap_or(i64::MAX)
}

/// The bytes from `start` to `end`, both included, of `length`.
pub(crate) fn range(start: i64, end: i64, length: usize) -> std::ops::Range<usize> {
    let signed = i64::try_from(length).unwrap_or(i64::MAX);
    let from_start = |place: i64| if place < 0 { place + signed } else { place };
    // Both count from the end and are the wrong way round: nothing, whatever the length.
    let is_reversed = start < 0 && end < 0 && start > end;
    let start = from_start(start).max(0);
    let end = from_start(end).max(0).min(signed - 1) + 1;
    if is_reversed || start >= end {
        return 0..0;
    }
    let place = |place: i64| usize::try_from(place).unwrap_or(0);
    place(start)..place(end)
}

/// Bytes of the longest value that Redis embeds in its object.
const EMBEDDED_BYTES_MAX: usize = 44;

/// The encoding that Redis would choose for a value, of which at least the first 45 bytes are
/// given.
pub(crate) fn encoding(value: &[u8]) -> &'static str {
    if parsed_integer(value).is_some() {
        "int"
    } else if value.len() <= EMBEDDED_BYTES_MAX {
        "embstr"
    } else {
        "raw"
    }
}

/// Bytes of a record's header and of its step in length.
const UNIT_BYTES: u64 = 16;
/// Bytes of the index that a key takes, about.
const INDEX_BYTES: u64 = 10;
/// Bytes of a time of expiry.
const EXPIRY_BYTES: u64 = 8;

/// Bytes that a key with its value takes in the engine, about.
pub(crate) fn usage(key_bytes: usize, metadata: Metadata) -> i64 {
    let expiry = metadata.expiry_ms.map_or(0, |_| EXPIRY_BYTES);
    let bytes = key_bytes as u64 + metadata.length + expiry;
    let bytes = UNIT_BYTES + bytes.next_multiple_of(UNIT_BYTES) + INDEX_BYTES;
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Bytes that a node of a tree has for an element beside it.
const ELEMENT_BYTES: u64 = 6;
/// The share of a node that is free, about.
const SLACK_SHARE: u64 = 8;

/// Bytes that a key with its collection takes in the engine, about.
pub(crate) fn usage_of_tree(key_bytes: usize, length: &TreeLength) -> i64 {
    let elements = length.bytes + length.elements * ELEMENT_BYTES;
    let nodes = elements + elements / SLACK_SHARE;
    let bytes = UNIT_BYTES + key_bytes as u64 + nodes.next_multiple_of(UNIT_BYTES) + INDEX_BYTES;
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The type of a key whose value is plain if there is one.
fn plain_type(answer: &Answer<'_>) -> &'static str {
    match answer {
        Answer::Value { .. } => PLAIN,
        _ => "none",
    }
}

/// The reply to a question about bits of a value.
fn bits_reply(kind: ReplyKind, answer: &Answer<'_>) -> i64 {
    let &Answer::Value { value, .. } = answer else {
        return kind.bits_of_nothing();
    };
    if let ReplyKind::BitPlace { start, end, sought } = kind {
        return bit_place(value, start, end, sought);
    }
    let count = match kind {
        ReplyKind::Bit { mask, .. } => value.first().map_or(0, |byte| u64::from(byte & mask != 0)),
        ReplyKind::BitCount {
            start,
            end,
            is_of_bits,
        } => bit_count(value, start, end, is_of_bits),
        _ => 0,
    };
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Writes the length of a plain value.
fn write_length(metadata: Option<Metadata>, writer: &mut Writer<'_>) {
    if metadata.is_some_and(|metadata| metadata.collection.is_some()) {
        return writer.error(WRONG_TYPE);
    }
    let length = metadata.map_or(0, |metadata| metadata.length);
    writer.integer(i64::try_from(length).unwrap_or(i64::MAX));
}

/// Writes how many elements a collection has, which must be of a kind.
fn write_elements(kind: Kind, answer: &Answer<'_>, writer: &mut Writer<'_>) {
    let length = TreeView::of(answer).length();
    if length.version > 0 && length.tag != kind.tag() {
        return writer.error(WRONG_TYPE);
    }
    writer.integer(i64::try_from(length.elements).unwrap_or(i64::MAX));
}

/// Writes what an answer says.
#[inline]
pub(crate) fn write_answer(kind: ReplyKind, answer: &Answer<'_>, writer: &mut Writer<'_>) {
    match (kind, answer) {
        (kind, Answer::Failed(error)) => writer.error(&error_text_of(kind, error)),
        (kind, Answer::Value { value, .. }) if kind.is_value() => writer.bulk(value),
        (ReplyKind::Range { start, end }, Answer::Value { value, .. }) => {
            writer.bulk(&value[range(start, end, value.len())]);
        }
        (ReplyKind::Part { .. } | ReplyKind::Range { .. }, _) => writer.bulk(b""),
        (
            ReplyKind::Bit { .. } | ReplyKind::BitCount { .. } | ReplyKind::BitPlace { .. },
            answer,
        ) => {
            writer.integer(bits_reply(kind, answer));
        }
        // An expiry in the past deletes the key.
        (
            ReplyKind::Stored | ReplyKind::StoredOrNull,
            Answer::Stored { .. } | Answer::Deleted | Answer::Absent,
        )
        | (ReplyKind::Stored, Answer::Value { .. }) => writer.simple("OK"),
        (ReplyKind::Integer, Answer::Value { value, .. }) => {
            writer.integer_text(value);
        }
        (ReplyKind::Number { place }, answer) => {
            let number = TreeView::of(answer).number(place.into());
            writer.integer(i64::try_from(number).unwrap_or(i64::MAX));
        }
        (ReplyKind::Elements(kind), answer) => write_elements(kind, answer, writer),
        (ReplyKind::Hash(reply), answer) => reply.write(answer, writer),
        (ReplyKind::List(reply), answer) => reply.write(answer, writer),
        (ReplyKind::Set(reply), answer) => reply.write(answer, writer),
        (ReplyKind::Sorted(reply), answer) => reply.write(answer, writer),
        (ReplyKind::Stream(reply), answer) => reply.write(answer, writer),
        (ReplyKind::PlainType, answer) => writer.simple(plain_type(answer)),
        (
            ReplyKind::Seconds
            | ReplyKind::Milliseconds
            | ReplyKind::ExpirySeconds
            | ReplyKind::ExpiryMilliseconds,
            answer,
        ) => writer.integer(expiry_reply(kind, answer)),
        (ReplyKind::Length, &Answer::Value { version, value }) => {
            write_length(Metadata::decode(version, value), writer);
        }
        (
            ReplyKind::IsStored
            | ReplyKind::IsDeleted
            | ReplyKind::Exists
            | ReplyKind::IsExpirySet
            | ReplyKind::Integer
            | ReplyKind::Length,
            answer,
        ) => {
            let is_done = matches!(
                answer,
                Answer::Stored { .. } | Answer::Deleted | Answer::Value { .. }
            );
            writer.integer(i64::from(is_done));
        }
        (ReplyKind::Refused { kind, absent, text }, answer) => {
            absent.write(kind, answer, text, writer);
        }
        (ReplyKind::ReferenceCount, Answer::Value { .. }) => writer.integer(1),
        (ReplyKind::Unknown(error), Answer::Value { .. }) => writer.error(error),
        _ => writer.null(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_redis() {
        for (start, end, expected) in [
            (0, 3, "Hell"),
            (0, -1, "Hello"),
            (-4, -1, "ello"),
            (5, 3, ""),
            (5, 5000, ""),
            (-5000, 10000, "Hello"),
            (0, -100, "H"),
            (1, -100, ""),
            (-1, -2, ""),
            (4, 4, "o"),
        ] {
            let seen = &"Hello"[range(start, end, 5)];
            assert_eq!(seen, expected, "{start} to {end}");
        }
        assert_eq!(range(0, -1, 0), 0..0);
    }
}
