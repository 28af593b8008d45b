//! How the server follows a source: what `CONFIG` sets of it.

use std::time::Duration;

use zeroize::Zeroizing;

/// Time without a byte from the source after which the link ends, by default; as Redis.
const TIMEOUT_S: u64 = 60;
/// How likely a replica is to be promoted by Sentinel, by default; as Redis.
const PRIORITY: u32 = 100;

/// How the server follows a source.
#[derive(Clone)]
pub(crate) struct Settings {
    /// Clients may not write.
    pub(crate) is_read_only: bool,
    /// Clients may read while the link is down.
    pub(crate) serves_stale: bool,
    pub(crate) priority: u32,
    pub(crate) timeout_s: u64,
    pub(crate) user: String,
    pub(crate) password: Zeroizing<String>,
}

impl Settings {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            is_read_only: true,
            serves_stale: true,
            priority: PRIORITY,
            timeout_s: TIMEOUT_S,
            user: String::new(),
            password: Zeroizing::default(),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("is_read_only", &self.is_read_only)
            .field("serves_stale", &self.serves_stale)
            .field("priority", &self.priority)
            .field("timeout_s", &self.timeout_s)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
