//! A running server.

mod accept;
mod map_keeper;
mod upkeep;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use self::accept::Listener;
use self::map_keeper::MapKeeper;
use crate::cluster::{CurrentMap, Store};
use crate::commands::{CATALOGUE, apply_file, command_names, databases};
use crate::conn::tls;
use crate::cores::port::CorePort;
use crate::cores::shared::Shared;
use crate::figures::information;
use crate::figures::reading::ServerReporter;
use crate::native::NativeListeners;
use crate::options::{
    MapPlace, NativeOptionsError, Options, SourceAddress, TlsClientOptions, TlsOptions,
};
use crate::replication::history::StreamId;
use crate::replication::link;
use crate::serving::Serving;
use crate::settings_file::{self, SECRET, SettingsFile};
use crate::system_calls::try_system_calls;
use crate::users::file;
use crate::users::table::Users;
use farcore::{Engine, Task};
use farcore_etcd::Etcd;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}; choose another with --resp or --tls")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// A native address cannot be listened at.
    #[error("cannot listen at {address}: {error}; choose another with --native")]
    ListenNative {
        /// The address.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// A setting of the native protocol is out of range.
    #[error(transparent)]
    Native(#[from] NativeOptionsError),
    /// The system has no descriptor or thread left, or refuses a system call.
    #[error("the server cannot start: {}{}", .0, remedy(.0))]
    System(#[from] io::Error),
    /// A certificate or key of encrypted connections cannot be used.
    #[error("encrypted connections cannot be served: {0}")]
    Tls(String),
    /// A certificate or key of encrypted links to a source cannot be used.
    #[error("no encrypted link can be made: {0}")]
    SourceTls(String),
    /// The file of users cannot be read, or has lines that define none.
    #[error("{0}correct the file that --acl-file names, or leave --acl-file out")]
    Users(String),
    /// The map of the cluster cannot be read.
    #[error("the map of the cluster: {0}; correct what --cluster-map names")]
    Cluster(String),
    /// The file of settings cannot be read, or has what is no setting.
    #[error("{0}; correct the file that --config names")]
    Settings(String),
    /// The engine is closed.
    #[error(transparent)]
    Engine(#[from] farcore::Error),
}

/// A server, which ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
    native: Vec<String>,
    /// The server to follow once it begins.
    source: Option<SourceAddress>,
    acceptor: Option<JoinHandle<()>>,
    cores: Vec<Task<io::Result<()>>>,
    /// Keeps the map of the cluster, if it lies in etcd.
    keeper: Option<MapKeeper>,
    /// Finds out which databases have keys.
    look: Option<Task<()>>,
}

impl Server {
    /// Checks the files of encrypted connections, for which no engine is needed.
    ///
    /// # Errors
    /// [`StartError::Tls`].
    pub fn check_tls(options: &TlsOptions) -> Result<(), StartError> {
        tls::load(options).map(drop).map_err(StartError::Tls)
    }

    /// Checks the files of encrypted links, for which no engine is needed.
    ///
    /// # Errors
    /// [`StartError::SourceTls`].
    pub fn check_source_tls(options: &TlsClientOptions) -> Result<(), StartError> {
        tls::load_client(options)
            .map(drop)
            .map_err(StartError::SourceTls)
    }

    /// Checks the file of users, for which no engine is needed. Returns whether clients need no
    /// password.
    ///
    /// # Errors
    /// [`StartError::Users`].
    pub fn check_users(options: &Options) -> Result<bool, StartError> {
        Ok(users_of(options)?.are_open())
    }

    /// Checks the file of settings, as far as no engine is needed for that. Returns whether a
    /// password is in it.
    ///
    /// # Errors
    /// [`StartError::Settings`].
    pub fn check_settings(file: &Path) -> Result<bool, StartError> {
        let lines = settings_file::read(file).map_err(StartError::Settings)?;
        Ok(lines.iter().any(|line| line.name == SECRET))
    }

    /// Starts a server on every core of an engine, and waits until all serve. Not to be called from
    /// a job of the engine.
    ///
    /// With [`Options::data`] the engine may be one of [`Engine::open_unloaded`]: then the server
    /// answers `LOADING` to most commands until [`Server::begin`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(engine: &Engine, options: Options) -> Result<Self, StartError> {
        try_system_calls().map_err(io::Error::other)?;
        let (plain, address) = listen(options.listen, options.backlog, false)?;
        let mut listeners = vec![plain];
        let (mut tls, mut tls_address) = (None, None);
        let backlog = options.backlog;
        if let Some(options) = &options.tls {
            tls = Some(tls::load(options).map_err(StartError::Tls)?);
            let (encrypted, address) = listen(options.listen, backlog, true)?;
            listeners.push(encrypted);
            tls_address = Some(address);
        }
        options.native.validate()?;
        let users = users_of(&options)?;
        let native = NativeListeners::bind(&options.native, options.backlog)
            .map_err(|(address, error)| StartError::ListenNative { address, error })?;
        let ports: io::Result<Vec<_>> = (0..engine.shards()).map(|_| CorePort::new()).collect();
        let cluster = cluster_of(&options, address)?;
        let source_tls = options.replica.tls.as_ref().map(tls::load_client);
        let source_tls = source_tls.transpose().map_err(StartError::SourceTls)?;
        let mut shared = Shared::new(
            (options, tls),
            ports?,
            (
                engine.reporter(),
                engine.durability(),
                engine.feed(),
                engine.value_bytes_max(),
            ),
            (StreamId::random().to_string(), address.port()),
            command_names(),
            users,
        );
        shared.cluster = cluster;
        shared.memory_nodes = Some(engine.memory_nodes());
        let port = tls_address.unwrap_or(address).port();
        shared.source_tls = source_tls.map(|config| (config, port));
        let (shared, source) = with_settings(shared)?;
        let mut server = Self {
            shared,
            source,
            address,
            tls_address,
            native: native.addresses(),
            acceptor: None,
            cores: Vec::new(),
            keeper: None,
            look: None,
        };
        let is_loaded = engine.durability().stats().is_some();
        let refusals = &server.shared.saving.refusals;
        refusals.set_loading(server.shared.saving.is_durable());
        server.start_cores(engine)?;
        server.keeper = MapKeeper::start(&server.shared)?;
        if is_loaded {
            server.begin(engine)?;
        }
        server.acceptor = Some(accept::start(
            listeners,
            native,
            Arc::clone(&server.shared),
        )?);
        server.log_start();
        Ok(server)
    }

    fn log_start(&self) {
        let (memory, address) = (&self.shared.client_memory, self.address);
        tracing::info!(
            bytes = memory.limit(),
            of_one_client = memory.large_limit(),
            "memory that clients of all cores share"
        );
        tracing::info!(%address, "the server accepts Redis clients");
        if let Some(address) = self.tls_address {
            tracing::info!(%address, "the server accepts encrypted connections of Redis clients");
        }
        for address in &self.native {
            tracing::info!(address, "the server accepts native clients");
        }
    }

    /// Starts the loop of each core, and waits until all serve.
    fn start_cores(&mut self, engine: &Engine) -> Result<(), StartError> {
        let (starts, started) = mpsc::channel();
        for place in 0..engine.shards() {
            let shared = Arc::clone(&self.shared);
            let (value_bytes_max, starts) = (engine.value_bytes_max(), starts.clone());
            let job = engine.run_on_core(place, move |core| async move {
                let _ended = Ended(Arc::clone(&shared), place);
                let serving = Serving::new(shared, place, value_bytes_max)?;
                let _ = starts.send(());
                drop(starts);
                serving.run(core).await;
                Ok(())
            })?;
            self.cores.push(job);
        }
        drop(starts);
        if started.iter().count() < engine.shards() {
            // The core that does not serve says why.
            self.end()?;
        }
        Ok(())
    }

    /// Has all commands be served, once the engine has loaded its data directory.
    ///
    /// # Errors
    /// The engine is closed, or what it has loaded cannot be read.
    pub fn begin(&mut self, engine: &Engine) -> Result<(), StartError> {
        let shared = Arc::clone(&self.shared);
        if !shared.saving.is_durable() {
            return self.follow();
        }
        let restore = engine.run_on_core(0, move |mut core| async move {
            databases::restore(&mut core, &shared).await
        })?;
        restore.join()??;
        self.shared.note_large_value();
        self.shared.databases.note_unknown();
        let shared = Arc::clone(&self.shared);
        self.look = Some(engine.run_on_core(0, move |mut core| async move {
            if let Err(error) = databases::look(&mut core, &shared).await {
                tracing::warn!(%error, "databases are counted one key after the other");
            }
        })?);
        self.shared.saving.note_loaded();
        self.follow()
    }

    /// Follows the source of the options or of the settings, if there is one.
    fn follow(&self) -> Result<(), StartError> {
        if let Some(source) = &self.source {
            link::follow(&self.shared, source.clone())?;
        }
        if let Some(keeper) = &self.keeper {
            keeper.set_following(true);
        }
        Ok(())
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients connect whose connections are encrypted.
    #[must_use]
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// Where native clients connect, as addresses of the fabric.
    #[must_use]
    pub fn native_addresses(&self) -> &[String] {
        &self.native
    }

    /// Reads its figures.
    #[must_use]
    pub fn reporter(&self) -> ServerReporter {
        ServerReporter(Arc::clone(&self.shared))
    }

    /// True once a client has sent `SHUTDOWN`.
    #[must_use]
    pub fn is_asked_to_stop(&self) -> bool {
        self.shared.is_asked_to_stop()
    }

    /// True until it is stopped, unless a core's loop has ended by a fault, which
    /// [`Server::stop`] returns.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        !self.shared.cores.iter().any(CorePort::has_ended)
    }

    /// Accepts nothing more, answers what was accepted, and ends.
    ///
    /// # Errors
    /// What a core could not start with.
    pub fn stop(mut self) -> Result<(), StartError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), StartError> {
        if let Some(keeper) = &self.keeper {
            keeper.set_following(false);
        }
        // What its source has sent is carried out by cores that serve.
        let link = self.shared.replication.cut();
        let _ = link.and_then(|link| link.thread).map(JoinHandle::join);
        self.shared.replication.imports.stop();
        self.shared.replication.replicas.stop();
        self.shared.stop();
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        // Connections that came meanwhile.
        self.shared.stop();
        if let Some(look) = self.look.take() {
            let _ = look.join();
        }
        let ended = self.join_cores();
        // Nothing is served any more, so others may have the slots at once.
        if let Some(keeper) = self.keeper.take() {
            keeper.end(&self.shared);
        }
        ended
    }

    fn join_cores(&mut self) -> Result<(), StartError> {
        for core in self.cores.drain(..) {
            core.join()??;
        }
        Ok(())
    }
}

