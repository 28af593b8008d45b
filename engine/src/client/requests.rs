//! Every call on one key once, as a constructor of [`Operation`]: handles, core clients and shared
//! clients send what these make.

use crate::message::change::{Change, Condition, PutOptions};
use crate::message::expiry::{Expiry, ExpiryCondition};
use crate::message::operation::Operation;

impl<'a> Operation<'a> {
    fn change(key: &'a [u8], change: Change<'a>) -> Self {
        Self::Change { key, change }
    }

    /// Store a value with these options.
    #[must_use]
    pub fn put_with(key: &'a [u8], value: &'a [u8], options: PutOptions<'a>) -> Self {
        let change = Change::Put {
            value,
            expiry: options.expiry,
            condition: options.condition,
            previous: false,
        };
        Self::change(key, change)
    }

    /// Store a value, without an expiry, if a condition holds.
    #[must_use]
    pub fn put_if(key: &'a [u8], value: &'a [u8], condition: Condition<'a>) -> Self {
        let options = PutOptions {
            condition,
            ..PutOptions::default()
        };
        Self::put_with(key, value, options)
    }

    /// Store a value, without an expiry, and answer the one before.
    #[must_use]
    pub fn get_and_put(key: &'a [u8], value: &'a [u8]) -> Self {
        let change = Change::Put {
            value,
            expiry: Expiry::Never,
            condition: Condition::Always,
            previous: true,
        };
        Self::change(key, change)
    }

    /// Remove a key if a condition holds.
    #[must_use]
    pub fn delete_if(key: &'a [u8], condition: Condition<'a>) -> Self {
        let change = Change::Delete {
            condition,
            previous: false,
        };
        Self::change(key, change)
    }

    /// Remove a key and answer its value.
    #[must_use]
    pub fn get_and_delete(key: &'a [u8]) -> Self {
        let change = Change::Delete {
            condition: Condition::Always,
            previous: true,
        };
        Self::change(key, change)
    }

    /// Give a key another expiry, if a condition on its present one holds.
    #[must_use]
    pub fn expire(key: &'a [u8], expiry: Expiry, condition: ExpiryCondition) -> Self {
        let change = Change::SetExpiry {
            expiry,
            condition,
            value: false,
        };
        Self::change(key, change)
    }

    /// Remove the expiry of a key that has one.
    #[must_use]
    pub fn persist(key: &'a [u8]) -> Self {
        Self::expire(key, Expiry::Never, ExpiryCondition::Set)
    }

    /// Give a key another expiry and answer its value.
    #[must_use]
    pub fn get_and_expire(key: &'a [u8], expiry: Expiry) -> Self {
        let change = Change::SetExpiry {
            expiry,
            condition: ExpiryCondition::Always,
            value: true,
        };
        Self::change(key, change)
    }

    /// Add to a decimal integer; a key that is absent counts as 0.
    #[must_use]
    pub fn increment(key: &'a [u8], by: i64) -> Self {
        Self::change(key, Change::Increment { by })
    }

    /// Add to a decimal number; a key that is absent counts as 0.
    #[must_use]
    pub fn increment_float(key: &'a [u8], by: f64) -> Self {
        Self::change(key, Change::IncrementFloat { by })
    }

    /// Append to a value; a key that is absent counts as empty.
    #[must_use]
    pub fn append(key: &'a [u8], tail: &'a [u8]) -> Self {
        Self::change(key, Change::Append { tail })
    }

    /// Overwrite the bytes of a value from `offset` on; a gap before them is filled with zeros.
    #[must_use]
    pub fn set_range(key: &'a [u8], offset: u64, bytes: &'a [u8]) -> Self {
        Self::change(key, Change::SetRange { offset, bytes })
    }
}
