//! The memory node's figures over HTTP: `/metrics` for Prometheus, `/healthz` for whoever restarts it.
//!
//! A thread of its own with a small runtime: what is asked here holds up no request of a client.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use farcore_rdma::node::NodeFigures;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

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

/// Answers on a thread of its own.
pub(super) fn serve(listener: TcpListener, figures: NodeFigures) -> Result<Server> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
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
            runtime.block_on(async {
                tokio::select! {
                    served = axum::serve(listener, router) => {
                        if let Err(error) = served {
                            tracing::warn!(%error, "HTTP ended");
                        }
                    }
                    _ = ended => {}
                }
            });
        })
        .context("cannot start a thread")?;
    Ok(Server { end, thread })
}
