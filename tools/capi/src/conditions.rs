//! What a change depends on, and when a key expires.
//!
//! The caller gives the kinds as numbers, because a number outside of a Rust enumeration must not
//! become one: each is checked.

#![allow(unsafe_code)] // reads the caller's memory

use std::fmt;

use farcore_client as client;

use crate::boundary::copied;
use crate::error::Failure;

/// What a key must be for a change to be made.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Anything.
    Always = 0,
    /// The key is absent.
    Absent = 1,
    /// The key exists.
    Present = 2,
    /// The key has the version that `version` names; 0 means that it is absent.
    Version = 3,
}

/// When a key expires.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// Never.
    Never = 0,
    /// When it would have expired before.
    Keep = 1,
    /// At a time, in milliseconds since 1970. A time in the past deletes the key.
    At = 2,
    /// After a time from now, in milliseconds. 0 deletes the key.
    In = 3,
}

/// What a key's expiry must be for another one to be set.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiryCondition {
    /// Anything.
    Always = 0,
    /// The key does not expire.
    Unset = 1,
    /// The key expires.
    Set = 2,
    /// The new expiry is later than the present one.
    Later = 3,
    /// The new expiry is earlier than the present one.
    Earlier = 4,
}

/// How and when a value is stored. All zeros: always, and it never expires.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PutOptions {
    /// What the key must be: a `farcore_condition`.
    pub condition: u32,
    /// When the key expires: a `farcore_expiry`.
    pub expiry: u32,
    /// The version that `FARCORE_CONDITION_VERSION` requires; else ignored.
    pub version: u64,
    /// The time of `FARCORE_EXPIRY_AT` or `FARCORE_EXPIRY_IN`, in milliseconds; else ignored.
    pub expiry_ms: u64,
}

fn unknown(name: &str, kinds: &dyn fmt::Display, value: u32) -> Failure {
    Failure::invalid(format!("`{name}` is {value}: must be one of {kinds}"))
}

pub(crate) fn condition(kind: u32, version: u64) -> Result<client::Condition, Failure> {
    use client::Condition as Known;
    Ok(match kind {
        _ if kind == Condition::Always as u32 => Known::Always,
        _ if kind == Condition::Absent as u32 => Known::Absent,
        _ if kind == Condition::Present as u32 => Known::Present,
        _ if kind == Condition::Version as u32 => Known::Version(version),
        _ => return Err(unknown("condition", &"farcore_condition, 0 to 3", kind)),
    })
}

pub(crate) fn expiry(kind: u32, ms: u64) -> Result<client::Expiry, Failure> {
    use client::Expiry as Known;
    Ok(match kind {
        _ if kind == Expiry::Never as u32 => Known::Never,
        _ if kind == Expiry::Keep as u32 => Known::Keep,
        _ if kind == Expiry::At as u32 => Known::At(ms),
        _ if kind == Expiry::In as u32 => Known::In(ms),
        _ => return Err(unknown("expiry", &"farcore_expiry, 0 to 3", kind)),
    })
}

pub(crate) fn expiry_condition(kind: u32) -> Result<client::ExpiryCondition, Failure> {
    use client::ExpiryCondition as Known;
    Ok(match kind {
        _ if kind == ExpiryCondition::Always as u32 => Known::Always,
        _ if kind == ExpiryCondition::Unset as u32 => Known::Unset,
        _ if kind == ExpiryCondition::Set as u32 => Known::Set,
        _ if kind == ExpiryCondition::Later as u32 => Known::Later,
        _ if kind == ExpiryCondition::Earlier as u32 => Known::Earlier,
        _ => {
            let kinds = &"farcore_expiry_condition, 0 to 4";
            return Err(unknown("condition", kinds, kind));
        }
    })
}

impl PutOptions {
    /// The caller's options, checked; the defaults if there are none.
    ///
    /// # Safety
    /// Unless it is null, `options` points to options.
    pub(crate) unsafe fn of(options: *const Self) -> Result<client::PutOptions, Failure> {
        // SAFETY: the caller's promise.
        let options = unsafe { copied(options) };
        options.map_or_else(|| Ok(client::PutOptions::default()), Self::read)
    }

    fn read(self) -> Result<client::PutOptions, Failure> {
        Ok(client::PutOptions {
            expiry: expiry(self.expiry, self.expiry_ms)?,
            condition: condition(self.condition, self.version)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_known_and_no_other_number() {
        use client::{Condition, Expiry, ExpiryCondition};
        let conditions: Vec<_> = (0..5).map(|kind| condition(kind, 7).ok()).collect();
        let known = [
            Some(Condition::Always),
            Some(Condition::Absent),
            Some(Condition::Present),
            Some(Condition::Version(7)),
            None,
        ];
        assert_eq!(conditions, known);
        let expiries: Vec<_> = (0..5).map(|kind| expiry(kind, 7).ok()).collect();
        let known = [
            Some(Expiry::Never),
            Some(Expiry::Keep),
            Some(Expiry::At(7)),
            Some(Expiry::In(7)),
            None,
        ];
        assert_eq!(expiries, known);
        let conditions: Vec<_> = (0..6).map(|kind| expiry_condition(kind).ok()).collect();
        let known = [
            Some(ExpiryCondition::Always),
            Some(ExpiryCondition::Unset),
            Some(ExpiryCondition::Set),
            Some(ExpiryCondition::Later),
            Some(ExpiryCondition::Earlier),
            None,
        ];
        assert_eq!(conditions, known);
    }
}
