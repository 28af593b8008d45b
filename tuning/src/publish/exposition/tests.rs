//! Tests that every figure is published, under conventional names.

use std::collections::HashSet;

use crate::measure::Histogram;
use crate::measure::{Metric, MetricKind};
use crate::publish::cluster_report::ClusterReport;
use crate::publish::data_report::{
    DataReport, LoadingReport, LogReport, RepairsReport, SnapshotsReport,
};
use crate::publish::exposition::*;
use crate::publish::http::openmetrics;
use crate::publish::replication_report::{LinkReport, ReplicasReport, ReplicationReport};
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
        data: Some(data()),
        replication: Some(replication()),
        ..Report::default()
    }
}

/// What an engine says of its data directory, each figure another one.
fn data() -> DataReport {
    let syncs = Histogram::default();
    for ns in [400_000, 3_000_000_000] {
        syncs.record(ns);
    }
    DataReport {
        loading: LoadingReport {
            is_under_way: false,
            entries: 90_001,
            bytes: 90_002,
            total_bytes: 90_003,
            took_ns: 90_004_000_000_000,
            torn_bytes: 90_005,
        },
        snapshots: SnapshotsReport {
            is_under_way: true,
            completed: 90_006,
            rewrites: 90_007,
            failed: 90_008,
            last_unix_ms: 90_009_500,
            last_took_ns: 90_010_000_000_000,
            last_bytes: 90_011,
            last_keys: 90_012,
            failed_unix_ms: 90_013_500,
            error: "the disk is full".to_owned(),
        },
        log: LogReport {
            is_on: true,
            is_failing: true,
            bytes: 90_014,
            durable_bytes: 90_015,
            unsynced_bytes: 90_016,
            unsynced_ns: 90_017_000_000_000,
            last_sync_ns: 90_018_000_000_000,
            syncs: syncs.snapshot(),
        },
        repairs: RepairsReport {
            is_under_way: true,
            completed: 90_019,
            failed: 90_020,
            keys: 90_021,
            error: "more was lost meanwhile".to_owned(),
        },
    }
}

/// What a server says of replication, each figure another one.
fn replication() -> ReplicationReport {
    ReplicationReport {
        offset_bytes: 91_001,
        backlog_bytes: 91_002,
        replicas: ReplicasReport {
            connected: 91_003,
            online: 91_004,
            behind_bytes: 91_005,
            silent_ns: 91_006_000_000_000,
            full_syncs: 91_007,
            partial_syncs: 91_008,
            refused_partial_syncs: 91_009,
            dropped: 91_010,
        },
        link: Some(LinkReport {
            is_up: true,
            is_syncing: true,
            behind_bytes: 91_011,
            silent_ns: 91_012_000_000_000,
            down_ns: 91_013_000_000_000,
            loaded_bytes: 91_014,
            total_bytes: 91_015,
            full_syncs: 91_016,
            partial_syncs: 91_017,
            failed_commands: 91_018,
            error: "the password is wrong".to_owned(),
        }),
    }
}

#[test]
fn a_cluster_has_series_of_a_server_that_is_a_part_of_one() {
    let mut some = report();
    assert!(!text(some.clone()).contains("farcore_cluster_"));
    some.cluster = Some(ClusterReport {
        map_version: 92_001,
        servers: 92_002,
        slots: 92_003,
        held_slots: 92_004,
        is_serving: true,
    });
    let text = text(some);
    for (name, value) in [
        ("map_version", "92001"),
        ("servers", "92002"),
        ("slots", "92003"),
        ("held_slots", "92004"),
        ("serving", "1"),
    ] {
        let line = format!("farcore_cluster_{name} {value}");
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
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

#[test]
fn the_data_directory_is_published_in_seconds_and_bytes() {
    let text = text(report());
    for (name, value) in [
        ("loading", "0"),
        ("loaded_entries", "90001"),
        ("loaded_bytes", "90002"),
        ("to_load_bytes", "90003"),
        ("load_seconds", "90004.0"),
        ("log_torn_bytes", "90005"),
        ("snapshot_in_progress", "1"),
        ("snapshot_failing", "1"),
        ("snapshots_total", "90006"),
        ("log_rewrites_total", "90007"),
        ("snapshot_failures_total", "90008"),
        ("snapshot_last_timestamp_seconds", "90009.5"),
        ("snapshot_last_duration_seconds", "90010.0"),
        ("snapshot_last_bytes", "90011"),
        ("snapshot_last_keys", "90012"),
        ("snapshot_failed_timestamp_seconds", "90013.5"),
        ("log_enabled", "1"),
        ("log_failing", "1"),
        ("log_bytes_total", "90014"),
        ("log_durable_bytes_total", "90015"),
        ("log_unsynced_bytes", "90016"),
        ("log_unsynced_seconds", "90017.0"),
        ("log_last_sync_seconds", "90018.0"),
        ("log_sync_seconds_sum", "3.0004"),
        ("log_sync_seconds_count", "2"),
        ("log_sync_seconds_bucket{le=\"0.0005\"}", "1"),
        ("repair_running", "1"),
        ("repair_completed_total", "90019"),
        ("repair_failed_total", "90020"),
        ("repair_keys_total", "90021"),
    ] {
        let line = format!("farcore_data_{name} {value}");
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
    assert!(!text.contains("disk is full"), "{text}");
    assert!(!text.contains("lost meanwhile"), "{text}");
}

#[test]
fn what_has_not_happened_has_no_series() {
    let mut full = report();
    full.data = Some(DataReport::default());
    let some = text(full.clone());
    assert!(some.contains("farcore_data_log_bytes_total 0"), "{some}");
    assert!(!some.contains("farcore_data_snapshot_last"), "{some}");
    assert!(!some.contains("timestamp"), "{some}");
    full.data = None;
    assert!(!text(full).contains("farcore_data_"));
}

#[test]
fn replication_is_published_in_seconds_and_bytes() {
    let some = text(report());
    for (name, value) in [
        ("offset_bytes", "91001"),
        ("backlog_bytes", "91002"),
        ("replicas", "91003"),
        ("replicas_online", "91004"),
        ("replicas_behind_bytes", "91005"),
        ("replicas_silent_seconds", "91006.0"),
        ("full_syncs_total", "91007"),
        ("partial_syncs_total", "91008"),
        ("refused_partial_syncs_total", "91009"),
        ("dropped_replicas_total", "91010"),
        ("link_up", "1"),
        ("link_syncing", "1"),
        ("link_behind_bytes", "91011"),
        ("link_silent_seconds", "91012.0"),
        ("link_down_seconds", "91013.0"),
        ("link_loaded_bytes", "91014"),
        ("link_to_load_bytes", "91015"),
        ("link_full_syncs_total", "91016"),
        ("link_partial_syncs_total", "91017"),
        ("link_failed_commands_total", "91018"),
    ] {
        let line = format!("farcore_replication_{name} {value}");
        assert!(some.lines().any(|one| one == line), "{line}\n{some}");
    }
    assert!(!some.contains("password is wrong"), "{some}");
    let mut alone = report();
    alone.replication = Some(ReplicationReport::default());
    let some = text(alone.clone());
    assert!(some.contains("farcore_replication_replicas 0"), "{some}");
    assert!(!some.contains("farcore_replication_link"), "{some}");
    alone.replication = None;
    assert!(!text(alone).contains("farcore_replication_"));
}
