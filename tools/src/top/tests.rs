//! The view in many sizes, over reports of many kinds of engines.

use farcore::Report;
use farcore::statistics::{
    CoreReport, DataReport, HotKey, LinkReport, NodeReport, ReplicasReport, ReplicationReport,
};
use farcore_tuning::Histogram;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::app::Action;
use super::*;
use crate::watch::rates::Rates;

const SIZES: [(u16, u16); 5] = [(80, 24), (40, 10), (200, 60), (12, 4), (1, 1)];

/// The report of an engine after a number of seconds.
fn report(cores: usize, nodes: usize, seconds: u64) -> Report {
    let core = |number: usize| {
        let mut core = CoreReport {
            core: number,
            ..CoreReport::default()
        };
        let counters = &mut core.counters;
        let weight = number as u64 + 1;
        counters.gets = 3_000_000 * seconds * weight;
        counters.puts = 1_000_000 * seconds * weight;
        counters.local_hits = 2_000_000 * seconds * weight;
        counters.far_hits = 500_000 * seconds * weight;
        counters.far_reads = 500_000 * seconds * weight;
        counters.busy_ns = 900_000_000 * seconds;
        counters.parked_ns = 100_000_000 * seconds;
        counters.keys = 7;
        let far = Histogram::default();
        far.record_n(4_000, seconds);
        far.record_n(90_000, seconds / 10);
        core.far = far.snapshot();
        core.hardware.instructions = Some(4_000_000 * seconds * weight * 250);
        core
    };
    let node = |number: usize| {
        let mut node = NodeReport {
            name: format!("tcp://10.0.0.{number}:7400"),
            ..NodeReport::default()
        };
        node.counters.reads = 1_000 * seconds;
        node.counters.total_bytes = 1 << 30;
        node.counters.used_bytes = 1 << 29;
        node.counters.silent_queues = (number == 1).into();
        node
    };
    Report {
        format: Report::FORMAT,
        process: 42,
        uptime_ns: seconds * 1_000_000_000,
        local_cap_bytes: 32 << 20,
        local_resident_bytes: 31 << 20,
        cores: (0..cores).map(core).collect(),
        nodes: (0..nodes).map(node).collect(),
        ..Report::default()
    }
}

/// The view after some reports of an engine.
fn app(reports: impl IntoIterator<Item = Report>) -> App {
    let mut app = App::new(Duration::from_secs(1));
    for report in reports {
        app.on_sample("/run/engine.sock".to_owned(), Ok(report));
    }
    app
}

fn shown(app: &App, size: (u16, u16)) -> String {
    picture::text(&view(app, size))
}

fn press(app: &mut App, code: KeyCode) -> Action {
    app.on_key(KeyEvent::from(code))
}

