//! Requests in a queue, where their answers go, and the sink that takes answers.
//!
//! A [`Request`] borrows its parts from the queue. [`Origin`] and [`ReplyTo`] name the client and
//! the lane of an answer. A shard delivers answers through an [`AnswerSink`] and checks or reserves
//! room before it acts.

#![allow(unsafe_code)] // requests refer to the bytes of their queue

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use crate::bytes::copy_to;
use crate::constants::{KEY_BYTES_MAX, LINE_BYTES, SECTION_LANE, VALUE_BYTES_MAX};
use crate::message::hash::IndexHash;
use crate::message::operation::{OperationKind, RequestParts, Version};
use crate::message::outcome::Answer;
use crate::tree::TreeOp;

/// Where a request's answer goes: a lane of the shard, the client on it, and the request's flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReplyTo(pub(crate) u32);

impl ReplyTo {
    /// A lane without a client; requests bring theirs.
    #[inline]
    pub(crate) const fn new(number: u8) -> Self {
        Self(number as u32)
    }

    /// This lane, with the client and flags of a request.
    #[inline]
    pub(crate) fn of(self, origin: Origin) -> Self {
        Self(self.0 | u32::from(origin.0) << 8)
    }

    /// The client and the flags.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the origin is the two bytes beside the lane"
    )]
    pub(crate) fn origin(self) -> Origin {
        Origin((self.0 >> 8) as u16)
    }

    /// This place with the flag of a request that waited for far memory.
    #[inline]
    pub(crate) fn waiting(self) -> Self {
        Self(self.0 | u32::from(RequestFlags::WAITED.0) << 16)
    }

    /// True if the request is the shard's own, for a transaction of the lane.
    #[inline]
    pub(crate) fn is_for_fact(self) -> bool {
        self.0 >> 16 & u32::from(RequestFlags::FACT.0) != 0
    }

    /// True if the request is under the shard's section.
    #[inline]
    pub(crate) fn is_under_section(self) -> bool {
        self.number() == usize::from(SECTION_LANE)
    }

    /// The lane's number, without the client.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lane is the lowest byte"
    )]
    pub(crate) fn number(self) -> usize {
        usize::from(self.0 as u8)
    }
}

/// Flags that a request carries to the shard and its answer carries back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequestFlags(pub(crate) u8);

impl RequestFlags {
    pub(crate) const NONE: Self = Self(0);
    /// The client measures its latency.
    pub(crate) const TIMED: Self = Self(0x40);
    /// It waited for far memory.
    pub(crate) const WAITED: Self = Self(0x20);
    /// The shard's own request: it learns a fact for a transaction, and is not answered.
    pub(crate) const FACT: Self = Self(0x80);
    /// All flag bits: the upper three of an origin.
    const ALL: u8 = 0xe0;

    /// The flag for a timed request.
    #[inline]
    pub(crate) fn timed(timed: bool) -> Self {
        if timed { Self::TIMED } else { Self::NONE }
    }

    #[inline]
    pub(crate) fn is_timed(self) -> bool {
        self.0 & Self::TIMED.0 != 0
    }

    #[inline]
    pub(crate) fn has_waited(self) -> bool {
        self.0 & Self::WAITED.0 != 0
    }
}

/// The client on a lane and the flags of its request. With the token it identifies the recipient
/// of an answer.
///
/// ```text
/// bit 15  13 12       0
/// | mark:3 | client:13 |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Origin(pub(crate) u16);

impl Origin {
    /// The highest number of a client.
    pub(crate) const CLIENT_MAX: u16 = (1 << 13) - 1;

    #[inline]
    pub(crate) fn new(client: u16, mark: RequestFlags) -> Self {
        debug_assert!(client <= Self::CLIENT_MAX);
        Self(client | u16::from(mark.0) << 8)
    }

    #[inline]
    pub(crate) fn client(self) -> u16 {
        self.0 & Self::CLIENT_MAX
    }

    #[inline]
    pub(crate) fn mark(self) -> RequestFlags {
        RequestFlags((self.0 >> 8) as u8 & RequestFlags::ALL)
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin")
            .field("client", &self.client())
            .field("mark", &self.mark())
            .finish()
    }
}

