//! The calls of a handle that depend on what a key holds, and reads of less than a value.

use super::call::{Call, CasOutcome, DeleteOutcome, ExpiryOutcome, PutOutcome, TimeToLive, Value};
use super::handle::Handle;
#[cfg(doc)]
use crate::error::Error;
use crate::message::change::{Condition, Metadata, PutOptions};
use crate::message::expiry::{Expiry, ExpiryCondition};
use crate::message::operation::Operation;

impl Handle {
    /// Stores a value if the condition holds; else answers the key's version.
    ///
    /// # Errors
    /// Those of [`Handle::put`].
    pub fn put_if<'a, 'k>(
        &'a mut self,
        key: &'k [u8],
        value: &'k [u8],
        condition: Condition<'k>,
    ) -> Call<'a, 'k, CasOutcome> {
        Call::new(self, Operation::put_if(key, value, condition))
    }

    /// Stores a value that may expire, if a condition holds. A value with an
    /// expiry may have 8 bytes less.
    ///
    /// # Errors
    /// Those of [`Handle::put`].
    pub fn put_with<'a, 'k>(
        &'a mut self,
        key: &'k [u8],
        value: &'k [u8],
        options: PutOptions<'k>,
    ) -> Call<'a, 'k, PutOutcome> {
        Call::new(self, Operation::put_with(key, value, options))
    }

    /// Sets when a key expires. A time in the past deletes it.
    ///
    /// # Errors
    /// Those of [`Handle::put`].
    pub fn expire<'a, 'k>(
        &'a mut self,
        key: &'k [u8],
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> Call<'a, 'k, ExpiryOutcome> {
        Call::new(self, Operation::expire(key, expiry, condition))
    }

    /// Removes a key's expiry; true if it had one.
    ///
    /// # Errors
    /// Those of [`Handle::put`].
    pub fn persist<'a, 'k>(&'a mut self, key: &'k [u8]) -> Call<'a, 'k, bool> {
        Call::new(self, Operation::persist(key))
    }

    /// Reads a value and sets when it expires.
    ///
    /// # Errors
    /// Those of [`Handle::put`].
    pub fn get_and_expire<'a, 'k>(
        &'a mut self,
        key: &'k [u8],
        expiry: Expiry,
    ) -> Call<'a, 'k, Option<Value<'a>>> {
        Call::new(self, Operation::get_and_expire(key, expiry))
    }

    /// Reads how long a key has to live; `None` if it is absent. Cost: as [`Handle::inspect`].
    ///
    /// # Errors
    /// Those of [`Handle::get`].
    pub fn time_to_live<'a, 'k>(&'a mut self, key: &'k [u8]) -> Call<'a, 'k, Option<TimeToLive>> {
        Call::new(self, Operation::Inspect { key })
    }

    /// Removes a key if the condition holds.
    ///
    /// # Errors
    /// Those of [`Handle::delete`].
    pub fn delete_if<'a, 'k>(
        &'a mut self,
        key: &'k [u8],
        condition: Condition<'k>,
    ) -> Call<'a, 'k, DeleteOutcome> {
        Call::new(self, Operation::delete_if(key, condition))
    }

    /// Stores a value and returns the one before.
    ///
    /// # Errors
    /// Those of [`Handle::put`].
    pub fn get_and_put<'a, 'k>(
        &'a mut self,
        key: &'k [u8],
        value: &'k [u8],
    ) -> Call<'a, 'k, Option<Value<'a>>> {
        Call::new(self, Operation::get_and_put(key, value))
    }

    /// Removes a key and returns its value.
    ///
    /// # Errors
    /// Those of [`Handle::delete`].
    pub fn get_and_delete<'a, 'k>(&'a mut self, key: &'k [u8]) -> Call<'a, 'k, Option<Value<'a>>> {
        Call::new(self, Operation::get_and_delete(key))
    }

    /// Adds to a decimal integer and returns the sum. An absent key counts as 0.
    ///
    /// # Errors
    /// [`Error::NotANumber`], [`Error::CounterOverflow`], and those of [`Handle::put`].
    pub fn increment<'a, 'k>(&'a mut self, key: &'k [u8], by: i64) -> Call<'a, 'k, i64> {
        Call::new(self, Operation::increment(key, by))
    }

    /// Adds to a decimal number and returns the sum. An absent key counts as 0.
    ///
    /// # Errors
    /// [`Error::NotANumber`], and those of [`Handle::put`].
    pub fn increment_float<'a, 'k>(&'a mut self, key: &'k [u8], by: f64) -> Call<'a, 'k, f64> {
        Call::new(self, Operation::increment_float(key, by))
    }

    /// Adds bytes behind a value and returns the new version and length. An absent key counts as
    /// empty. Cost: a copy of the value.
    ///
    /// # Errors
    /// [`Error::ValueTooLong`] for the whole, and those of [`Handle::put`].
    pub fn append<'a, 'k>(&'a mut self, key: &'k [u8], tail: &'k [u8]) -> Call<'a, 'k, Metadata> {
        Call::new(self, Operation::append(key, tail))
    }

    /// Overwrites a part of a value; a gap before it is filled with zeros. With no bytes nothing
    /// changes. Cost: a copy of the value.
    ///
    /// # Errors
    /// [`Error::ValueTooLong`] for the whole, and those of [`Handle::put`].
    pub fn set_range<'a, 'k>(
        &'a mut self,
        key: &'k [u8],
        offset: u64,
        bytes: &'k [u8],
    ) -> Call<'a, 'k, Metadata> {
        Call::new(self, Operation::set_range(key, offset, bytes))
    }

    /// True if a key exists. Cost: as [`Handle::get`], but a far record's value is not read.
    ///
    /// # Errors
    /// Those of [`Handle::get`].
    pub fn exists<'a, 'k>(&'a mut self, key: &'k [u8]) -> Call<'a, 'k, bool> {
        Call::new(self, Operation::Inspect { key })
    }

    /// Reads a key's version and length. Cost: as [`Handle::get`], but a far record's value is not
    /// read. Without encryption, damage to the head of a far record is not noticed: the checksum is
    /// of the whole record.
    ///
    /// # Errors
    /// Those of [`Handle::get`].
    pub fn inspect<'a, 'k>(&'a mut self, key: &'k [u8]) -> Call<'a, 'k, Option<Metadata>> {
        Call::new(self, Operation::Inspect { key })
    }

    /// Reads a part of a value: at most `bytes` from `offset` on, less where the value ends before.
    ///
    /// # Errors
    /// Those of [`Handle::get`].
    pub fn get_range<'a, 'k>(
        &'a mut self,
        key: &'k [u8],
        offset: u32,
        bytes: u32,
    ) -> Call<'a, 'k, Option<Value<'a>>> {
        Call::new(self, Operation::GetRange { key, offset, bytes })
    }
}