#[test]
fn eighty_columns_show_all_that_matters() {
    let app = app([report(2, 2, 1), report(2, 2, 2)]);
    let text = shown(&app, (80, 24));
    for part in [
        "process 42",
        "12.0M op/s: 9.00M get 3.00M put",
        "cap 32M, process 31M",
        "hit%",
        "busy",
        "4.0u/",
        "tcp://10.0.0.1:7400",
        "silent",
        "512M/1.0G",
        "q quit",
        "at most 12.0M",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // A row for all cores and one for each, with shares of hits and of time.
    let all = text
        .lines()
        .find(|line| line.trim_start().starts_with("all"));
    let all: Vec<&str> = all.expect("a sum").split_whitespace().collect();
    assert_eq!(all[..6], ["all", "12.0M", "80", "80", "0", "20"], "{text}");
    assert_eq!(all.last(), Some(&"90"));
    assert!(
        text.lines()
            .any(|line| line.trim_start().starts_with("1  8.00M")),
        "{text}"
    );
}

#[test]
fn every_engine_fits_every_size() {
    let odd = |mut report: Report| {
        let keys = [
            "plain",
            "\\x00\\xff",
            "<&>\"'",
            "\u{1F600} wide \u{301}",
            "",
            &"x".repeat(300),
        ];
        report.cores[0].hot_keys = keys
            .iter()
            .map(|key| HotKey {
                key: (*key).to_owned(),
                key_bytes: 9,
                share: 0.3,
                error: 0.0,
                samples: 100,
            })
            .collect();
        report
    };
    for (cores, nodes) in [(1, 0), (2, 1), (64, 3), (64, 64), (0, 0)] {
        for keys in [false, true] {
            let made = |seconds| {
                let report = report(cores, nodes, seconds);
                if keys && cores > 0 {
                    odd(report)
                } else {
                    report
                }
            };
            for mut app in [app([made(1), made(2)]), app([made(1)]), app([])] {
                for help in [false, true] {
                    app.help = help;
                    for size in SIZES {
                        let text = shown(&app, size);
                        assert_eq!(text.lines().count(), usize::from(size.1));
                        let svg = picture::svg(&view(&app, size));
                        assert!(svg.ends_with("</svg>\n"));
                    }
                }
            }
        }
    }
}

#[test]
fn a_wide_terminal_shows_more_columns_and_tab_shows_the_others() {
    let mut app = app([report(1, 0, 1), report(1, 0, 2)]);
    let wide = shown(&app, (200, 60));
    assert!(wide.contains("ins/op") && wide.contains(" 250"), "{wide}");
    assert!(!shown(&app, (80, 24)).contains("ins/op"));
    for _ in 0..4 {
        press(&mut app, KeyCode::Tab);
    }
    assert!(shown(&app, (80, 24)).contains("ins/op"));
}

#[test]
fn many_cores_are_scrolled_and_sorted() {
    let mut app = app([report(64, 1, 1), report(64, 1, 2)]);
    let text = shown(&app, (80, 24));
    assert!(text.contains("more cores below"), "{text}");
    let first = |app: &App| app.rows()[0].core;
    assert_eq!(first(&app), Some(0));
    press(&mut app, KeyCode::Char('s'));
    assert_eq!(first(&app), Some(63), "by operations");
    press(&mut app, KeyCode::Char('S'));
    assert_eq!(first(&app), Some(0));
    for _ in 0..100 {
        press(&mut app, KeyCode::Down);
    }
    let text = shown(&app, (80, 24));
    let last = text
        .lines()
        .any(|line| line.trim_start().starts_with("63 "));
    assert!(last && !text.contains("more cores below"), "{text}");
}

#[test]
fn another_engine_on_the_path_starts_a_new_history() {
    let mut app = app([report(2, 1, 8), report(2, 1, 9)]);
    assert!(app.rates.is_some());
    // Same process number, as may happen in a container, and lower counters.
    app.on_sample(String::new(), Ok(report(2, 1, 1)));
    assert!(app.rates.is_none() && app.operations.is_empty());
    app.on_sample(String::new(), Ok(report(2, 1, 2)));
    assert_eq!(app.operations, [12_000_000]);
    // A later report in which one counter fell.
    let mut fallen = report(2, 1, 3);
    fallen.cores[1].counters.gets = 0;
    assert!(Rates::between(&report(2, 1, 2), &fallen).is_none());
    let mut other = report(2, 1, 3);
    other.process = 43;
    assert!(Rates::between(&report(2, 1, 2), &other).is_none());
    assert!(Rates::between(&report(2, 1, 2), &report(3, 1, 3)).is_none());
}

#[test]
fn a_lost_engine_is_reported_and_waited_for() {
    let mut app = app([]);
    app.on_sample(
        "p".to_owned(),
        Err("no engine has a statistics socket in p".to_owned()),
    );
    let text = shown(&app, (80, 24));
    assert!(
        text.contains("no engine has") && text.contains("waiting"),
        "{text}"
    );
    for seconds in 1..3 {
        app.on_sample("p".to_owned(), Ok(report(1, 0, seconds)));
    }
    app.on_sample("p".to_owned(), Err("gone".to_owned()));
    let text = shown(&app, (80, 24));
    assert!(
        text.contains("LOST") && text.contains("4.00M op/s"),
        "{text}"
    );
    app.on_sample("p".to_owned(), Ok(report(1, 0, 3)));
    assert!(!shown(&app, (80, 24)).contains("LOST"));
}

#[test]
fn keys_pause_and_quit_and_change_help_and_interval() {
    let mut app = app([report(1, 0, 1), report(1, 0, 2)]);
    press(&mut app, KeyCode::Char('p'));
    app.on_sample(String::new(), Ok(report(1, 0, 9)));
    assert_eq!(app.operations.len(), 1);
    assert!(shown(&app, (80, 24)).contains("paused"));
    press(&mut app, KeyCode::Char('p'));
    app.on_sample(String::new(), Ok(report(1, 0, 10)));
    assert_eq!(app.operations.len(), 1, "no average over the pause");
    app.on_sample(String::new(), Ok(report(1, 0, 11)));
    assert_eq!(app.operations, [4_000_000, 4_000_000]);

    assert_eq!(press(&mut app, KeyCode::Char('+')), Action::Interval);
    assert_eq!(app.interval, Duration::from_secs(2));
    press(&mut app, KeyCode::Char('h'));
    assert!(shown(&app, (80, 24)).contains("next engine"));
    assert_eq!(press(&mut app, KeyCode::Esc), Action::None);
    assert!(!app.help);
    assert_eq!(press(&mut app, KeyCode::Char('n')), Action::NextEngine);
    assert_eq!(press(&mut app, KeyCode::Char('q')), Action::Quit);
}

#[test]
fn the_json_has_figures_and_nulls_for_absent_ones() {
    let rates = Rates::between(&report(1, 1, 1), &report(1, 1, 3)).unwrap();
    let json = serde_json::to_value(&rates).unwrap();
    assert_eq!(json["total"]["operations_per_second"], 4_000_000.0);
    assert_eq!(json["cores"][0]["far"]["p50_ns"], 4_000);
    assert_eq!(json["nodes"][0]["used_bytes"], 1 << 29);
    assert_eq!(json["interval_seconds"], 2.0);
    let still = report(1, 0, 1);
    let later = Report {
        uptime_ns: still.uptime_ns + 1,
        ..still.clone()
    };
    let still = serde_json::to_value(Rates::between(&still, &later).unwrap()).unwrap();
    assert!(still["total"]["hit_ratio"].is_null(), "{still}");
}

/// A report with a data directory, to which a MiB a second is logged.
fn with_data(seconds: u64) -> Report {
    let syncs = Histogram::default();
    syncs.record_n(4_000_000, seconds);
    let mut data = DataReport::default();
    data.log.is_on = true;
    data.log.bytes = seconds << 20;
    data.log.unsynced_bytes = 3 << 10;
    data.log.last_sync_ns = 4_000_000;
    data.log.syncs = syncs.snapshot();
    data.snapshots.last_unix_ms = farcore_tuning::system_ms() - 7_250_000;
    data.snapshots.last_bytes = 5 << 20;
    data.snapshots.completed = 1;
    data.repairs.keys = 9;
    data.repairs.error = "no room".to_owned();
    Report {
        data: Some(data),
        ..report(2, 1, seconds)
    }
}

#[test]
fn a_data_directory_has_a_line_and_a_part_of_the_json() {
    let text = shown(&app([with_data(1), with_data(3)]), (80, 24));
    let line = " data log 1.0M/s, 3.0K unsynced, sync 4.0m  snapshot 2h ago, 5.0M\n";
    assert!(text.contains(line), "{text}");
    let rates = Rates::between(&with_data(1), &with_data(3)).unwrap();
    let json = serde_json::to_value(&rates).unwrap();
    let data = &json["data"];
    assert_eq!(data["log_bytes_per_second"], 1_048_576.0);
    assert_eq!(data["log_bytes"], 3 << 20);
    assert_eq!(data["syncs"], 3);
    assert_eq!(data["sync"]["count"], 2);
    assert!(data["last_snapshot_age_seconds"].as_f64().unwrap() >= 7_250.0);
    assert!(data["snapshot_error"].is_null(), "{data}");
    assert_eq!(data["repaired_keys"], 9);
    assert_eq!(data["is_repairing"], false);
    assert_eq!(data["repair_error"], "no room");
    assert!(!shown(&app([report(2, 1, 1), report(2, 1, 2)]), (80, 24)).contains(" data "));
}

#[test]
fn a_log_that_fails_a_snapshot_that_failed_and_loading_are_named() {
    let made = |seconds, change: fn(&mut DataReport)| {
        let mut report = with_data(seconds);
        change(report.data.as_mut().unwrap());
        report
    };
    for (change, shown_text) in [
        (
            (|data| data.log.is_failing = true) as fn(&mut DataReport),
            "log FAILING, changes are refused",
        ),
        (
            |data| data.snapshots.error = "no \u{1b}[2J room".to_owned(),
            "last FAILED",
        ),
        (|data| data.snapshots.is_under_way = true, ", writing"),
        (|data| data.repairs.is_under_way = true, ", repairing"),
        (
            |data| {
                data.loading.is_under_way = true;
                (data.loading.bytes, data.loading.total_bytes) = (1 << 20, 4 << 20);
                data.loading.entries = 12_000;
            },
            "data loading 25%: 1.0M of 4.0M, 12.0k entries",
        ),
        // Any process may have written the report.
        (
            |data| {
                data.snapshots.last_unix_ms = u64::MAX;
                data.log.unsynced_ns = u64::MAX;
                data.log.bytes = u64::MAX;
                (data.loading.bytes, data.loading.total_bytes) = (u64::MAX, 0);
            },
            "unsynced",
        ),
    ] {
        let text = shown(&app([made(1, change), made(2, change)]), (80, 24));
        assert!(text.contains(shown_text), "{text}");
    }
}

/// A report of a server that is followed, or follows.
fn with_replication(seconds: u64, change: &dyn Fn(&mut ReplicationReport)) -> Report {
    let mut replication = ReplicationReport::default();
    change(&mut replication);
    Report {
        replication: Some(replication),
        ..report(2, 1, seconds)
    }
}

#[test]
fn replication_has_a_line_and_a_part_of_the_json() {
    let followed = |replication: &mut ReplicationReport| {
        replication.replicas = ReplicasReport {
            connected: 3,
            online: 2,
            behind_bytes: 3 << 10,
            silent_ns: 61_000_000_000,
            full_syncs: 4,
            ..ReplicasReport::default()
        };
    };
    let of = |link: LinkReport| {
        move |replication: &mut ReplicationReport| replication.link = Some(link.clone())
    };
    let none = LinkReport::default();
    let shown_of = |change: &dyn Fn(&mut ReplicationReport)| {
        let reports = [with_replication(1, change), with_replication(3, change)];
        shown(&app(reports), (80, 24))
    };
    for (change, line) in [
        (
            &followed as &dyn Fn(&mut ReplicationReport),
            " repl 3 replicas, 1 loading, 3.0K behind, silent 61s\n",
        ),
        (
            &of(LinkReport {
                is_up: true,
                behind_bytes: 5 << 20,
                silent_ns: 1_000_000_000,
                failed_commands: 1,
                ..none.clone()
            }),
            " repl follows, 5.0M to apply, DIFFERS\n",
        ),
        (
            &of(LinkReport {
                is_syncing: true,
                loaded_bytes: 1 << 20,
                total_bytes: 4 << 20,
                ..none.clone()
            }),
            " repl follows, loads 25%: 1.0M of 4.0M\n",
        ),
        (
            &of(LinkReport {
                down_ns: 180_000_000_000,
                ..none.clone()
            }),
            " repl follows, link DOWN 3m\n",
        ),
    ] {
        let text = shown_of(change);
        assert!(text.contains(line), "{text}");
    }
    // A server that is not followed has nothing to show.
    assert!(!shown_of(&|_| {}).contains(" repl "));
    let later = with_replication(3, &followed);
    let rates = Rates::between(&with_replication(1, &followed), &later).unwrap();
    let json = serde_json::to_value(&rates).unwrap();
    let replication = &json["replication"];
    assert_eq!(replication["replicas"], 3);
    assert_eq!(replication["replicas_behind_bytes"], 3 << 10);
    assert_eq!(replication["replicas_silent_seconds"], 61.0);
    assert!(replication["link"].is_null(), "{replication}");
}

#[test]
fn sizes_are_parsed_or_rejected() {
    assert_eq!(parse_size("100x30"), Ok((100, 30)));
    for wrong in ["80", "0x24", "80x1001", "x", "-1x5"] {
        assert!(parse_size(wrong).unwrap_err().contains("80x24"));
    }
}
