//! Serves figures over HTTP: `/metrics` for Prometheus, `/healthz` for a supervisor.
//!
//! Owns a thread with a small runtime, so that a scrape delays no client request.
//!
//! - I1: a connection carries one request and its answer, and lives no longer than
//!   [`HttpLimits::connection`], whatever its client does.
//! - I2: there are at most [`HttpLimits::connections_max`]. The oldest is dropped for the next one,
//!   so that silent clients lock no other client out.
//! - I3: on a loopback address only requests for this machine are answered, so that a page in a
//!   browser cannot read the figures.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::host::only_local;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The source of an [`HttpServer`]'s answers. Called on the server's thread.
pub trait Exposed: fmt::Debug + Send + Sync + 'static {
    /// The prefix of all metric names, without the `_` that follows.
    fn prefix(&self) -> &'static str;

    /// Encodes the current figures.
    ///
    /// # Errors
    /// Those of the encoder.
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result;

    /// Whether the source serves; `/healthz` reports it.
    fn is_healthy(&self) -> bool;

    /// Whether it serves until its clients have left; `/healthz` says so.
    fn is_leaving(&self) -> bool {
        false
    }
}

/// Limits on an [`HttpServer`]'s connections.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Most connections at a time.
    pub connections_max: usize,
    /// Longest lifetime of a connection.
    pub connection: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections_max: 64,
            connection: Duration::from_secs(10),
        }
    }
}

/// Whether only this machine reaches an address. Any client that reaches it may read the figures.
#[must_use]
pub fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[derive(Debug)]
struct Shown(Arc<dyn Exposed>);

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.encode(&mut encoder)
    }
}

/// The current figures as OpenMetrics text.
///
/// # Errors
/// Those of the encoder.
pub fn openmetrics(exposed: &Arc<dyn Exposed>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(exposed.prefix());
    registry.register_collector(Box::new(Shown(Arc::clone(exposed))));
    let mut body = String::new();
    text::encode(&mut body, &registry)?;
    Ok(body)
}

async fn metrics(State(exposed): State<Arc<dyn Exposed>>) -> impl IntoResponse {
    match openmetrics(&exposed) {
        Ok(body) => (StatusCode::OK, [(header::CONTENT_TYPE, CONTENT_TYPE)], body),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            error.to_string(),
        ),
    }
}

async fn health(State(exposed): State<Arc<dyn Exposed>>) -> (StatusCode, &'static str) {
    match (exposed.is_healthy(), exposed.is_leaving()) {
        (true, false) => (StatusCode::OK, "ok\n"),
        (true, true) => (StatusCode::OK, "leaving\n"),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
    }
}

/// The thread that serves HTTP. Dropping this ends it, together with open connections.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Binds an address and serves it. The thread inherits the caller's affinity: call this from a
    /// thread that is not pinned to an engine's core.
    ///
    /// # Errors
    /// The address cannot be bound, or the thread cannot be started.
    pub fn bind(address: SocketAddr, exposed: Arc<dyn Exposed>) -> io::Result<Self> {
        Self::serve(TcpListener::bind(address)?, exposed, HttpLimits::default())
    }

    /// Serves a bound listener.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn serve(
        listener: TcpListener,
        exposed: Arc<dyn Exposed>,
        limits: HttpLimits,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(health))
            .with_state(exposed);
        let router = if is_loopback(address) {
            router.layer(middleware::from_fn(only_local))
        } else {
            router
        };
        let (end, ended) = oneshot::channel::<()>();
        let thread = thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || {
                // Open connections end with the runtime.
                runtime.block_on(async {
                    tokio::select! {
                        never = accept(listener, router, limits) => match never {},
                        _ = ended => {}
                    }
                });
            })?;
        Ok(Self {
            address,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported its panic.
            let _ = thread.join();
        }
    }
}

