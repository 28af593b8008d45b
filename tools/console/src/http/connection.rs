//! Connections of clients: how many there are, and how long one may take.
//!
//! - I1: there are at most [`connections_max`](crate::options::Limits::connections_max)
//!   connections. For a further one, the oldest ends that is not in the middle of a request, or
//!   whose request moved no byte for [`stalled`](crate::options::Limits::stalled): a client that
//!   does not read its answer holds no place. If there is none such, the further one ends.
//! - I2: a connection whose next head does not come within
//!   [`head`](crate::options::Limits::head) ends.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::options::Limits;
use crate::state::stopped;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;
const HEADERS_MAX: usize = 64;

/// The ends of a connection, in the extensions of its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Peer {
    /// The address of the client.
    pub(crate) client: IpAddr,
    /// The address that it has reached: one of many if the console listens at all.
    pub(crate) reached: IpAddr,
}

/// What a connection does.
#[derive(Debug)]
struct Activity {
    /// Requests whose answers are not sent yet: 0 or 1.
    requests: AtomicUsize,
    since: Instant,
    /// When a byte of a body moved last, in milliseconds from `since`.
    moved_ms: AtomicU64,
}

impl Activity {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            requests: AtomicUsize::new(0),
            since: Instant::now(),
            moved_ms: AtomicU64::new(0),
        })
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes that something moves.
    fn moves(&self) {
        self.moved_ms.store(self.elapsed_ms(), Ordering::SeqCst);
    }

    /// Whether the connection is in no request, or in one that stalls.
    fn is_idle(&self, stalled: Duration) -> bool {
        let still_ms = self
            .elapsed_ms()
            .saturating_sub(self.moved_ms.load(Ordering::SeqCst));
        self.requests.load(Ordering::SeqCst) == 0 || Duration::from_millis(still_ms) >= stalled
    }
}

/// An open connection, as the acceptor sees it.
#[derive(Debug)]
struct Open {
    task: AbortHandle,
    activity: Arc<Activity>,
}

/// Accepts connections and serves them.
#[derive(Debug)]
pub(crate) struct Connections {
    router: Router,
    limits: Limits,
    stopping: watch::Receiver<bool>,
    tasks: JoinSet<()>,
    /// Oldest first.
    open: Vec<Open>,
}

/// Counts a request from its head to the end of its answer's body.
struct Busy(Arc<Activity>);

impl Busy {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.moves();
        activity.requests.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(activity))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connections {
    /// Connections to a router, until `stopping` becomes true.
    pub(crate) fn new(router: Router, limits: Limits, stopping: watch::Receiver<bool>) -> Self {
        Self {
            router,
            limits,
            stopping,
            tasks: JoinSet::new(),
            open: Vec::new(),
        }
    }

    /// Accepts connections until the console stops, then lets open requests end for a while.
    pub(crate) async fn serve(mut self, listener: TcpListener) {
        let mut stopping = self.stopping.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stopped(&mut stopping) => break,
            };
            match accepted {
                Ok((stream, peer)) => self.add(stream, peer),
                Err(error) => {
                    // For example out of descriptors. Open connections go on.
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(self.limits.stop, ended).await.is_err() {
            tracing::warn!("some connections did not end in time and were closed");
        }
    }

    /// Makes room for a connection; false if all are in the middle of requests.
    fn make_room(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|one| !one.task.is_finished());
        if self.open.len() < self.limits.connections_max {
            return true;
        }
        let stalled = self.limits.stalled;
        let is_idle = |one: &Open| one.activity.is_idle(stalled);
        let Some(oldest) = self.open.iter().position(is_idle) else {
            return false;
        };
        self.open.remove(oldest).task.abort();
        true
    }

    fn add(&mut self, stream: TcpStream, peer: SocketAddr) {
        if !self.make_room() {
            tracing::warn!(%peer, "all connections are in use: one more was closed");
            return;
        }
        // Answers are written whole, and events should not wait.
        let _ = stream.set_nodelay(true);
        let Ok(reached) = stream.local_addr() else {
            // The client has gone already.
            return;
        };
        let activity = Activity::new();
        let peer = Peer {
            client: peer.ip().to_canonical(),
            reached: reached.ip().to_canonical(),
        };
        let served = serve(
            stream,
            peer,
            self.router.clone(),
            self.limits.head,
            Arc::clone(&activity),
            self.stopping.clone(),
        );
        let task = self.tasks.spawn(served);
        self.open.push(Open { task, activity });
    }
}

async fn serve(
    stream: TcpStream,
    peer: Peer,
    router: Router,
    head: Duration,
    activity: Arc<Activity>,
    mut stopping: watch::Receiver<bool>,
) {
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let busy = Busy::new(&activity);
        request.extensions_mut().insert(peer);
        let received = Arc::clone(&activity);
        let request = request.map(|body| {
            axum::body::Body::new(Moving {
                body: axum::body::Body::new(body),
                activity: received,
                _busy: None,
            })
        });
        let answered = router.clone().oneshot(request);
        let sent = Arc::clone(&activity);
        async move {
            let response = answered.await?;
            // The connection is busy until the body has been sent, or its client has gone.
            Ok::<_, Infallible>(response.map(|body| Moving {
                body,
                activity: sent,
                _busy: Some(busy),
            }))
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// A body that notes when its pieces move. That of an answer keeps its connection busy until it
/// ends.
struct Moving {
    body: axum::body::Body,
    activity: Arc<Activity>,
    _busy: Option<Busy>,
}

impl http_body::Body for Moving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_ready() {
            self.activity.moves();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.body)
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.body)
    }
}
