//! Runs: the queue, progress, cancelling, results, traces, and what a stop leaves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use farcore_card::trace::Recording;
use farcore_card::workload::{Population, Workload, WorkloadSettings};
use serde_json::{Value, json};

use self::support::{Client, Harness, start};

/// Messages that take longer than any test.
const ENDLESS: u64 = 1_000_000_000_000;

#[test]
fn a_run_goes_from_the_queue_to_its_results() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let run = admin.start_run("first", 200_000);
    let events: Vec<_> = admin.follow(run, 0).collect();
    let last = events.last().unwrap();
    assert_eq!(
        (last.name.as_str(), &last.data["state"]),
        ("state", &json!("done"))
    );
    let points: Vec<_> = events
        .iter()
        .filter(|event| event.data["point"].is_array())
        .collect();
    // The last messages may end after the last point.
    assert!((18..=20).contains(&points.len()), "{}", points.len());
    for (point, number) in points.iter().zip(1..) {
        assert_eq!(point.id, number.to_string());
    }
    let shown = admin.get(&format!("/api/runs/{run}")).json();
    assert_eq!(shown["state"], "done");
    assert_eq!(shown["settings"]["messages"], 200_000);
    assert_eq!(
        shown["progress"],
        json!({ "started": 200_100, "total": 200_100 })
    );
    assert!(
        shown["outcome"]["statistics"]["latency"]["p99_ns"]
            .as_u64()
            .unwrap()
            > 0
    );
    assert_eq!(shown["summary"]["p99_ns"], shown["outcome"]["p99_ns"]);
    let series = admin.get(&format!("/api/runs/{run}/series")).json();
    let rows = series["rows"].as_array().unwrap();
    assert_eq!(rows.len(), points.len());
    assert_eq!(rows[7], points[7].data["point"]);
    assert_eq!(
        series["columns"][0],
        json!({ "name": "at_ns", "unit": "ns" })
    );
    assert_eq!(
        series["columns"].as_array().unwrap().len(),
        rows[0].as_array().unwrap().len()
    );
}

#[test]
fn a_stream_goes_on_where_it_was_cut_off() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let run = admin.start_run("first", 100_000);
    admin.await_end(run);
    let ids = |seen| -> Vec<String> {
        let events = admin
            .follow(run, seen)
            .filter(|event| event.name == "progress");
        events.map(|event| event.id).collect()
    };
    let all = ids(0);
    assert_eq!(ids(7), all[7..]);
    assert_eq!(ids(all.len()), [] as [String; 0]);
    assert_eq!(ids(1_000_000), [] as [String; 0]);
}

#[test]
fn runs_wait_their_turn_and_are_cancelled() {
    let harness = start(|options| options.parallel = 1);
    let admin = harness.admin();
    let first = admin.start_run("endless", ENDLESS);
    let mut events = admin.follow(first, 0);
    assert!(events.any(|event| {
        event.data["started"]
            .as_u64()
            .is_some_and(|count| count > 0)
    }));
    let second = admin.start_run("waits", 1_000);
    let third = admin.start_run("goes", 1_000);
    let listed = admin.get("/api/runs?state=queued").json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 2);
    let progress = admin.get("/api/runs?state=running").json()["runs"][0]["progress"].clone();
    assert!(progress["started"].as_u64().unwrap() > 0, "{progress}");
    let delete = admin.delete(&format!("/api/runs/{first}"));
    assert_eq!((delete.status, delete.code().as_str()), (409, "not_ended"));
    for run in [second, first] {
        assert_eq!(
            admin
                .post(&format!("/api/runs/{run}/cancel"), &json!({}))
                .status,
            204
        );
    }
    assert_eq!(events.last().unwrap().data["state"], "cancelled");
    assert_eq!(admin.await_end(third), "done");
    assert_eq!(admin.await_end(second), "cancelled");
    let again = admin.post(&format!("/api/runs/{first}/cancel"), &json!({}));
    assert_eq!((again.status, again.code().as_str()), (409, "ended"));
    assert_eq!(admin.delete(&format!("/api/runs/{first}")).status, 204);
    assert_eq!(admin.get(&format!("/api/runs/{first}")).status, 404);
    let log = admin.get(&format!("/api/logs?run={second}")).text();
    assert!(
        log.contains("admin cancelled run") && log.contains("was queued: waits"),
        "{log}"
    );
}

