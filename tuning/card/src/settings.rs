//! A setting that is checked, and the error that names setting, value and limits.

use thiserror::Error;

/// A setting that is wrong.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum SettingError {
    /// The value is beyond a limit.
    #[error("{name} is {value}: write {min} to {max}")]
    Range {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The least that works.
        min: f64,
        /// The most.
        max: f64,
    },
    /// The value does not work with others.
    #[error("{name}: {why}")]
    Conflict {
        /// The setting.
        name: &'static str,
        /// Why not, and what to write instead.
        why: String,
    },
}

/// A setting's name and value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    name: &'static str,
    value: f64,
}

impl Setting {
    pub(crate) const fn new(name: &'static str, value: f64) -> Self {
        Self { name, value }
    }

    /// Checks the limits. NaN is beyond them.
    pub(crate) fn within(self, min: f64, max: f64) -> Result<(), SettingError> {
        let Self { name, value } = self;
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(SettingError::Range {
            name,
            value,
            min,
            max,
        })
    }
}