async fn serve_connection(stream: TcpStream, router: Router, limit: Duration) {
    // One timeout for the whole connection, rather than hyper's for the head, also covers a client
    // that does not read the answer.
    let answered = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match timeout(limit, answered).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection ended"),
        Err(_) => tracing::debug!("an HTTP connection took too long"),
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    router: Router,
    limits: HttpLimits,
) -> Infallible {
    // Oldest first.
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // For example out of descriptors. Open connections go on.
                tracing::warn!(%error, "cannot accept an HTTP connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        open.retain(|one| !one.is_finished());
        while open.len() >= limits.connections_max
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let task = tokio::spawn(serve_connection(stream, router.clone(), limits.connection));
        open.push_back(task.abort_handle());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use prometheus_client::metrics::MetricType;

    use super::*;

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(1 << 20);

    #[derive(Debug, Default)]
    struct Two {
        ill: AtomicBool,
    }

    impl Exposed for Two {
        fn prefix(&self) -> &'static str {
            "test"
        }

        fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
            encoder
                .encode_descriptor("two", "Two", None, MetricType::Gauge)?
                .encode_gauge(&2i64)
        }

        fn is_healthy(&self) -> bool {
            !self.ill.load(Ordering::Relaxed)
        }
    }

    fn start(limits: HttpLimits) -> (Arc<Two>, HttpServer, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let two = Arc::new(Two::default());
        let server = HttpServer::serve(listener, two.clone(), limits).expect("a thread");
        let address = server.address();
        (two, server, address)
    }

    fn connect(address: SocketAddr) -> TcpStream {
        TcpStream::connect(address).expect("it listens")
    }

    fn get(address: SocketAddr, path: &str) -> String {
        get_with(address, path, &format!("Host: {address}\r\n"))
    }

    fn get_with(address: SocketAddr, path: &str, headers: &str) -> String {
        let mut stream = connect(address);
        write!(stream, "GET {path} HTTP/1.1\r\n{headers}\r\n").expect("it listens");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }

    /// Waits for the peer to close the connection.
    fn must_end(mut stream: TcpStream) {
        let mut text = Vec::new();
        // The kernel decides between an end and a reset.
        let _ = stream.read_to_end(&mut text);
        assert!(!text.starts_with(b"HTTP/1.1 200"));
    }

    #[test]
    fn figures_and_health_are_served() {
        let (two, server, address) = start(HttpLimits::default());
        let text = get(address, "/metrics");
        assert!(
            text.contains(CONTENT_TYPE) && text.contains("\ntest_two 2\n"),
            "{text}"
        );
        assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
        two.ill.store(true, Ordering::Relaxed);
        assert!(get(address, "/healthz").starts_with("HTTP/1.1 503"));
        assert!(get(address, "/").starts_with("HTTP/1.1 404"));
        drop(server);
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn a_request_for_another_host_is_misdirected() {
        let (_two, _server, address) = start(HttpLimits::default());
        for path in ["/metrics", "/healthz", "/"] {
            for headers in [
                "Host: rebound.example.org\r\n",
                "Host: rebound.example.org:9400\r\n",
                "Host: localhost\r\nHost: rebound.example.org\r\n",
                "",
            ] {
                let text = get_with(address, path, headers);
                assert!(
                    text.starts_with("HTTP/1.1 421 "),
                    "{path} {headers}: {text}"
                );
                assert!(
                    !text.contains("test_two") && text.contains("localhost"),
                    "{text}"
                );
            }
        }
        let text = get_with(
            address,
            "http://rebound.example.org/metrics",
            "Host: localhost\r\n",
        );
        assert!(text.starts_with("HTTP/1.1 421 "), "{text}");
        for host in ["localhost", "localhost:1", "127.0.0.1", "[::1]:9400"] {
            let text = get_with(address, "/healthz", &format!("Host: {host}\r\n"));
            assert!(text.starts_with("HTTP/1.1 200 "), "{host}: {text}");
        }
    }

    #[test]
    fn silent_clients_are_dropped() {
        let (_two, _server, address) = start(HttpLimits {
            connection: Duration::from_millis(50),
            ..HttpLimits::default()
        });
        must_end(connect(address));
        let mut half = connect(address);
        half.write_all(b"GET /healthz HTTP/1.1\r\nHo").unwrap();
        must_end(half);
    }

    #[test]
    fn silent_clients_lock_no_other_out() {
        let (_two, server, address) = start(HttpLimits {
            connections_max: 4,
            connection: LONG,
        });
        let mut crowd = Vec::new();
        for _ in 0..8 {
            crowd.extend((0..3).map(|_| connect(address)));
            assert!(get(address, "/healthz").ends_with("ok\n"));
            assert!(get(address, "/metrics").ends_with("# EOF\n"));
        }
        // All but the last few were dropped.
        crowd.truncate(crowd.len() - 4);
        crowd.into_iter().for_each(must_end);
        drop(server);
    }
}
