//! Calls of clients of all kinds that write and read long values.

use super::{LongGet, LongPut, NoVisitor, Routed, Sink};
use crate::client::call::PutOutcome;
use crate::client::core::Core;
use crate::client::handle::Handle;
use crate::client::pool::Client;
use crate::client::refused::check;
use crate::client::shard_requests::{RunShardRequests, of_handle};
use crate::constants::EXPIRY_BYTES;
use crate::error::{Error, Result};
use crate::message::change::{CHANGE_BYTES, PutOptions};
use crate::message::hash::Hasher128;
use crate::message::operation::{OperationKind, RequestParts, Version};

/// Bytes that a value in a record can have beside it: those of the put, and an expiry.
const BESIDE_BYTES: usize = CHANGE_BYTES + EXPIRY_BYTES;

/// True if a value of this length is stored in a record.
fn is_in_record(length: u64, value_bytes_max: usize) -> bool {
    let max = value_bytes_max.saturating_sub(BESIDE_BYTES);
    length <= max as u64
}

/// A value that is short enough for a record.
fn whole(said: u64, parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    for part in parts {
        value.extend_from_slice(part.as_ref());
        if value.len() as u64 > said {
            break;
        }
    }
    let given = value.len() as u64;
    if given == said {
        Ok(value)
    } else {
        Err(Error::LongValueLength { said, given })
    }
}

/// The outcome of a put without a condition.
fn stored(outcome: PutOutcome) -> Result<Version> {
    match outcome {
        PutOutcome::Stored(version) => Ok(version),
        PutOutcome::Unmet(_) | PutOutcome::Expired => Err(Error::Closed),
    }
}

/// Checks a key.
pub(super) fn routed(key: &[u8], hasher: Hasher128, shards: u16) -> Result<Routed<'_>> {
    let parts = RequestParts {
        kind: OperationKind::Get,
        key,
        value: &[],
        expected: 0,
    };
    check(&parts, 0)?;
    Ok(Routed::new(key, hasher, shards))
}

/// Stores a value in pieces.
async fn put_pieces(
    client: &mut impl RunShardRequests,
    key: &[u8],
    length: u64,
    parts: impl Iterator<Item = impl AsRef<[u8]>>,
    options: PutOptions<'_>,
) -> Result<PutOutcome> {
    let (hasher, shards) = client.hasher_and_shards();
    let routed = routed(key, hasher, shards)?;
    let mut put = LongPut::new(routed, hasher, length, parts, options);
    client.run(&mut put).await?;
    put.result()
}

/// Reads what is wanted of a value into a buffer.
async fn get_into(
    client: &mut impl RunShardRequests,
    key: &[u8],
    wanted: (u64, u64),
    value: &mut Vec<u8>,
) -> Result<Option<Version>> {
    let (hasher, shards) = client.hasher_and_shards();
    let routed = routed(key, hasher, shards)?;
    value.clear();
    let mut get = LongGet::new(routed, hasher, wanted, Sink::<NoVisitor>::Buffer(value));
    let ended = client.run(&mut get).await;
    get.result(ended)
}

/// Visits a value in order.
async fn read(
    client: &mut impl RunShardRequests,
    key: &[u8],
    visit: impl FnMut(u64, &[u8]),
) -> Result<Option<Version>> {
    let (hasher, shards) = client.hasher_and_shards();
    let routed = routed(key, hasher, shards)?;
    let mut get = LongGet::new(routed, hasher, (0, u64::MAX), Sink::Visitor(visit));
    let ended = client.run(&mut get).await;
    get.result(ended)
}

impl Handle {
    /// Stores a value of up to 64 MiB, in pieces if it is too long for [`Handle::put`]. Blocks
    /// until it is stored. Other clients find the value before until all of this one is stored, and
    /// then all of it.
    ///
    /// # Errors
    /// Those of [`Handle::put`]; [`Error::LongValueTooLong`], [`Error::LongValues`],
    /// [`Error::LongValueGone`]. The stored value is as before.
    pub fn put_long(&mut self, key: &[u8], value: &[u8]) -> Result<Version> {
        let length = value.len() as u64;
        stored(self.put_long_with(key, length, [value], PutOptions::default())?)
    }

    /// Stores a value of `length` bytes that comes in parts of any length, if a condition holds.
    ///
    /// # Errors
    /// As [`Handle::put_long`]; [`Error::LongValueLength`] if the parts have fewer or more bytes.
    pub fn put_long_with(
        &mut self,
        key: &[u8],
        length: u64,
        parts: impl IntoIterator<Item = impl AsRef<[u8]>>,
        options: PutOptions<'_>,
    ) -> Result<PutOutcome> {
        let value_bytes_max = self.shared.sizes.value_bytes_max;
        if is_in_record(length, value_bytes_max) {
            let value = whole(length, parts)?;
            return self.put_with(key, &value, options).wait();
        }
        // A blocking caller has all of its bytes.
        let parts = parts.into_iter().filter(|part| !part.as_ref().is_empty());
        of_handle(put_pieces(self, key, length, parts, options))
    }