/// The default user, and those of the file.
fn users_of(options: &Options) -> Result<Users, StartError> {
    let password = options
        .password
        .as_ref()
        .map(|password| password.as_bytes());
    let users = Users::new(password, &CATALOGUE);
    if let Some(path) = &options.acl_file {
        let loaded = file::load(path, &CATALOGUE, users.defaults());
        users.replace(loaded.map_err(|errors| {
            let errors = errors.trim_end().trim_end_matches('.');
            StartError::Users(format!("{errors}; "))
        })?);
    }
    Ok(users)
}

/// Has the settings of a file be set, if there is one. Returns the server to follow, by the file or
/// else by the options.
fn with_settings(mut shared: Shared) -> Result<(Arc<Shared>, Option<SourceAddress>), StartError> {
    let source = shared.options.replica.source.clone();
    let Some(path) = shared.options.settings_file.clone() else {
        return Ok((Arc::new(shared), source));
    };
    let lines = settings_file::read(&path).map_err(StartError::Settings)?;
    let file = SettingsFile::new(path, information::settings(&shared));
    shared.settings_file = Some(file);
    let shared = Arc::new(shared);
    let named = match &shared.settings_file {
        Some(file) => apply_file(&shared, file, &lines).map_err(StartError::Settings)?,
        None => None,
    };
    Ok((shared, named.unwrap_or(source)))
}

