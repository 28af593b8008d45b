//! The memory node's figures over HTTP: `/metrics` for Prometheus, `/healthz` for whoever restarts it.
//!
//! A thread of its own with a small runtime: what is asked here holds up no request of a client.
//!
//! - I1: a connection is for one request and its answer, and lives no longer than [`Limits::connection`], whatever its
//!   client does or leaves undone.
//! - I2: there are at most [`Limits::connections_max`]; the oldest makes room for the next, so that the silent keep
//!   nobody out.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use farcore_rdma::node::NodeFigures;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long no connection is accepted after one could not be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What clients may take up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at a time.
    pub(super) connections_max: usize,
    /// How long one may live.
    pub(super) connection: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 64,
            connection: Duration::from_secs(10),
        }
    }
}

/// Takes the address.
pub(super) fn bind(address: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot listen on {address}; give --http another address"))?;
    listener
        .set_nonblocking(true)
        .with_context(|| format!("cannot listen on {address}"))?;
    Ok(listener)
}

/// Reads the node's figures at the moment that somebody asks.
#[derive(Debug)]
struct NodeCollector(NodeFigures);

impl Collector for NodeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = self.0.statistics();
        let mut gauge = |name: &str, help: &str, value: u64| {
            let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let family = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(family)
        };
        gauge("data_bytes", "Memory that is lent", now.data_bytes)?;
        gauge("extent_bytes", "Length of an extent", now.extent_bytes)?;
        gauge("sessions", "Open sessions", now.sessions)?;
        #[allow(clippy::cast_precision_loss, reason = "microseconds do for centuries")]
        let uptime = ConstGauge::new((now.uptime_ns / 1_000) as f64 / 1e6);
        let help = "Time since the start";
        let family =
            encoder.encode_descriptor("uptime_seconds", help, None, uptime.metric_type())?;
        uptime.encode(family)?;

        let mut gauges = |name: &str, help: &str, label: &str, values: &[(&str, u64)]| {
            let kind = ConstGauge::new(0i64).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for &(which, value) in values {
                let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
                metric.encode(family.encode_family(&[(label, which)])?)?;
            }
            Ok::<(), fmt::Error>(())
        };
        let owned = now.extents.saturating_sub(now.extents_free);
        let extents = [("free", now.extents_free), ("owned", owned)];
        gauges("extents", "Extents by state", "state", &extents)?;
        let connections = [
            ("control", now.control_connections),
            ("memory", now.memory_connections),
        ];
        gauges("connections", "Open connections", "kind", &connections)?;

        for (name, help, value) in [
            ("sessions_opened", "Sessions opened", now.sessions_opened),
            (
                "sessions_expired",
                "Sessions whose lease ended",
                now.sessions_expired,
            ),
            (
                "requests_refused",
                "One-sided requests refused",
                now.requests_refused,
            ),
            (
                "chunks_allocated",
                "Chunks handed out",
                now.chunks_allocated,
            ),
            (
                "chunks_freed",
                "Chunks given back by their owners",
                now.chunks_freed,
            ),
            (
                "extents_reclaimed",
                "Extents taken back from sessions that ended",
                now.extents_reclaimed,
            ),
        ] {
            let metric = ConstCounter::new(value);
            let family = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(family)?;
        }
        let mut counters = |name: &str, help: &str, label: &str, values: &[(&str, u64)]| {
            let kind = ConstCounter::new(0u64).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for &(which, value) in values {
                let metric = ConstCounter::new(value);
                metric.encode(family.encode_family(&[(label, which)])?)?;
            }
            Ok::<(), fmt::Error>(())
        };
        let requests = [
            ("read", now.reads),
            ("write", now.writes),
            ("atomic", now.atomics),
        ];
        counters(
            "requests",
            "One-sided requests performed",
            "kind",
            &requests,
        )?;
        let bytes = [("read", now.read_bytes), ("write", now.write_bytes)];
        counters("transferred_bytes", "Bytes moved", "kind", &bytes)?;
        let refusals: Vec<_> = self.0.refusals().collect();
        let help = "Connections and control requests refused";
        counters("refusals", help, "reason", &refusals)
    }
}

