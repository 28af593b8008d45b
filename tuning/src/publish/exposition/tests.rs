//! Tests that every figure is published, under conventional names.

use std::collections::HashSet;

use crate::measure::Histogram;
use crate::measure::{Metric, MetricKind};
use crate::publish::exposition::*;
use crate::publish::http::openmetrics;
use crate::publish::report::NodeReport;

struct Fixed(Report);

impl Reporter for Fixed {
    fn report(&self) -> Report {
        self.0.clone()
    }
}

fn text(report: Report) -> String {
    let exposed: Arc<dyn Exposed> = Arc::new(Exposition::new(Arc::new(Fixed(report))));
    openmetrics(&exposed).expect("memory to write to")
}

fn report() -> Report {
    let cores = [3, 7].map(|core| CoreReport {
        core,
        ..CoreReport::default()
    });
    Report {
        cores: cores.into(),
        nodes: vec![NodeReport::default()],
        ..Report::default()
    }
}

/// The values of the series whose names begin with `begin`.
fn values<'a>(text: &'a str, begin: &str) -> Vec<&'a str> {
    let lines = text.lines().filter(|line| line.starts_with(begin));
    lines.filter_map(|line| line.rsplit(' ').next()).collect()
}

#[test]
fn every_figure_is_published() {
    // Distinct values, whole numbers of seconds for times.
    let distinct = |metrics: &[Metric], from: u64| -> serde_json::Value {
        let values = metrics.iter().zip(from..).map(|(figure, value)| {
            let scale = if figure.name.ends_with("_ns") {
                1_000_000_000
            } else {
                1
            };
            (figure.name.to_owned(), (value * scale).into())
        });
        serde_json::Map::from_iter(values).into()
    };
    let mut full = report();
    let counters = distinct(ShardSnapshot::METRICS, 70_001);
    full.cores[1].counters = serde_json::from_value(counters).unwrap();
    let counters = distinct(NodeSnapshot::METRICS, 80_001);
    full.nodes[0].counters = serde_json::from_value(counters).unwrap();
    let text = text(full);
    for (metrics, from, begin) in [
        (ShardSnapshot::METRICS, 70_001, "{core=\"7\""),
        (NodeSnapshot::METRICS, 80_001, "{node=\"\""),
    ] {
        for (figure, value) in metrics.iter().zip(from..) {
            let ends = [format!(" {value}"), format!(" {value}.0")];
            let found = text
                .lines()
                .filter(|line| line.contains(begin) && ends.iter().any(|end| line.ends_with(end)));
            assert_eq!(found.count(), 1, "{}\n{text}", figure.name);
        }
    }
}

#[test]
fn groups_name_figures_of_one_kind() {
    for (metrics, groups) in [
        (ShardSnapshot::METRICS, CORE_GROUPS),
        (NodeSnapshot::METRICS, NODE_GROUPS),
    ] {
        for group in groups {
            let members = group.members.iter().map(|(name, _)| {
                let figure = metrics.iter().find(|figure| figure.name == *name);
                let figure = figure.unwrap_or_else(|| panic!("there is no {name}"));
                (figure.kind == MetricKind::Counter, name.ends_with("_ns"))
            });
            assert_eq!(members.collect::<HashSet<_>>().len(), 1, "{}", group.name);
        }
    }
}

#[test]
fn names_follow_the_convention() {
    let text = text(report());
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut seen = HashSet::new();
    for line in types {
        let (name, kind) = line.split_once(' ').unwrap();
        assert!(seen.insert(name), "{name} occurs twice");
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        assert!(name.bytes().all(plain), "{name}");
        // The library adds the suffix to counters and to nothing else.
        assert!(!name.ends_with("_total"), "{kind} {name}");
        assert!(!name.ends_with("_ns"), "{name}: seconds are the base unit");
    }
    assert!(seen.len() > 40 && text.ends_with("# EOF\n"), "{text}");
    // No label set occurs twice.
    let mut series = HashSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(series.insert(line.rsplit_once(' ').unwrap().0), "{line}");
    }
}

#[test]
fn latencies_are_histograms_in_seconds() {
    let waits = Histogram::default();
    for ns in [90, 200, 200, 700_000, 5_000_000_000] {
        waits.record(ns);
    }
    let mut full = report();
    full.cores[0].far = waits.snapshot();
    let text = text(full);
    let buckets: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("farcore_far_wait_seconds_bucket"))
        .filter(|line| line.contains("core=\"3\""))
        .filter_map(|line| line.rsplit(' ').next())
        .collect();
    assert_eq!(buckets.len(), LATENCY_NS.len() + 1, "{text}");
    assert_eq!(buckets[..3], ["1", "3", "3"]);
    assert_eq!(buckets[buckets.len() - 2..], ["4", "5"]);
    let count = values(&text, "farcore_far_wait_seconds_count{core=\"3\"}");
    assert_eq!(count, ["5"]);
    let sum = values(&text, "farcore_far_wait_seconds_sum{core=\"3\"}");
    assert_eq!(sum, ["5.00070049"]);
}

#[test]
fn odd_keys_and_missing_events_do_no_harm() {
    let hot = |key: &str| HotKey {
        key: key.to_owned(),
        share: 0.25,
        ..HotKey::default()
    };
    let mut full = report();
    full.cores[0].hot_keys = ["a\"}\n", "same", "same"].map(hot).into();
    full.cores[1].hardware.instructions = Some(12);
    let text = text(full);
    let odd = "farcore_hot_key_share_ratio{core=\"3\",key=\"a\\\"}\\n\"} 0.25";
    assert!(text.lines().any(|line| line == odd), "{text}");
    let same = values(
        &text,
        "farcore_hot_key_share_ratio{core=\"3\",key=\"same\"}",
    );
    assert_eq!(same, ["0.5"]);
    assert_eq!(values(&text, "farcore_hardware_events_total"), ["12"]);
}