/// One request, half a cache line. The parts that it borrows are contiguous, in the queue that it
/// came over or where they were copied to.
///
/// ```text
/// | expected version:8, if it swaps | key | value |
///                                   ^ what is borrowed is known by where its key begins
/// ```
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Request<'a> {
    /// The index half of the key's hash.
    pub(crate) hash: IndexHash,
    /// The client's token, returned with the answer.
    pub(crate) token: u64,
    key: NonNull<u8>,
    // A shape split into its parts: stored whole, its padding would take the place of the origin.
    value_bytes: u32,
    key_bytes_and_kind: u16,
    pub(crate) origin: Origin,
    borrowed: PhantomData<&'a [u8]>,
}

const _: () = assert!(2 * size_of::<Request<'_>>() == LINE_BYTES);
const _: () = assert!((RequestFlags::ALL as u16) << 8 == !Origin::CLIENT_MAX);
const _: () = assert!((RequestFlags::TIMED.0 | RequestFlags::WAITED.0) & !RequestFlags::ALL == 0);
const _: () =
    assert!(KEY_BYTES_MAX < 1 << (16 - KIND_BITS) && VALUE_BYTES_MAX <= u32::MAX as usize);

/// Bits of an operation's kind: room for 32.
const KIND_BITS: u32 = 5;
const KIND_MASK: u16 = (1 << KIND_BITS) - 1;
const _: () = assert!(OperationKind::LAST as u16 <= KIND_MASK);

/// The kind of a request, and the lengths of its parts.
///
/// ```text
/// bit 47       16 15        5 4    0
/// | value bytes:32 | key bytes:11 | kind:5 |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestShape {
    value_bytes: u32,
    key_bytes_and_kind: u16,
}

impl RequestShape {
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "keys and values were checked against their limits"
    )]
    pub(crate) fn of(parts: &RequestParts<'_>) -> Self {
        debug_assert!(parts.key.len() <= KEY_BYTES_MAX);
        Self {
            value_bytes: parts.value.len() as u32,
            key_bytes_and_kind: (parts.key.len() as u16) << KIND_BITS | parts.kind as u16,
        }
    }

    #[inline]
    pub(crate) fn kind(self) -> OperationKind {
        let kind = (self.key_bytes_and_kind & KIND_MASK) as u8;
        debug_assert!(kind <= OperationKind::LAST as u8);
        // SAFETY: the bits are those of an `OperationKind`, because only `of` writes them. A match
        // over the values would compare; this masks.
        unsafe { std::mem::transmute::<u8, OperationKind>(kind) }
    }

    #[inline]
    pub(crate) fn key_bytes(self) -> usize {
        usize::from(self.key_bytes_and_kind >> KIND_BITS)
    }

    #[inline]
    fn value_bytes(self) -> usize {
        self.value_bytes as usize
    }

    /// Bytes of the parts before the key.
    #[inline]
    fn head_bytes(self) -> usize {
        if self.kind().has_expected() {
            size_of::<Version>()
        } else {
            0
        }
    }

    /// Bytes of all parts that a request borrows.
    #[inline(always)]
    pub(crate) fn bytes(self) -> usize {
        self.head_bytes() + self.key_bytes() + self.value_bytes()
    }
}