/// The map of the cluster that the server is a part of.
fn cluster_of(options: &Options, listen: SocketAddr) -> Result<Option<CurrentMap>, StartError> {
    let Some(cluster) = &options.cluster else {
        return Ok(None);
    };
    let announced = match &cluster.announced {
        Some(address) => (address.host.clone(), address.port),
        None => (listen.ip().to_string(), listen.port()),
    };
    let failed = |error: &dyn std::fmt::Display| StartError::Cluster(error.to_string());
    let (store, lease) = match &cluster.map {
        MapPlace::Pushed => (Store::Nowhere, Duration::ZERO),
        MapPlace::File(path) => (Store::file(path.clone()), Duration::ZERO),
        MapPlace::Etcd { etcd, lease } => {
            let etcd = Etcd::new(etcd.clone()).map_err(|error| failed(&error))?;
            (Store::etcd(Arc::new(etcd)), *lease)
        }
    };
    let map = CurrentMap::open(store, lease, cluster.id.clone(), announced);
    let map = map.map_err(|error| failed(&error))?;
    let (_, view) = map.now();
    let (version, servers) = (view.map.version, view.map.members.len());
    tracing::info!(version, servers, id = view.own_id(), "a part of a cluster");
    if version > 0 && view.own.is_none() {
        tracing::warn!("this server is not in the map of the cluster");
    }
    Ok(Some(map))
}

/// Listens at an address; returns also which one it is.
fn listen(
    address: SocketAddr,
    backlog: u32,
    is_encrypted: bool,
) -> Result<(Listener, SocketAddr), StartError> {
    let listen = || {
        let socket = TcpListener::bind(address)?;
        // The standard library's backlog is too short for a crowd that arrives at once.
        rustix::net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let listener = Listener {
            socket,
            is_encrypted,
        };
        Ok((listener, address))
    };
    listen().map_err(|error| StartError::Listen { address, error })
}

/// What to do where the system refuses a call.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => {
            "; allow the call in the container's seccomp profile"
        }
        _ => "",
    }
}

/// Notes the end of a core's loop, also if it panics.
struct Ended(Arc<Shared>, usize);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.cores[self.1].end();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
