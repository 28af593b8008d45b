//! The calls of a core client that depend on what a key holds, and reads of less than a value.

use super::call::{CasOutcome, DeleteOutcome, ExpiryOutcome, PutOutcome, TimeToLive, Value};
use super::core::Core;
use crate::error::Result;
use crate::message::change::{Condition, Metadata, PutOptions};
use crate::message::expiry::{Expiry, ExpiryCondition};
use crate::message::operation::Operation;

impl Core {
    /// Stores a value if the condition holds; else answers the key's version.
    ///
    /// # Errors
    /// Those of [`Core::put`].
    pub async fn put_if(
        &mut self,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<CasOutcome> {
        self.call(Operation::put_if(key, value, condition)).await
    }

    /// Stores a value that may expire, if a condition holds. A value with an
    /// expiry may have 8 bytes less.
    ///
    /// # Errors
    /// Those of [`Core::put`].
    pub async fn put_with(
        &mut self,
        key: &[u8],
        value: &[u8],
        options: PutOptions<'_>,
    ) -> Result<PutOutcome> {
        self.call(Operation::put_with(key, value, options)).await
    }

    /// Sets when a key expires. A time in the past deletes it.
    ///
    /// # Errors
    /// Those of [`Core::put`].
    pub async fn expire(
        &mut self,
        key: &[u8],
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> Result<ExpiryOutcome> {
        self.call(Operation::expire(key, expiry, condition)).await
    }

    /// Removes a key's expiry; true if it had one.
    ///
    /// # Errors
    /// Those of [`Core::put`].
    pub async fn persist(&mut self, key: &[u8]) -> Result<bool> {
        self.call(Operation::persist(key)).await
    }

    /// Reads a value and sets when it expires.
    ///
    /// # Errors
    /// Those of [`Core::put`].
    pub async fn get_and_expire(
        &mut self,
        key: &[u8],
        expiry: Expiry,
    ) -> Result<Option<Value<'_>>> {
        self.call(Operation::get_and_expire(key, expiry)).await
    }

    /// Reads how long a key has to live; `None` if it is absent. Cost: as [`Core::inspect`].
    ///
    /// # Errors
    /// Those of [`Core::get`].
    pub async fn time_to_live(&mut self, key: &[u8]) -> Result<Option<TimeToLive>> {
        self.call(Operation::Inspect { key }).await
    }

    /// Removes a key if the condition holds.
    ///
    /// # Errors
    /// Those of [`Core::delete`].
    pub async fn delete_if(
        &mut self,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<DeleteOutcome> {
        self.call(Operation::delete_if(key, condition)).await
    }

    /// Stores a value and returns the one before.
    ///
    /// # Errors
    /// Those of [`Core::put`].
    pub async fn get_and_put(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Value<'_>>> {
        self.call(Operation::get_and_put(key, value)).await
    }

    /// Removes a key and returns its value.
    ///
    /// # Errors
    /// Those of [`Core::delete`].
    pub async fn get_and_delete(&mut self, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.call(Operation::get_and_delete(key)).await
    }

    /// Adds to a decimal integer and returns the sum. An absent key counts as 0.
    ///
    /// # Errors
    /// [`Error::NotANumber`](crate::Error::NotANumber),
    /// [`Error::CounterOverflow`](crate::Error::CounterOverflow), and those of [`Core::put`].
    pub async fn increment(&mut self, key: &[u8], by: i64) -> Result<i64> {
        self.call(Operation::increment(key, by)).await
    }

    /// Adds to a decimal number and returns the sum. An absent key counts as 0.
    ///
    /// # Errors
    /// [`Error::NotANumber`](crate::Error::NotANumber), and those of [`Core::put`].
    pub async fn increment_float(&mut self, key: &[u8], by: f64) -> Result<f64> {
        self.call(Operation::increment_float(key, by)).await
    }

    /// Adds bytes behind a value and returns the new version and length. An absent key counts as
    /// empty. Cost: a copy of the value.
    ///
    /// # Errors
    /// [`Error::ValueTooLong`](crate::Error::ValueTooLong) for the whole, and those of
    /// [`Core::put`].
    pub async fn append(&mut self, key: &[u8], tail: &[u8]) -> Result<Metadata> {
        self.call(Operation::append(key, tail)).await
    }

    /// Overwrites a part of a value; a gap before it is filled with zeros. With no bytes nothing
    /// changes. Cost: a copy of the value.
    ///
    /// # Errors
    /// [`Error::ValueTooLong`](crate::Error::ValueTooLong) for the whole, and those of
    /// [`Core::put`].
    pub async fn set_range(&mut self, key: &[u8], offset: u64, bytes: &[u8]) -> Result<Metadata> {
        self.call(Operation::set_range(key, offset, bytes)).await
    }

    /// True if a key exists. Cost: as [`Core::get`], but a far record's value is not read.
    ///
    /// # Errors
    /// Those of [`Core::get`].
    pub async fn exists(&mut self, key: &[u8]) -> Result<bool> {
        self.call(Operation::Inspect { key }).await
    }

    /// Reads a key's version and length. Cost: as [`Core::get`], but a far record's value is not
    /// read. Without encryption, damage to the head of a far record is not noticed: the checksum is
    /// of the whole record.
    ///
    /// # Errors
    /// Those of [`Core::get`].
    pub async fn inspect(&mut self, key: &[u8]) -> Result<Option<Metadata>> {
        self.call(Operation::Inspect { key }).await
    }

    /// Reads a part of a value: at most `bytes` from `offset` on, less where the value ends before.
    ///
    /// # Errors
    /// Those of [`Core::get`].
    pub async fn get_range(
        &mut self,
        key: &[u8],
        offset: u32,
        bytes: u32,
    ) -> Result<Option<Value<'_>>> {
        self.call(Operation::GetRange { key, offset, bytes }).await
    }
}
