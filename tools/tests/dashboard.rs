//! The Grafana dashboard queries only metrics that an engine, a memory node or a server exposes,
//! and its panels do not overlap.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use farcore::statistics::{
    ClusterReport, CoreReport, DataReport, Exposition, HotKey, LinkReport, NodeReport,
    ReplicationReport,
};
use farcore::{Report, Reporter};
use farcore_tuning::{Exposed, openmetrics};
use serde_json::Value;

use self::support::{Node, Serve};

/// An engine whose report has an entry of every kind.
struct FullEngine;

impl Reporter for FullEngine {
    fn report(&self) -> Report {
        let mut core = CoreReport {
            hot_keys: vec![HotKey::default()],
            ..CoreReport::default()
        };
        core.hardware.instructions = Some(1);
        let mut data = DataReport::default();
        // Snapshots that there are, and that have failed, have series of their own.
        (data.snapshots.last_unix_ms, data.snapshots.failed_unix_ms) = (1, 1);
        Report {
            cores: vec![core],
            nodes: vec![NodeReport::default()],
            data: Some(data),
            replication: Some(ReplicationReport {
                link: Some(LinkReport::default()),
                ..ReplicationReport::default()
            }),
            cluster: Some(ClusterReport::default()),
            ..Report::default()
        }
    }
}

/// The text at `/metrics` of a memory node.
fn node_metrics() -> String {
    // A port that was free a moment ago.
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let http: SocketAddr = probe.local_addr().unwrap();
    drop(probe);
    let _node = Node::start(
        &[],
        &[
            "--listen",
            "tcp://127.0.0.1:0",
            "--memory",
            "1MiB",
            "--no-huge-pages",
            "--http",
            &http.to_string(),
        ],
    );
    get(http)
}

/// The text at `/metrics`.
fn get(http: SocketAddr) -> String {
    let mut stream = TcpStream::connect(http).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The text at `/metrics` of a server that has run a command.
fn server_metrics() -> String {
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let http: SocketAddr = probe.local_addr().unwrap();
    drop(probe);
    let server = Serve::start(&["--http", &http.to_string()]);
    assert_eq!(server.line("PING"), "+PONG");
    get(http)
}

/// The names of all exposed series.
fn exposed_names() -> BTreeSet<String> {
    let engine: Arc<dyn Exposed> = Arc::new(Exposition::new(Arc::new(FullEngine)));
    let text = openmetrics(&engine).unwrap() + &node_metrics() + &server_metrics();
    let series = text.lines().filter(|line| line.starts_with("farcore_"));
    series
        .map(|line| line[..line.find(['{', ' ']).unwrap_or(line.len())].to_owned())
        .collect()
}

/// The names of series in a query.
fn queried_names(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|one: char| !one.is_ascii_alphanumeric() && one != '_');
    words.filter(|word| word.starts_with("farcore_"))
}

#[test]
fn the_dashboard_queries_only_exposed_metrics() {
    let dashboard: Value = serde_json::from_str(include_str!("../grafana/farcore.json")).unwrap();
    let exposed = exposed_names();
    let mut queries = Vec::new();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        queries.extend(variable["definition"].as_str());
    }
    let mut ids = BTreeSet::new();
    let mut positions = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64()), "{panel}");
        let side = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(side("x") + side("w") <= 24, "{panel}");
        assert!(positions.insert((side("y"), side("x"))), "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{panel}");
            queries.push(target["expr"].as_str().unwrap());
        }
    }
    assert!(queries.len() > 50);
    let mut shown = BTreeSet::new();
    for query in queries {
        assert!(queried_names(query).count() > 0, "{query}");
        for name in queried_names(query) {
            shown.insert(name);
            assert!(
                exposed.contains(name),
                "{name} is not exposed: {query}\n{exposed:#?}"
            );
        }
    }
    // Of the data directory and of replication, all is shown. Of a histogram the buckets are.
    let is_part = |name: &str| name.ends_with("_seconds_sum") || name.ends_with("_seconds_count");
    let is_whole = |name: &str| {
        let begins = ["farcore_data_", "farcore_replication_"];
        begins.iter().any(|begin| name.starts_with(begin)) && !is_part(name)
    };
    let whole = exposed.iter().map(String::as_str);
    let whole = whole.filter(|name| is_whole(name));
    let hidden: Vec<_> = whole.filter(|name| !shown.contains(name)).collect();
    assert!(hidden.is_empty(), "no panel shows {hidden:?}");
}