#[test]
fn as_many_run_at_once_as_were_allowed() {
    let harness = start(|options| options.parallel = 2);
    let admin = harness.admin();
    let runs = [1, 2, 3].map(|number| admin.start_run(&format!("run {number}"), ENDLESS));
    for run in &runs[..2] {
        let mut events = admin.follow(*run, 0);
        assert!(events.any(|event| event.data["state"] == "running"));
    }
    let state = |run: i64| admin.get(&format!("/api/runs/{run}")).json()["state"].clone();
    assert_eq!(runs.map(state), ["running", "running", "queued"]);
    admin.post(&format!("/api/runs/{}/cancel", runs[1]), &json!({}));
    assert!(
        admin
            .follow(runs[2], 0)
            .any(|event| event.data["state"] == "running")
    );
    let harness = harness.restart();
    let admin = harness.admin();
    let state = |run: i64| admin.get(&format!("/api/runs/{run}")).json()["state"].clone();
    assert_eq!(runs.map(state), ["interrupted", "cancelled", "interrupted"]);
}

#[test]
fn a_stop_interrupts_runs_and_keeps_points_and_the_queue() {
    let harness = start(|options| options.parallel = 1);
    let admin = harness.admin();
    let settings = json!({ "messages": ENDLESS, "warmup": 0, "points": 10_000,
        "card": { "card_entries": 64 } });
    let body = json!({ "name": "long", "settings": settings });
    let first = admin.post("/api/runs", &body).json()["id"]
        .as_i64()
        .unwrap();
    let second = admin.start_run("next", 1_000);
    assert!(
        admin
            .follow(first, 0)
            .any(|event| event.data["started"].as_u64() > Some(1_000_000))
    );
    let harness = harness.restart();
    let admin = harness.admin();
    let shown = admin.get(&format!("/api/runs/{first}")).json();
    assert_eq!(shown["state"], "interrupted");
    assert!(shown["progress"]["started"].as_u64().unwrap() > 1_000_000);
    assert_eq!(shown["outcome"]["is_interrupted"], true);
    assert_eq!(admin.await_end(second), "done");
}

#[test]
fn wrong_settings_name_their_field() {
    let harness = start(|_| ());
    let admin = harness.admin();
    for (settings, field) in [
        (json!({ "messages": 0 }), "settings.messages"),
        (
            json!({ "card": { "card_entries": 3 } }),
            "settings.card.card_entries",
        ),
        (
            json!({ "card": { "policy": "arc" } }),
            "settings.card.policy",
        ),
        (json!({ "points": 10_001 }), "settings.points"),
    ] {
        let reply = admin.post("/api/runs", &json!({ "name": "x", "settings": settings }));
        assert_eq!(
            (reply.status, reply.field().as_str()),
            (422, field),
            "{reply:?}"
        );
    }
    let form = admin.get("/api/form").json();
    for preset in form["presets"].as_array().unwrap() {
        let mut settings = preset["settings"].clone();
        settings["messages"] = json!(1_000);
        settings["warmup"] = json!(0);
        let reply = admin.post("/api/runs", &json!({ "name": "x", "settings": settings }));
        assert_eq!(reply.status, 201, "{preset}: {reply:?}");
        assert_eq!(
            admin.await_end(reply.json()["id"].as_i64().unwrap()),
            "done"
        );
    }
}

#[test]
fn runs_are_exported_in_every_format() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let run = admin.start_run("first", 50_000);
    admin.await_end(run);
    let export = |format: &str| admin.get(&format!("/api/runs/{run}/export?format={format}"));
    let csv = export("csv");
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    let json = export("json").json();
    let rows = json["series"]["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    assert_eq!(csv.text().lines().count(), 1 + rows.len());
    assert_eq!(json["name"], "first");
    let parquet = export("parquet");
    assert!(parquet.body.starts_with(b"PAR1") && parquet.body.ends_with(b"PAR1"));
    assert_eq!(export("exe").status, 400);
}

#[test]
fn pages_of_runs_follow_each_other() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let runs: Vec<_> = (0..5)
        .map(|number| admin.start_run(&format!("run {number}"), 1_000))
        .collect();
    let mut seen = Vec::new();
    let mut path = "/api/runs?limit=2".to_owned();
    loop {
        let page = admin.get(&path).json();
        let ids = page["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["id"].as_i64().unwrap());
        seen.extend(ids);
        let Some(next) = page["next"].as_i64() else {
            break;
        };
        path = format!("/api/runs?limit=2&before={next}");
    }
    seen.reverse();
    assert_eq!(seen, runs);
}

