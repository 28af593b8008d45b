//! When messages arrive.

use serde::{Deserialize, Serialize};

use crate::settings::{Setting, SettingError};

/// When messages arrive.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrival {
    /// A host keeps this many messages in flight; the rate is what the card can do.
    Closed {
        /// Messages in flight.
        window: u32,
    },
    /// At a constant rate, whatever the card can do; latencies include the wait for it.
    Open {
        /// Messages a second.
        messages_s: f64,
    },
    /// At the times of a recording.
    Recorded,
}

impl Default for Arrival {
    fn default() -> Self {
        Self::Closed { window: 512 }
    }
}

impl Arrival {
    /// Checks every number.
    ///
    /// # Errors
    /// The first that is wrong, with its value and limits.
    pub fn validate(&self) -> Result<(), SettingError> {
        match *self {
            Self::Closed { window } => {
                Setting::new("window", f64::from(window)).within(1.0, 1_048_576.0)
            }
            Self::Open { messages_s } => Setting::new("rate", messages_s).within(1e3, 1e10),
            Self::Recorded => Ok(()),
        }
    }
}
