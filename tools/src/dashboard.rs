//! That the dashboard asks for nothing that is not told.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use farcore::statistics::{CoreReport, Exposition, HotKey, NodeReport};
use farcore::{Report, Reporter};
use farcore_rdma::Lock;
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeOptions};
use farcore_tuning::{Exposed, openmetrics};
use serde_json::Value;

/// An engine that has something of everything.
struct Everything;

impl Reporter for Everything {
    fn report(&self) -> Report {
        let mut core = CoreReport {
            hot_keys: vec![HotKey::default()],
            ..CoreReport::default()
        };
        core.hardware.instructions = Some(1);
        Report {
            cores: vec![core],
            nodes: vec![NodeReport::default()],
            ..Report::default()
        }
    }
}

/// The names of the series that are told.
fn told() -> BTreeSet<String> {
    let memory = MemoryOptions {
        region_bytes: 1 << 20,
        extent_bytes: 64 << 10,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(1 << 20)
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let node = MemoryNode::start(NodeOptions::new(any, memory)).expect("a node");
    let exposed: [Arc<dyn Exposed>; 2] = [
        Arc::new(Exposition::new(Arc::new(Everything))),
        Arc::new(crate::memnode::Shown(node.metrics())),
    ];
    let mut names = BTreeSet::new();
    for exposed in exposed {
        let text = openmetrics(&exposed).expect("memory to write to");
        let series = text.lines().filter(|line| !line.starts_with('#'));
        names.extend(series.map(|line| {
            let end = line.find(['{', ' ']).expect("a series has a value");
            line[..end].to_owned()
        }));
    }
    node.stop();
    names
}

/// The names that a query asks for.
fn asked(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|one: char| !one.is_ascii_alphanumeric() && one != '_');
    words.filter(|word| word.starts_with("farcore_"))
}

#[test]
fn the_dashboard_asks_for_what_is_told() {
    let dashboard = include_str!("../grafana/farcore.json");
    let dashboard: Value = serde_json::from_str(dashboard).expect("a dashboard");
    let told = told();
    let mut queries = Vec::new();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        queries.extend(variable["definition"].as_str());
    }
    let mut ids = BTreeSet::new();
    let mut lines = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64()), "{panel}");
        let place = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{panel}");
        assert!(lines.insert((place("y"), place("x"))), "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{panel}");
            queries.push(target["expr"].as_str().unwrap());
        }
    }
    assert!(queries.len() > 50);
    for query in queries {
        assert!(asked(query).count() > 0, "{query}");
        for name in asked(query) {
            assert!(
                told.contains(name),
                "{name} is not told: {query}\n{told:#?}"
            );
        }
    }
}