#[test]
fn runs_are_found_by_words_and_ordered_by_settings_and_figures() {
    let harness = start(|_| ());
    let admin = harness.admin();
    for (name, pairs) in [("Zipf small", 64), ("zipf large", 8_192), ("other", 512)] {
        let settings = json!({
            "messages": 20_000,
            "warmup": 0,
            "workload": { "population": { "queue_pairs": pairs } },
        });
        let run = admin.post("/api/runs", &json!({ "name": name, "settings": settings }));
        assert_eq!(run.status, 201, "{run:?}");
        admin.await_end(run.json()["id"].as_i64().unwrap());
    }
    let names = |parameters: &str| -> Vec<String> {
        let page = admin.get(&format!("/api/runs?{parameters}")).json();
        let runs = page["runs"].as_array().unwrap().clone();
        let name = |run: &Value| run["name"].as_str().unwrap().to_owned();
        runs.iter().map(name).collect()
    };
    assert_eq!(names("text=ZIPF"), ["zipf large", "Zipf small"]);
    assert_eq!(names("text=zipf+small"), ["Zipf small"]);
    assert_eq!(names("text=%231+admin"), ["Zipf small"]);
    assert_eq!(names("text=%25"), [""; 0]);
    assert_eq!(
        names("order=queue_pairs"),
        ["zipf large", "other", "Zipf small"]
    );
    assert_eq!(
        names("order=name&rising=true"),
        ["other", "zipf large", "Zipf small"]
    );
    assert_eq!(names("rising=true")[0], "Zipf small");
    assert_eq!(names("order=p99_ns&text=zipf").len(), 2);
    let first = admin.get("/api/runs?order=queue_pairs&limit=2").json();
    assert_eq!(first["next"], 2);
    assert_eq!(first["runs"][0]["brief"]["queue_pairs"], 8_192);
    assert_eq!(names("order=queue_pairs&limit=2&offset=2"), ["Zipf small"]);
    let wrong = admin.get("/api/runs?order=id%3B");
    assert_eq!((wrong.status, wrong.field().as_str()), (400, "order"));
    let negative = admin.get("/api/runs?offset=-1");
    assert_eq!(
        (negative.status, negative.field().as_str()),
        (422, "offset")
    );
}

/// Puts a dataset of format `trace` where imports put it, and returns its number.
fn import(harness: &Harness, format: &str, text: Option<&[u8]>) -> i64 {
    let folder = harness.folder.path().join("console");
    let console = rusqlite::Connection::open(folder.join("console.db")).unwrap();
    let insert = "INSERT INTO datasets
        (name, format, row_count, columns, bytes, created_ms, by_name)
        VALUES ('t', ?1, 0, '[]', 0, 0, 'admin')";
    console.execute(insert, [format]).unwrap();
    let id = console.last_insert_rowid();
    if let Some(text) = text {
        std::fs::write(folder.join(format!("traces/{id}")), text).unwrap();
    }
    id
}

fn start_of_trace(admin: &Client, trace: i64, settings: &Value) -> support::Reply {
    admin.post(
        "/api/runs",
        &json!({ "name": "t", "settings": settings, "trace": trace }),
    )
}

#[test]
fn a_trace_is_the_input_of_a_run() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let mut workload = Workload::drawn(&WorkloadSettings::default()).unwrap();
    let messages = (0..5_000).filter_map(|_| workload.next_message());
    let recording = Recording::of(&Population::default().tokens(), messages);
    let mut text = Vec::new();
    recording.write(&mut text).unwrap();
    let trace = import(&harness, "trace", Some(&text));
    let settings = json!({ "warmup": 100, "points": 10, "arrival": { "name": "recorded" } });
    let reply = start_of_trace(&admin, trace, &settings);
    let run = reply.json()["id"].as_i64().unwrap();
    assert_eq!(admin.await_end(run), "done");
    let shown = admin.get(&format!("/api/runs/{run}")).json();
    assert_eq!(shown["progress"]["total"], 5_000);
    assert!(
        shown["outcome"]["statistics"]["messages"].as_u64().unwrap() >= 4_900,
        "{shown}"
    );
    // Without a trace there are no recorded times.
    let reply = admin.post("/api/runs", &json!({ "name": "t", "settings": settings }));
    assert_eq!(
        (reply.status, reply.field().as_str()),
        (422, "settings.arrival.name")
    );
}

#[test]
fn a_wrong_trace_fails_its_run_in_words() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let csv = import(&harness, "csv", None);
    let missing = import(&harness, "trace", None);
    for trace in [csv, missing, 999] {
        let reply = start_of_trace(&admin, trace, &json!({}));
        assert_eq!(
            (reply.status, reply.field().as_str()),
            (422, "trace"),
            "{reply:?}"
        );
    }
    let nonsense = import(&harness, "trace", Some(b"<script>\n"));
    let short = import(
        &harness,
        "trace",
        Some(b"farcore-card-trace 1\n0 read 04070000\n"),
    );
    for (trace, words) in [(nonsense, "line 1"), (short, "warmup")] {
        let run = start_of_trace(&admin, trace, &json!({})).json()["id"]
            .as_i64()
            .unwrap();
        assert_eq!(admin.await_end(run), "failed");
        let shown = admin.get(&format!("/api/runs/{run}")).json();
        assert!(shown["error"].as_str().unwrap().contains(words), "{shown}");
        assert!(
            admin
                .get(&format!("/api/logs?level=error&run={run}"))
                .text()
                .contains(words)
        );
    }
}
