//! What a server is started with.

mod native;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use farcore::LogPolicy;
use farcore_etcd::EtcdOptions;
use zeroize::Zeroizing;

pub(crate) use self::native::{CONNECTIONS_MAX, HANDSHAKE_SENDS, SLOTS_MAX};
pub use self::native::{NativeOptions, NativeOptionsError};
use crate::durability::save_points::SavePoint;

/// Clients at once, by default; as Redis.
pub const CLIENTS_MAX: usize = 10_000;

/// Memory for the buffers of all clients, by default.
pub const CLIENT_BYTES: usize = 16 << 20;

/// Time in which a connection must authenticate, by default; as a handshake has.
pub const AUTHENTICATION_LIMIT: Duration = Duration::from_secs(10);

/// Connections that the system keeps until they are accepted, by default.
pub const BACKLOG: u32 = 4096;

/// Time after which a script ends that has written nothing, by default; as Redis answers `BUSY`.
pub const SCRIPT_TIME_LIMIT: Duration = Duration::from_secs(5);

/// Time after which the system asks whether a client's host is still there, by default; as Redis.
pub(crate) const TCP_KEEPALIVE: Duration = Duration::from_secs(300);

/// Where encrypted connections are accepted, and by which certificate. Files are in PEM and are
/// read when the server starts.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Where clients connect. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The server's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// The private key of the first.
    pub key: PathBuf,
    /// Authorities whose certificates clients must show; `None` requires none.
    pub client_authority: Option<PathBuf>,
}

/// How a connection to another server is encrypted. Files are in PEM and are read when the server
/// starts.
#[derive(Clone, Debug)]
pub struct TlsClientOptions {
    /// The authorities of that server's certificate.
    pub authority: PathBuf,
    /// The certificate that is shown there, and its private key; `None` shows none.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The data directory of the server's engine, and when snapshots are made.
#[derive(Clone, Debug)]
pub struct DataOptions {
    /// The engine's `data_dir`.
    pub dir: PathBuf,
    /// The engine's `log`.
    pub log: LogPolicy,
    /// Rules that have snapshots made beside those of clients and of the engine itself.
    pub save_points: Vec<SavePoint>,
}

/// Where a server is that another one follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceAddress {
    /// Its name, or its address.
    pub host: String,
    /// Where it accepts Redis clients.
    pub port: u16,
}

impl fmt::Display for SourceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How a server follows another one.
#[derive(Clone, Default)]
pub struct ReplicaOptions {
    /// The one to follow from the start on; `None`: none, until `REPLICAOF`.
    pub source: Option<SourceAddress>,
    /// The user to authenticate as there; empty for the default one.
    pub user: String,
    /// The user's password; empty if it needs none.
    pub password: Zeroizing<String>,
    /// Bytes of the stream that are kept for replicas whose link breaks. `None`: 16 MiB.
    pub backlog_bytes: Option<u64>,
    /// How links to any source are encrypted; `None`: they are not.
    pub tls: Option<TlsClientOptions>,
}

impl fmt::Debug for ReplicaOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaOptions")
            .field("source", &self.source)
            .field("user", &self.user)
            .field("backlog_bytes", &self.backlog_bytes)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Where the map of a cluster is kept.
#[derive(Clone, Default, Debug)]
pub enum MapPlace {
    /// Nowhere: it is unknown until a client pushes it, and ends with the server.
    #[default]
    Pushed,
    /// In a file, which is looked at each second and holds what clients push.
    File(PathBuf),
    /// In etcd, for all servers. Each has a lease there, and serves its slots while that holds.
    Etcd {
        /// How etcd is reached.
        etcd: EtcdOptions,
        /// The time of the lease, 2 s or more: as long as a server serves its slots without etcd,
        /// about.
        lease: Duration,
    },
}

/// The cluster that a server is a part of.
#[derive(Clone, Default, Debug)]
pub struct ClusterOptions {
    /// Where the map is kept.
    pub map: MapPlace,
    /// The ID of this server in the map; `None`: it is the one of its address.
    pub id: Option<String>,
    /// Where clients reach this server, as the map has it; `None`: where it listens.
    pub announced: Option<SourceAddress>,
}