impl<'a> Request<'a> {
    /// Copies a request's parts to `place`.
    ///
    /// # Safety
    /// `place` has room for all bytes of its shape. Nothing else uses them, and they stay unchanged
    /// for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn copied(
        place: NonNull<u8>,
        hash: IndexHash,
        token: u64,
        origin: Origin,
        parts: &RequestParts<'_>,
    ) -> Self {
        let shape = RequestShape::of(parts);
        // SAFETY: by this function's contract.
        unsafe {
            if parts.kind.has_expected() {
                place.cast::<Version>().write_unaligned(parts.expected);
            }
            let key = place.add(shape.head_bytes());
            copy_to(key.as_ptr(), parts.key);
            copy_to(key.as_ptr().add(parts.key.len()), parts.value);
            Self::at(place, shape, hash, token, origin)
        }
    }

    /// A request whose parts lie at `place` already.
    ///
    /// # Safety
    /// The parts of a request of this shape lie there, as [`Request::parts`] returns them, for
    /// `'a`.
    #[inline(always)]
    pub(crate) unsafe fn at(
        place: NonNull<u8>,
        shape: RequestShape,
        hash: IndexHash,
        token: u64,
        origin: Origin,
    ) -> Self {
        Self {
            hash,
            token,
            // SAFETY: by this function's contract the key follows.
            key: unsafe { place.add(shape.head_bytes()) },
            value_bytes: shape.value_bytes,
            key_bytes_and_kind: shape.key_bytes_and_kind,
            origin,
            borrowed: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn kind(&self) -> OperationKind {
        self.shape().kind()
    }

    /// True if it may change what a key holds.
    pub(crate) fn changes(&self) -> bool {
        match self.kind() {
            OperationKind::Put
            | OperationKind::Delete
            | OperationKind::CompareAndSwap
            | OperationKind::Change
            | OperationKind::Transaction
            | OperationKind::Clear
            | OperationKind::LongBegin
            | OperationKind::LongWrite
            | OperationKind::LongCommit => true,
            OperationKind::Tree => {
                TreeOp::decode(self.value()).is_none_or(|(_, op)| op.is_change())
            }
            _ => false,
        }
    }

    #[inline]
    pub(crate) fn shape(&self) -> RequestShape {
        RequestShape {
            value_bytes: self.value_bytes,
            key_bytes_and_kind: self.key_bytes_and_kind,
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        // SAFETY: the constructor's caller promised the bytes.
        unsafe { slice::from_raw_parts(self.key.as_ptr(), self.shape().key_bytes()) }
    }

    /// The value; empty if the kind has none.
    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        // SAFETY: as in `key`; the value follows it.
        unsafe {
            let start = self.key.as_ptr().add(self.shape().key_bytes());
            slice::from_raw_parts(start, self.shape().value_bytes())
        }
    }

    /// The version that a compare-and-swap expects; else `0`.
    #[inline]
    pub(crate) fn expected(&self) -> Version {
        if !self.kind().has_expected() {
            return 0;
        }
        // SAFETY: as in `key`; the version precedes it.
        unsafe { self.key.cast::<Version>().sub(1).read_unaligned() }
    }

    /// All parts that it borrows, contiguous.
    #[inline]
    pub(crate) fn parts(&self) -> &'a [u8] {
        // SAFETY: as for the single parts.
        unsafe {
            let start = self.key.as_ptr().sub(self.shape().head_bytes());
            slice::from_raw_parts(start, self.shape().bytes())
        }
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("hash", &self.hash)
            .field("token", &self.token)
            .field("kind", &self.kind())
            .field("key", &self.key())
            .field("value", &self.value())
            .field("expected", &self.expected())
            .field("origin", &self.origin)
            .finish()
    }
}

/// Takes a shard's answers. A shard checks for room before it acts, so an answer is never refused.
pub(crate) trait AnswerSink {
    /// True if an answer carrying a value of this many bytes can be delivered to the lane now.
    fn has_room(&self, lane: ReplyTo, value_bytes: usize) -> bool;
    /// Delivers the answer to one request. The value is copied or visited before this returns.
    fn answer(&mut self, lane: ReplyTo, token: u64, answer: Answer<'_>);
    /// Reserves room for an answer with a value of at most this many bytes; false if there is none.
    /// Other answers do not use it.
    fn reserve(&mut self, lane: ReplyTo, value_bytes: usize) -> bool;
    /// True if so much is reserved that other answers of the lane are soon short of room.
    fn reserves_much(&self) -> bool {
        false
    }
    /// Releases what [`AnswerSink::reserve`] reserved for a value of this many bytes. That answer
    /// has room now.
    fn unreserve(&mut self, lane: ReplyTo, value_bytes: usize);
    /// Checks for room and delivers, for a request that was not acted on yet; false if there is no
    /// room.
    #[inline]
    fn try_answer(&mut self, lane: ReplyTo, token: u64, answer: Answer<'_>) -> bool {
        let has_room = self.has_room(lane, answer.value().len());
        if has_room {
            self.answer(lane, token, answer);
        }
        has_room
    }
}
