//! The settings of a console.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::live::{LiveSource, NoLiveSource};

/// The first administrator, made at the first start.
#[derive(Clone)]
pub struct FirstAdministrator {
    /// The name.
    pub name: String,
    /// The password.
    pub password: Zeroizing<String>,
}

impl std::fmt::Debug for FirstAdministrator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.name;
        f.debug_struct("FirstAdministrator")
            .field("name", name)
            .finish_non_exhaustive()
    }
}

/// Limits on connections, bodies and sessions. Tests shorten the times.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections_max: usize,
    /// Streams of events at a time.
    pub streams_max: usize,
    /// Time for the head of a request, and for the next request of a connection.
    pub head: Duration,
    /// Time after which a request that moved no byte gives its place to another connection.
    pub stalled: Duration,
    /// Time between two pieces of a body.
    pub body_pause: Duration,
    /// Time for the body of a JSON request.
    pub json_body: Duration,
    /// Time that open requests have when the console stops.
    pub stop: Duration,
    /// Time after its last use until a session ends.
    pub session_idle: Duration,
    /// Time after its sign-in until a session ends.
    pub session_age: Duration,
    /// How often a stream of events looks whether its session still holds.
    pub stream_check: Duration,
    /// Entries that the log keeps.
    pub events_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            streams_max: 64,
            head: Duration::from_secs(15),
            stalled: Duration::from_secs(60),
            body_pause: Duration::from_secs(15),
            json_body: Duration::from_secs(30),
            stop: Duration::from_secs(5),
            session_idle: Duration::from_secs(12 * 3600),
            session_age: Duration::from_secs(7 * 24 * 3600),
            stream_check: Duration::from_secs(2),
            events_max: 2_000_000,
        }
    }
}

/// The settings of a console.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to serve; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The folder of the databases. It is made if it is absent.
    pub folder: PathBuf,
    /// Names beside the address and those of loopback by which browsers reach the console.
    pub hosts: Vec<String>,
    /// Whether a proxy in front encrypts: cookies are for HTTPS only, and the address of a client
    /// is the last of `X-Forwarded-For`.
    pub is_behind_tls: bool,
    /// Simulations at a time; at least 1.
    pub parallel: usize,
    /// Bytes of the largest file that can be imported.
    pub import_bytes_max: u64,
    /// The administrator that the first start makes.
    pub first_administrator: Option<FirstAdministrator>,
    /// Where figures of running engines come from.
    pub live: Arc<dyn LiveSource>,
    /// Limits on connections, bodies and sessions.
    pub limits: Limits,
}

impl Options {
    /// Default settings for an address and a folder.
    #[must_use]
    pub fn new(listen: SocketAddr, folder: PathBuf) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            listen,
            folder,
            hosts: Vec::new(),
            is_behind_tls: false,
            parallel: (cores / 2).max(1),
            import_bytes_max: 256 << 20,
            first_administrator: None,
            live: Arc::new(NoLiveSource),
            limits: Limits::default(),
        }
    }
}