/// What a server is started with.
#[derive(Clone)]
pub struct Options {
    /// Where clients connect. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Clients at once; others are refused. Default 10,000.
    pub clients_max: usize,
    /// What `AUTH` must give; `None` requires nothing.
    pub password: Option<Zeroizing<String>>,
    /// The file of users; `None`: there is the default user, and those that `ACL SETUSER` makes.
    pub acl_file: Option<PathBuf>,
    /// Time in which a connection must authenticate, if it must. Default 10 s.
    pub authentication_limit: Duration,
    /// Connections that the system keeps until they are accepted. Default 4096.
    pub backlog: u32,
    /// Time after which a silent client is disconnected; `None` keeps it.
    pub idle_timeout: Option<Duration>,
    /// Time without a byte from a client after which the system asks whether its host is still
    /// there; `None` never asks. Clients connected before are not concerned. Default 300 s.
    pub tcp_keepalive: Option<Duration>,
    /// What all clients may have the server hold, in bytes; above it, those that do not read are
    /// disconnected. Default 16 MiB.
    pub client_bytes: usize,
    /// Time after which a script ends that has written nothing. Default 5 s, which is also how long
    /// one may hold its keys.
    pub script_time_limit: Duration,
    /// When the engine is full, keys are evicted.
    pub evicts: bool,
    /// Clients may see the commands of all others, with `MONITOR`.
    pub monitors: bool,
    /// What its engine keeps; `None`: clients can save nothing.
    pub data: Option<DataOptions>,
    /// How it follows another server. Default: it follows none.
    pub replica: ReplicaOptions,
    /// The cluster that it is a part of. Default: none.
    pub cluster: Option<ClusterOptions>,
    /// The file of settings, which go before these options, and which `CONFIG REWRITE` writes.
    /// Default: none.
    pub settings_file: Option<PathBuf>,
    /// Encrypted connections, beside others.
    pub tls: Option<TlsOptions>,
    /// The native protocol, over the fabric. Default: not served.
    pub native: NativeOptions,
}

impl Options {
    /// The defaults, at an address.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            clients_max: CLIENTS_MAX,
            password: None,
            acl_file: None,
            authentication_limit: AUTHENTICATION_LIMIT,
            backlog: BACKLOG,
            idle_timeout: None,
            tcp_keepalive: Some(TCP_KEEPALIVE),
            client_bytes: CLIENT_BYTES,
            script_time_limit: SCRIPT_TIME_LIMIT,
            evicts: false,
            monitors: false,
            data: None,
            replica: ReplicaOptions::default(),
            cluster: None,
            settings_file: None,
            tls: None,
            native: NativeOptions::default(),
        }
    }

    /// True if a client must show a certificate.
    pub(crate) fn needs_certificate(&self, is_encrypted: bool) -> bool {
        let shows_certificate = |tls: &TlsOptions| tls.client_authority.is_some();
        is_encrypted && self.tls.as_ref().is_some_and(shows_certificate)
    }

    /// True if some new connections may have something to prove before they count as clients, so
    /// memory and places are kept for them.
    pub(crate) fn has_unauthenticated(&self) -> bool {
        self.may_need_password() || self.needs_certificate(self.tls.is_some())
    }

    /// True if clients may have to authenticate from the start on.
    pub(crate) fn may_need_password(&self) -> bool {
        self.password.is_some() || self.acl_file.is_some()
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("listen", &self.listen)
            .field("clients_max", &self.clients_max)
            .field("password", &self.password.as_ref().map(|_| "..."))
            .field("acl_file", &self.acl_file)
            .field("authentication_limit", &self.authentication_limit)
            .field("backlog", &self.backlog)
            .field("idle_timeout", &self.idle_timeout)
            .field("tcp_keepalive", &self.tcp_keepalive)
            .field("client_bytes", &self.client_bytes)
            .field("evicts", &self.evicts)
            .field("monitors", &self.monitors)
            .field("data", &self.data)
            .field("replica", &self.replica)
            .field("cluster", &self.cluster)
            .field("settings_file", &self.settings_file)
            .field("tls", &self.tls)
            .field("native", &self.native)
            .finish()
    }
}
