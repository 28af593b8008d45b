//! The thread that keeps the map of a cluster that lies in etcd: it renews the lease of the server,
//! takes maps, and has the server follow whom the map says.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farcore_etcd::Etcd;

use crate::cluster::{CurrentMap, View};
use crate::cores::shared::Shared;
use crate::options::SourceAddress;
use crate::replication::link;

/// How long a start waits for the first map: clients that come sooner are refused.
const FIRST: Duration = Duration::from_secs(5);
/// The pause after etcd was not reached.
const PAUSE: Duration = Duration::from_millis(200);

/// The thread.
#[derive(Debug)]
pub(super) struct MapKeeper {
    /// Its other end is dropped when the thread is to end.
    stop: SyncSender<()>,
    following: Arc<Following>,
    thread: JoinHandle<()>,
}

/// Whom the server follows by the map.
#[derive(Debug, Default)]
struct Following {
    /// The server may follow others: its own data are loaded, and it does not end. Locked while
    /// that is changed, by a thread beside, as the end of a link may take long.
    may_follow: Mutex<bool>,
    /// Such a thread runs.
    is_changing: AtomicBool,
}

impl Following {
    fn may_follow(&self) -> MutexGuard<'_, bool> {
        self.may_follow
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl MapKeeper {
    /// Starts it if the map lies in etcd, and waits some seconds until it has been read.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Option<Self>> {
        let Some(etcd) = shared.cluster.as_ref().and_then(CurrentMap::etcd) else {
            return Ok(None);
        };
        let (stop, stopped) = mpsc::sync_channel(0);
        let (first, tended) = mpsc::sync_channel(1);
        let following = Arc::<Following>::default();
        let mut keeping = Keeping {
            shared: Arc::clone(shared),
            etcd,
            following: Arc::clone(&following),
            version: 0,
            error: None,
        };
        let thread = thread::Builder::new().name("farcore-map".to_owned());
        let thread = thread.spawn(move || keeping.run(&stopped, &first))?;
        if tended.recv_timeout(FIRST).is_err() {
            tracing::warn!("the map of the cluster is not read yet: nothing of it is served");
        }
        Ok(Some(Self {
            stop,
            following,
            thread,
        }))
    }

    /// Has the server follow whom the map says, from now on, or no more. It waits for what is being
    /// changed.
    pub(super) fn set_following(&self, may_follow: bool) {
        *self.following.may_follow() = may_follow;
    }

    /// Ends it, and the lease.
    pub(super) fn end(self, shared: &Shared) {
        drop(self.stop);
        let _ = self.thread.join();
        if let Some(cluster) = &shared.cluster {
            cluster.end_lease();
        }
    }
}

/// What the thread has.
struct Keeping {
    shared: Arc<Shared>,
    etcd: Arc<Etcd>,
    following: Arc<Following>,
    /// The version of the map that clients were made to notice.
    version: u64,
    /// What has failed last, which is logged once.
    error: Option<String>,
}

impl Keeping {
    fn run(&mut self, stopped: &Receiver<()>, first: &SyncSender<()>) {
        loop {
            let pause = match self.tend() {
                true => {
                    let _ = first.try_send(());
                    Duration::ZERO
                }
                false => PAUSE,
            };
            if stopped.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    /// Renews the lease, follows the map, and waits for its change. False if that fails.
    fn tend(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let Some(cluster) = &shared.cluster else {
            return false;
        };
        let tended = cluster.tend();
        // Also a map that was taken by a push, or amid a move.
        let (_, view) = cluster.now();
        if view.map.version != self.version {
            self.version = view.map.version;
            tracing::info!(
                version = self.version,
                "the map of the cluster is another one"
            );
            shared.end_moved_waits();
            shared.wake_all();
            if view.own.is_none() {
                tracing::warn!("this server is not in the map of the cluster");
            }
        }
        let (key, since) = match tended {
            Ok(Some(watched)) => watched,
            Ok(None) => return false,
            Err(error) => {
                self.note(cluster, &error.to_string());
                return false;
            }
        };
        if self.error.take().is_some() {
            tracing::info!("the map of the cluster is read, and the lease holds");
        }
        self.follow_map(&view);
        match self.etcd.wait(&key, since, cluster.watch_time()) {
            Ok(_) => true,
            Err(error) => {
                self.note(cluster, &error.to_string());
                false
            }
        }
    }

    fn note(&mut self, cluster: &CurrentMap, error: &str) {
        if self.error.as_deref() != Some(error) {
            let is_serving = cluster.is_fence_open();
            tracing::warn!(
                error,
                is_serving,
                "the map of the cluster is not kept up with etcd"
            );
            self.error = Some(error.to_owned());
        }
    }

    /// Has the server follow whom the map says, or none.
    fn follow_map(&self, view: &View) {
        if view.own.is_none() {
            return;
        }
        let wanted = view.source().map(|member| SourceAddress {
            host: member.host.clone(),
            port: member.port,
        });
        let state = self.shared.replication.state();
        let followed = state.link.as_ref().map(|link| link.address.clone());
        drop(state);
        let changing = &self.following.is_changing;
        // ORDERING: relaxed, also below; what is changed is behind locks.
        if wanted == followed || changing.swap(true, Ordering::Relaxed) {
            return;
        }
        let (shared, following) = (Arc::clone(&self.shared), Arc::clone(&self.following));
        let thread = thread::Builder::new().name("farcore-follow".to_owned());
        let started = thread.spawn(move || {
            change_source(&shared, &following, wanted);
            following.is_changing.store(false, Ordering::Relaxed);
        });
        if let Err(error) = started {
            changing.store(false, Ordering::Relaxed);
            tracing::warn!(%error, "no thread that has the server follow another one");
        }
    }
}

fn change_source(shared: &Arc<Shared>, following: &Following, wanted: Option<SourceAddress>) {
    let may_follow = following.may_follow();
    if !*may_follow {
        return;
    }
    match wanted {
        None => link::unfollow(shared),
        Some(source) => {
            tracing::info!(%source, "the map of the cluster has this server follow another one");
            if let Err(error) = link::follow(shared, source) {
                tracing::warn!(%error, "no thread for the link to the source");
            }
        }
    }
}
