//! What `farcore top` and Prometheus show of a server that is followed, and of one that follows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use serde_json::Value;
use tempfile::TempDir;

use self::support::watched::{Watched, value};
use self::support::{farcore, output_of};

fn number(figures: &Value, name: &str) -> u64 {
    let found = figures[name].as_u64();
    found.unwrap_or_else(|| panic!("no {name} in {figures:#}"))
}

/// What `farcore top` draws.
fn view(watched: &Watched) -> String {
    let mut command = farcore();
    command.arg("top").arg(&watched.socket);
    let output = output_of(command.args(["--once", "--interval", "100ms"]));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn top_and_prometheus_show_replicas_and_the_link_to_a_source() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let source = Watched::start(here.path(), &[]);
    let alone = source.figures()["replication"].take();
    assert_eq!(number(&alone, "replicas"), 0, "{alone:#}");
    assert!(alone["link"].is_null() && alone["replicas_silent_seconds"].is_null());
    assert!(!view(&source).contains(" repl "));
    let metrics = source.metrics();
    assert_eq!(value(&metrics, "replication_replicas"), Some(0.0));
    assert!(!metrics.contains("farcore_replication_link"));

    assert_eq!(source.server.line("SET key value"), "+OK");
    let address = source.server.address.to_string();
    let replica = Watched::start(there.path(), &["--replica-of", &address]);
    let followed = source.figures_when("replication", |figures| {
        number(figures, "replicas_online") == 1 && number(figures, "replicas_behind_bytes") == 0
    });
    assert_eq!(number(&followed, "replicas"), 1, "{followed:#}");
    assert_eq!(number(&followed, "full_syncs"), 1, "{followed:#}");
    assert!(followed["replicas_silent_seconds"].as_f64().is_some());
    assert!(
        view(&source).contains(" repl 1 replica, "),
        "{}",
        view(&source)
    );
    let follows = replica.figures_when("replication", |figures| {
        let link = &figures["link"];
        link["is_up"] == true && link["behind_bytes"] == 0 && number(link, "loaded_bytes") > 0
    });
    let link = &follows["link"];
    assert_eq!(number(link, "full_syncs"), 1, "{link:#}");
    assert!(link["down_seconds"].is_null() && link["error"].is_null());
    assert!(link["silent_seconds"].as_f64().is_some(), "{link:#}");
    assert!(view(&replica).contains(" repl follows, "));
    let metrics = replica.metrics();
    assert_eq!(value(&metrics, "replication_link_up"), Some(1.0));
    assert_eq!(
        value(&metrics, "replication_link_full_syncs_total"),
        Some(1.0)
    );
    // What is written moves both ends.
    for key in 0..20 {
        assert_eq!(source.server.line(&format!("SET key:{key} value")), "+OK");
    }
    let written = source.figures_when("replication", |figures| {
        number(figures, "offset_bytes") > number(&followed, "offset_bytes") + 400
            && number(figures, "replicas_behind_bytes") == 0
    });
    assert!(number(&written, "backlog_bytes") > 400, "{written:#}");
    replica.figures_when("replication", |figures| {
        number(figures, "offset_bytes") >= number(&written, "offset_bytes")
    });

    source.end();
    let lost = replica.figures_when("replication", |figures| figures["link"]["is_up"] == false);
    let link = &lost["link"];
    assert!(link["down_seconds"].as_f64().is_some(), "{link:#}");
    assert_eq!(value(&replica.metrics(), "replication_link_up"), Some(0.0));
    replica.end();
}
