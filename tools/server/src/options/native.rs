//! What the native protocol is served with.

use std::time::Duration;

use farcore_protocol::{CREDITS_MAX, CREDITS_MIN, SMALL_BYTES, SMALL_BYTES_MAX, SMALL_BYTES_MIN};
use farcore_rdma::{FabricAddress, PeerOptions, Token, VerbsOptions};

/// Payloads up to this length are copied into a device's request.
const INLINE_BYTES: u32 = 220;

/// Slots of either kind that a connection may have.
pub(crate) const SLOTS_MAX: usize = 64;

/// Native connections of a core, at most.
pub(crate) const CONNECTIONS_MAX: usize = 1 << 16;

/// Messages that a handshake sends: CHALLENGE, WELCOME, REFUSED.
pub(crate) const HANDSHAKE_SENDS: usize = 3;

/// Work requests in flight beside those of messages: writes from lend slots, and the handshake.
pub(crate) const OTHER_SENDS: usize = SLOTS_MAX + HANDSHAKE_SENDS;

/// What the native protocol is served with.
#[derive(Clone, Debug)]
pub struct NativeOptions {
    /// Where clients connect; none serves no native clients.
    pub listen: Vec<FabricAddress>,
    /// What proves both sides; `None` proves nothing.
    pub token: Option<Token>,
    /// Values from this length on travel in transfer slots, in bytes. Default 4096.
    pub small_bytes: usize,
    /// Time limit on handshakes, and on a peer that acknowledges nothing. Default 5 s.
    pub timeout: Duration,
    /// Connections at once; others are refused. Default 128.
    pub connections_max: usize,
    /// Messages that a client may send before it has answers. Default 32.
    pub credits: u16,
    /// Memory for message buffers and transfer slots of all connections, in bytes. Default 64 MiB.
    pub slot_bytes: usize,
    /// Device and queue pair settings.
    pub verbs: VerbsOptions,
}

impl Default for NativeOptions {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            token: None,
            small_bytes: SMALL_BYTES,
            timeout: Duration::from_secs(5),
            connections_max: 128,
            credits: 32,
            slot_bytes: 64 << 20,
            verbs: VerbsOptions {
                inline_bytes: INLINE_BYTES,
                ..VerbsOptions::default()
            },
        }
    }
}

/// A setting out of range.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{setting} is {value}: must be {least} to {most}")]
pub struct NativeOptionsError {
    setting: &'static str,
    value: usize,
    least: usize,
    most: usize,
}

impl NativeOptions {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`NativeOptionsError`] names the setting, the value and the range.
    pub fn validate(&self) -> Result<(), NativeOptionsError> {
        let credits = (CREDITS_MIN.into(), CREDITS_MAX.into());
        for (setting, value, (least, most)) in [
            (
                "small_bytes",
                self.small_bytes,
                (SMALL_BYTES_MIN, SMALL_BYTES_MAX),
            ),
            ("credits", self.credits.into(), credits),
            (
                "connections_max",
                self.connections_max,
                (1, CONNECTIONS_MAX),
            ),
        ] {
            if !(least..=most).contains(&value) {
                return Err(NativeOptionsError {
                    setting,
                    value,
                    least,
                    most,
                });
            }
        }
        Ok(())
    }

    /// Time limit in nanoseconds.
    pub(crate) fn timeout_ns(&self) -> u64 {
        u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The settings of an endpoint: a request has a receive and a send buffer, and slots that are
    /// written from take sends too.
    pub(crate) fn peer(&self) -> PeerOptions {
        PeerOptions {
            depth: 2 * usize::from(self.credits) + OTHER_SENDS,
            limit_ns: self.timeout_ns(),
            verbs: self.verbs.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        assert_eq!(NativeOptions::default().validate(), Ok(()));
        let options = NativeOptions {
            small_bytes: 100,
            ..NativeOptions::default()
        };
        let error = options.validate().expect_err("too few").to_string();
        assert_eq!(error, "small_bytes is 100: must be 512 to 49152");
        let options = NativeOptions {
            credits: 2,
            ..NativeOptions::default()
        };
        assert!(options.validate().is_err());
    }
}