async fn metrics(State(figures): State<NodeFigures>) -> impl IntoResponse {
    let mut registry = Registry::with_prefix("farcore_memnode");
    registry.register_collector(Box::new(NodeCollector(figures)));
    let mut body = String::new();
    match text::encode(&mut body, &registry) {
        Ok(()) => (StatusCode::OK, [(header::CONTENT_TYPE, CONTENT_TYPE)], body),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            error.to_string(),
        ),
    }
}

async fn health(State(figures): State<NodeFigures>) -> (StatusCode, &'static str) {
    if figures.is_serving() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n")
    }
}

/// The thread that answers.
#[derive(Debug)]
pub(super) struct Server {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Ends it, whoever is still asking.
    pub(super) fn stop(self) {
        drop(self.end);
        // Its panic has been told by the hook.
        let _ = self.thread.join();
    }
}

async fn ask(stream: TcpStream, router: Router, limit: Duration) {
    // A time-out for the whole says more than hyper's for the head: who does not read the answer goes as well.
    let answered = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match timeout(limit, answered).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection ended"),
        Err(_) => tracing::debug!("an HTTP connection took too long"),
    }
}

async fn answer(listener: tokio::net::TcpListener, router: Router, limits: Limits) -> Infallible {
    // The oldest first.
    let mut asking: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, for one: those that are open go on.
                tracing::warn!(%error, "an HTTP connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        asking.retain(|one| !one.is_finished());
        while asking.len() >= limits.connections_max
            && let Some(oldest) = asking.pop_front()
        {
            oldest.abort();
        }
        let asks = tokio::spawn(ask(stream, router.clone(), limits.connection));
        asking.push_back(asks.abort_handle());
    }
}

/// Answers on a thread of its own.
pub(super) fn serve(listener: TcpListener, figures: NodeFigures, limits: Limits) -> Result<Server> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("cannot start the HTTP runtime")?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).context("cannot listen for HTTP")?
    };
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .with_state(figures);
    let (end, ended) = oneshot::channel::<()>();
    let thread = thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || {
            // What is still asked ends with the runtime.
            runtime.block_on(async {
                tokio::select! {
                    never = answer(listener, router, limits) => match never {},
                    _ = ended => {}
                }
            });
        })
        .context("cannot start a thread")?;
    Ok(Server { end, thread })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use farcore_rdma::Lock;
    use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};

    use super::*;

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(1 << 20);

    fn start(limits: Limits) -> (NodeHandle, Server, SocketAddr) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let memory = MemoryOptions {
            region_bytes: 1 << 20,
            extent_bytes: 64 << 10,
            huge_pages: false,
            lock: Lock::Off,
            ..MemoryOptions::new(1 << 20)
        };
        let node = MemoryNode::start(NodeOptions::new(any, memory)).expect("a node");
        let listener = bind(any).expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let server = serve(listener, node.figures(), limits).expect("a thread");
        (node, server, address)
    }

    fn connect(address: SocketAddr) -> TcpStream {
        TcpStream::connect(address).expect("it listens")
    }

    fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = connect(address);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("it listens");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }

    /// Waits for the other side's end.
    fn must_end(mut stream: TcpStream) {
        let mut text = Vec::new();
        // Whether it comes as an end or as a reset is the kernel's affair.
        let _ = stream.read_to_end(&mut text);
        assert!(!text.starts_with(b"HTTP/1.1 200"));
    }

    #[test]
    fn the_silent_are_dropped() {
        let (node, server, address) = start(Limits {
            connection: Duration::from_millis(50),
            ..Limits::default()
        });
        must_end(connect(address));
        let mut half = connect(address);
        half.write_all(b"GET /healthz HTTP/1.1\r\nHo").unwrap();
        must_end(half);
        server.stop();
        node.stop();
    }

    #[test]
    fn the_silent_keep_nobody_out() {
        let (node, server, address) = start(Limits {
            connections_max: 4,
            connection: LONG,
        });
        let mut crowd = Vec::new();
        for _ in 0..8 {
            crowd.extend((0..3).map(|_| connect(address)));
            assert!(ask(address, "/healthz").ends_with("ok\n"));
            assert!(ask(address, "/metrics").ends_with("# EOF\n"));
        }
        // All but the last few were told to go.
        crowd.truncate(crowd.len() - 4);
        crowd.into_iter().for_each(must_end);
        server.stop();
        node.stop();
    }
}
