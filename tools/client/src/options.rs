//! What a client is made with.

use std::time::Duration;

use farcore_protocol::SMALL_BYTES;
use farcore_rdma::{PeerOptions, Token, VerbsOptions};

/// Payloads up to this length are copied into a device's request.
const INLINE_BYTES: u32 = 220;

/// How values of the server's threshold and more come to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transfer {
    /// The server lends a slot with the value, and the client READs it: two round trips, and the
    /// server's slot is in use for one of them.
    Read,
    /// The client names a landing buffer, and the server WRITEs the value there: one round trip. A
    /// value that is longer than the buffer, or finds none free, is lent.
    #[default]
    Landing,
}

/// Shortest time limit of an operation.
pub(crate) const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Longest one.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_hours(24);

/// The longest queue: its memory is allocated at once.
pub(crate) const QUEUE_MAX: usize = 1 << 20;

/// What a client is made with.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// What proves both sides; as the server's.
    pub token: Option<Token>,
    /// Time limit on each operation, on connecting, and on a server that acknowledges nothing.
    /// 1 ms to a day; default 5 s.
    pub timeout: Duration,
    /// The client's name in the server's log.
    pub name: String,
    /// How long values come.
    pub transfer: Transfer,
    /// The longest value, in bytes, that this client takes in a message for sure. The server's
    /// `--small-bytes` limits it too: values of that length and more never travel so. Memory: for
    /// each of `credits` two buffers of this length and about 1 KiB for a key. 512 to 49,152;
    /// default 4096.
    pub small_bytes: usize,
    /// Operations that may wait to be sent, 1 to 1,048,576; more are refused. Memory: about 200
    /// bytes each. Default 4096.
    pub queue: usize,
    /// Messages that the server may send before the client has taken them: 4 to 1024, default 64.
    pub credits: u16,
    /// Bytes of a landing buffer, for header and value, and how many there are. Default 16 of
    /// 64 KiB.
    pub landing_bytes: usize,
    /// See `landing_bytes`.
    pub landings: u16,
    /// How long the client's thread polls without work before it sleeps. Longer gives lower latency
    /// and takes a core. Default: not at all.
    pub spin: Duration,
    /// Device and queue pair settings.
    pub verbs: VerbsOptions,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            token: None,
            timeout: Duration::from_secs(5),
            name: String::new(),
            transfer: Transfer::default(),
            small_bytes: SMALL_BYTES,
            queue: 4096,
            credits: 64,
            landing_bytes: 64 << 10,
            landings: 16,
            spin: Duration::ZERO,
            verbs: VerbsOptions {
                inline_bytes: INLINE_BYTES,
                ..VerbsOptions::default()
            },
        }
    }
}

impl ClientOptions {
    /// The settings of the endpoint: sends, READs and the receives.
    pub(crate) fn peer(&self) -> PeerOptions {
        PeerOptions {
            depth: 4 * usize::from(self.credits).max(32),
            limit_ns: u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX),
            verbs: self.verbs.clone(),
        }
    }
}
