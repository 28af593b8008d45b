//! Connections of clients: how many there are, and how long one may take.
//!
//! - I1: there are at most [`connections_max`](crate::options::Limits::connections_max)
//!   connections. For a further one, the oldest ends that is not in the middle of a request, or
//!   whose request moved no byte for [`stalled`](crate::options::Limits::stalled): a client that
//!   does not read its answer holds no place. If there is none such, the further one ends.
//! - I2: a client that is not this machine has at most a quarter of them; for a further one, one of
//!   its own ends by the same rule. Behind a proxy all come from the proxy, which has such limits.
//! - I3: a connection whose next head does not come within
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

use crate::access::network;
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
    /// What counts as its client.
    client: IpAddr,
    task: AbortHandle,
    activity: Arc<Activity>,
}

/// Accepts connections and serves them.
#[derive(Debug)]
pub(crate) struct Connections {
    router: Router,
    limits: Limits,
    /// Most connections of one client; `None` behind a proxy.
    client_max: Option<usize>,
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
    /// Connections to a router, until `stopping` becomes true. `is_behind_proxy` says that a proxy
    /// stands for all clients.
    pub(crate) fn new(
        router: Router,
        limits: Limits,
        is_behind_proxy: bool,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let quarter = (limits.connections_max / 4).max(1);
        Self {
            router,
            limits,
            client_max: (!is_behind_proxy).then_some(quarter),
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

    /// Makes room for a connection of a client; false if all that might end for it are in the
    /// middle of requests.
    fn make_room(&mut self, client: IpAddr) -> bool {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|one| !one.task.is_finished());
        let stalled = self.limits.stalled;
        let open = self.open.iter();
        let open = open.map(|one| (one.client, one.activity.is_idle(stalled)));
        match room(open, client, self.limits.connections_max, self.client_max) {
            Room::Free => true,
            Room::Of(oldest) => {
                self.open.remove(oldest).task.abort();
                true
            }
            Room::None => false,
        }
    }

    fn add(&mut self, stream: TcpStream, peer: SocketAddr) {
        let client = network(peer.ip());
        if !self.make_room(client) {
            tracing::warn!(%peer, "the connections are in use: one more was closed");
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
        self.open.push(Open {
            client,
            task,
            activity,
        });
    }
}

/// Where a further connection finds its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    Free,
    /// In that of an open connection, by its index.
    Of(usize),
    None,
}

/// The room for a further connection of a client beside open ones, of which it is known whose they
/// are and whether they are idle, oldest first.
fn room(
    open: impl ExactSizeIterator<Item = (IpAddr, bool)> + Clone,
    client: IpAddr,
    connections_max: usize,
    client_max: Option<usize>,
) -> Room {
    let own = open.clone().filter(|&(one, _)| one == client).count();
    let is_own_full = !client.is_loopback() && client_max.is_some_and(|most| own >= most);
    if !is_own_full && open.len() < connections_max {
        return Room::Free;
    }
    let mut open = open;
    let oldest = open.position(|(one, is_idle)| is_idle && (!is_own_full || one == client));
    oldest.map_or(Room::None, Room::Of)
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

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 8;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn room_of(open: &[(IpAddr, bool)], client: IpAddr, is_behind_proxy: bool) -> Room {
        let client_max = (!is_behind_proxy).then_some(MOST / 4);
        room(open.iter().copied(), client, MOST, client_max)
    }

    #[test]
    fn a_client_has_a_quarter_of_the_connections() {
        let [here, one, other] = ["127.0.0.1", "192.0.2.1", "192.0.2.2"].map(address);
        let busy = [(here, true), (one, false), (one, false), (other, true)];
        // Its own are in the middle of requests, and those of others do not end for it.
        assert_eq!(room_of(&busy, one, false), Room::None);
        assert_eq!(room_of(&busy, other, false), Room::Free);
        assert_eq!(room_of(&busy, here, false), Room::Free);
        assert_eq!(room_of(&busy, one, true), Room::Free);
        let idle = [(here, true), (one, false), (one, true), (other, true)];
        assert_eq!(room_of(&idle, one, false), Room::Of(2));
    }

    #[test]
    fn this_machine_and_a_proxy_may_have_all() {
        for (client, is_behind_proxy) in [("127.0.0.9", false), ("::1", false), ("192.0.2.1", true)]
        {
            let client = network(address(client));
            let mut open = vec![(client, false); MOST - 1];
            assert_eq!(
                room_of(&open, client, is_behind_proxy),
                Room::Free,
                "{client}"
            );
            open.push((client, false));
            assert_eq!(
                room_of(&open, client, is_behind_proxy),
                Room::None,
                "{client}"
            );
            open[3].1 = true;
            assert_eq!(
                room_of(&open, client, is_behind_proxy),
                Room::Of(3),
                "{client}"
            );
        }
    }
}