    /// Reads a value of any length into `value`, which it replaces; returns its version, or `None`
    /// if the key is absent. All of it is of one version.
    ///
    /// # Errors
    /// Those of [`Handle::get`]; [`Error::LongValueGone`] if the value was replaced each time that
    /// it was read.
    pub fn get_long(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Version>> {
        self.get_long_range(key, 0, u64::MAX, value)
    }

    /// Reads a part of a value of any length into `value`, which it replaces; returns the version,
    /// or `None` if the key is absent. The part is shorter where the value ends. Only pieces that
    /// hold a byte of it are read.
    ///
    /// # Errors
    /// As [`Handle::get_long`].
    pub fn get_long_range(
        &mut self,
        key: &[u8],
        offset: u64,
        bytes: u64,
        value: &mut Vec<u8>,
    ) -> Result<Option<Version>> {
        of_handle(get_into(self, key, (offset, bytes), value))
    }

    /// Reads a value of any length and visits it in order, a piece at a time, each with the length
    /// of the whole. A few pieces are in memory at once.
    ///
    /// # Errors
    /// Those of [`Handle::get`]; [`Error::LongValueGone`] if the value was replaced after its first
    /// piece was visited.
    pub fn read_long(
        &mut self,
        key: &[u8],
        visit: impl FnMut(u64, &[u8]),
    ) -> Result<Option<Version>> {
        of_handle(read(self, key, visit))
    }
}

impl Core {
    /// Stores a value of up to 64 MiB; see [`Handle::put_long`]. If the call is dropped before its
    /// last request was sent, nothing is stored, and its pieces are removed after a minute.
    ///
    /// # Errors
    /// As [`Handle::put_long`].
    pub async fn put_long(&mut self, key: &[u8], value: &[u8]) -> Result<Version> {
        let length = value.len() as u64;
        let options = PutOptions::default();
        stored(self.put_long_with(key, length, [value], options).await?)
    }

    /// Stores a value that comes in parts; see [`Handle::put_long_with`]. If it is longer than a
    /// record's, an empty part says that no bytes are there yet: it takes the next later.
    ///
    /// # Errors
    /// As [`Handle::put_long_with`].
    pub async fn put_long_with(
        &mut self,
        key: &[u8],
        length: u64,
        parts: impl IntoIterator<Item = impl AsRef<[u8]>>,
        options: PutOptions<'_>,
    ) -> Result<PutOutcome> {
        if is_in_record(length, self.value_bytes_max()) {
            let value = whole(length, parts)?;
            return self.put_with(key, &value, options).await;
        }
        put_pieces(self, key, length, parts.into_iter(), options).await
    }

    /// Reads a value of any length; see [`Handle::get_long`]. Dropping the call is safe.
    ///
    /// # Errors
    /// As [`Handle::get_long`].
    pub async fn get_long(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Version>> {
        self.get_long_range(key, 0, u64::MAX, value).await
    }

    /// Reads a part of a value; see [`Handle::get_long_range`].
    ///
    /// # Errors
    /// As [`Handle::get_long`].
    pub async fn get_long_range(
        &mut self,
        key: &[u8],
        offset: u64,
        bytes: u64,
        value: &mut Vec<u8>,
    ) -> Result<Option<Version>> {
        get_into(self, key, (offset, bytes), value).await
    }

    /// Reads a value in order, a piece at a time; see [`Handle::read_long`]. The visitor must keep
    /// the rules of [`Core::poll`].
    ///
    /// # Errors
    /// As [`Handle::read_long`].
    pub async fn read_long(
        &mut self,
        key: &[u8],
        visit: impl FnMut(u64, &[u8]),
    ) -> Result<Option<Version>> {
        read(self, key, visit).await
    }
}

impl Client {
    /// Stores a value of up to 64 MiB; see [`Handle::put_long`]. If the call is dropped before its
    /// last request was sent, nothing is stored, and its pieces are removed after a minute.
    ///
    /// # Errors
    /// As [`Handle::put_long`].
    pub async fn put_long(&self, key: &[u8], value: &[u8]) -> Result<Version> {
        let length = value.len() as u64;
        let options = PutOptions::default();
        stored(self.put_long_with(key, length, [value], options).await?)
    }

    /// Stores a value that comes in parts; see [`Handle::put_long_with`].
    ///
    /// # Errors
    /// As [`Handle::put_long_with`].
    pub async fn put_long_with(
        &self,
        key: &[u8],
        length: u64,
        parts: impl IntoIterator<Item = impl AsRef<[u8]>>,
        options: PutOptions<'_>,
    ) -> Result<PutOutcome> {
        if is_in_record(length, self.value_bytes_max()) {
            let value = whole(length, parts)?;
            return self.put_with(key, &value, options).await;
        }
        // All of its bytes are there.
        let parts = parts.into_iter().filter(|part| !part.as_ref().is_empty());
        put_pieces(&mut self.shard_client(), key, length, parts, options).await
    }

    /// Reads a value of any length into `value`; see [`Handle::get_long`].
    ///
    /// # Errors
    /// As [`Handle::get_long`].
    pub async fn get_long(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Version>> {
        self.get_long_range(key, 0, u64::MAX, value).await
    }

    /// Reads a part of a value; see [`Handle::get_long_range`].
    ///
    /// # Errors
    /// As [`Handle::get_long`].
    pub async fn get_long_range(
        &self,
        key: &[u8],
        offset: u64,
        bytes: u64,
        value: &mut Vec<u8>,
    ) -> Result<Option<Version>> {
        get_into(&mut self.shard_client(), key, (offset, bytes), value).await
    }

    /// Reads a value in order, a piece at a time; see [`Handle::read_long`]. The visitor runs while
    /// others of the client's callers wait: it must be brief and must not call the client.
    ///
    /// # Errors
    /// As [`Handle::read_long`].
    pub async fn read_long(
        &self,
        key: &[u8],
        visit: impl FnMut(u64, &[u8]),
    ) -> Result<Option<Version>> {
        read(&mut self.shard_client(), key, visit).await
    }
}
