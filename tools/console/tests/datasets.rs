//! Datasets over HTTP: import, preview, queries, saving, export, what roles may do, odd requests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::Write;

use farcore_card::trace::Recording;
use farcore_card::workload::{Population, Workload, WorkloadSettings};
use serde_json::{Value, json};

use self::support::{Client, Reply, connect, read_reply, start};

const CSV: &[u8] = b"policy,entries,hit_ratio\nlru,100,0.5\nlru,200,0.75\nsieve,100,0.625\n";

fn upload(client: &Client, parameters: &str, bytes: &[u8]) -> Reply {
    let path = format!("/api/datasets?{parameters}");
    let kind = "Content-Type: application/octet-stream\r\n";
    client.send("POST", &path, kind, bytes)
}

fn id(reply: &Reply) -> i64 {
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.json()["id"].as_i64().unwrap()
}

#[test]
fn a_file_is_imported_asked_saved_exported_and_deleted() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let viewer = harness.user(&admin, "vera", "viewer");
    let made = upload(&admin, "name=sweep&format=csv", CSV);
    let dataset = made.json();
    let sweep = id(&made);
    assert_eq!(
        (&dataset["rows"], &dataset["by"]),
        (&json!(3), &json!("admin"))
    );
    assert_eq!(
        viewer.get("/api/datasets").json(),
        json!({ "datasets": [dataset] })
    );
    let shown = viewer.get(&format!("/api/datasets/{sweep}"));
    assert_eq!(shown.json(), dataset);
    let preview = viewer.get(&format!("/api/datasets/{sweep}/preview?limit=1&offset=1"));
    assert_eq!(preview.json()["rows"], json!([["lru", 200, 0.75]]));
    assert_eq!(preview.json()["more"], json!(true));

    let query = json!({
        "source": sweep,
        "derive": [{"name": "misses", "expression": "1 - hit_ratio"}],
        "group": ["policy"],
        "aggregates": [{"function": "mean", "column": "misses", "name": "mean"}],
        "order": [{"column": "mean", "descending": true}],
    });
    let answer = viewer.post("/api/query", &query);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let expected = json!([["lru", 0.375], ["sieve", 0.375]]);
    assert_eq!(answer.json()["rows"], expected, "{answer:?}");

    let body = json!({ "name": "means", "query": query });
    assert_eq!(viewer.post("/api/query/save", &body).status, 403);
    let means = id(&admin.post("/api/query/save", &body));
    let preview = viewer.get(&format!("/api/datasets/{means}/preview"));
    assert_eq!(preview.json()["rows"], expected);

    let joined = json!({"source": sweep, "join": {"dataset": means, "left": "policy", "right": "policy", "kind": "left"}});
    let joined = viewer.post("/api/query", &joined).json();
    assert_eq!(joined["columns"][4]["name"], "joined.mean");
    for format in ["csv", "json", "parquet"] {
        let path = format!("/api/query/export?format={format}");
        let file = viewer.post(&path, &json!({ "source": sweep }));
        assert_eq!(file.status, 200, "{file:?}");
        let disposition = file.header("content-disposition").unwrap();
        assert!(disposition.starts_with(&format!("attachment; filename=\"sweep.{format}\"")));
        let again = upload(&admin, &format!("name=again&format={format}"), &file.body);
        let again = id(&again);
        let rows = |id| viewer.get(&format!("/api/datasets/{id}/preview")).json()["rows"].clone();
        assert_eq!(rows(again), rows(sweep), "{format}");
    }
    assert_eq!(viewer.delete(&format!("/api/datasets/{sweep}")).status, 403);
    assert_eq!(admin.delete(&format!("/api/datasets/{sweep}")).status, 204);
    let gone = viewer.post("/api/query", &json!({ "source": sweep }));
    assert_eq!((gone.status, gone.code().as_str()), (404, "not_found"));
    let log = admin.get("/api/logs?kind=audit").text();
    for words in [
        "made dataset 1, \\\\\\\"sweep\\\\\\\", of 3 rows from csv",
        "deleted dataset 1",
    ] {
        let plain = words.replace("\\\\\\\"", "\\\"");
        assert!(log.contains(&plain), "{plain}: {log}");
    }
}

#[test]
fn datasets_stay_over_a_restart() {
    let harness = start(|_| ());
    let made = id(&upload(&harness.admin(), "name=a&format=csv", CSV));
    let harness = harness.restart();
    let preview = harness
        .admin()
        .get(&format!("/api/datasets/{made}/preview"));
    assert_eq!(preview.json()["rows"].as_array().unwrap().len(), 3);
}

#[test]
fn a_run_becomes_a_dataset() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let run = admin.start_run("first", 2_000);
    assert_eq!(admin.await_end(run), "done");
    let series = admin.get(&format!("/api/runs/{run}/series")).json();
    let made = admin.post(
        &format!("/api/runs/{run}/dataset"),
        &json!({ "name": "of a run" }),
    );
    let dataset = made.json();
    let query = json!({ "source": id(&made), "limit": 1_000 });
    let rows = admin.post("/api/query", &query).json()["rows"].clone();
    assert_eq!(dataset["format"], "run");
    let (rows, points) = (rows.as_array().unwrap(), series["rows"].as_array().unwrap());
    assert_eq!(rows.len(), points.len());
    let numbers = |row: &Value| -> Vec<f64> {
        row.as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_f64().unwrap())
            .collect()
    };
    for (row, point) in rows.iter().zip(points) {
        assert_eq!(numbers(row), numbers(point));
    }
    let absent = admin.post("/api/runs/999/dataset", &json!({ "name": "x" }));
    assert_eq!(absent.status, 404);
}

#[test]
fn an_imported_trace_is_the_input_of_a_run() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let mut workload = Workload::drawn(&WorkloadSettings::default()).unwrap();
    let messages = (0..2_000).filter_map(|_| workload.next_message());
    let recording = Recording::of(&Population::default().tokens(), messages);
    let mut text = Vec::new();
    recording.write(&mut text).unwrap();
    let trace = id(&upload(&admin, "name=recorded&format=trace", &text));
    let settings = json!({ "warmup": 100, "points": 10 });
    let body = json!({ "name": "replayed", "settings": settings, "trace": trace });
    let run = admin.post("/api/runs", &body).json()["id"]
        .as_i64()
        .unwrap();
    assert_eq!(admin.await_end(run), "done");
    let query = json!({"source": trace, "aggregates": [{"function": "count", "name": "n"}]});
    assert_eq!(
        admin.post("/api/query", &query).json()["rows"],
        json!([[2_000]])
    );
}

#[test]
fn files_that_are_too_long_are_refused_by_head_and_by_piece() {
    let harness = start(|options| options.import_bytes_max = 1_000);
    let admin = harness.admin();
    let long = vec![b'1'; 200_000];
    let reply = upload(&admin, "name=a&format=csv", &long);
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (413, "file_too_long")
    );
    assert!(reply.text().contains("longer than 1000 bytes"), "{reply:?}");
    // Without a length, pieces are counted.
    let mut stream = connect(harness.address());
    let head = admin.head(
        "POST",
        "/api/datasets?name=a&format=csv",
        "Transfer-Encoding: chunked\r\n\r\n",
    );
    stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..20 {
        let piece = [b"64\r\n", &long[..100], b"\r\n"].concat();
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    let reply = read_reply(stream).unwrap();
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (413, "file_too_long")
    );
    let uploads = harness.folder.path().join("console/uploads");
    assert_eq!(std::fs::read_dir(uploads).unwrap().count(), 0);
    assert_eq!(admin.get("/api/datasets").json(), json!({ "datasets": [] }));
}

#[test]
fn odd_requests_are_refused_in_words() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let long = format!("name={}&format=csv", "x".repeat(121));
    for (parameters, status, code) in [
        ("format=csv", 400, "malformed"),
        ("name=a&format=", 400, "malformed"),
        ("name=a&format=exe", 400, "malformed"),
        ("name=a&format=csv&path=/etc/passwd", 400, "malformed"),
        ("name=a&format=csv&header=maybe", 400, "malformed"),
        ("name=%20&format=csv", 422, "invalid"),
        ("name=a&format=parquet", 422, "broken_file"),
        (&long, 422, "invalid"),
    ] {
        let reply = upload(&admin, parameters, CSV);
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (status, code),
            "{reply:?}"
        );
    }
    for body in [
        json!({}),
        json!({ "source": "1" }),
        json!({ "source": 1, "sql": "SELECT 1" }),
        json!({ "source": 1, "filter": [{ "column": "a", "operator": "OR", "value": 1 }] }),
        json!({ "source": 1, "limit": -1 }),
        json!({ "source": 1, "aggregates": [{ "function": "load_extension", "name": "x" }] }),
    ] {
        let reply = admin.post("/api/query", &body);
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (400, "malformed"),
            "{body}: {reply:?}"
        );
    }
    for path in [
        "/api/datasets/x",
        "/api/datasets/-1",
        "/api/datasets/1%2f..%2fusers",
    ] {
        assert_eq!(admin.get(path).status, 400, "{path}");
    }
    let export = admin.post("/api/query/export?format=../../x", &json!({ "source": 1 }));
    assert_eq!(export.status, 400);
}

#[test]
fn names_that_attack_stay_names() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let file =
        b"\"<script>alert(1)</script>\",\"=HYPERLINK(\"\"x\"\")\"\n<img onerror=x>,@SUM(A1)\n";
    let name = "..%2F..%2F%3Cscript%3E%22%0D%0ASet-Cookie%3A%20x";
    let made = upload(&admin, &format!("name={name}&format=csv"), file);
    let dataset = made.json();
    assert_eq!(dataset["name"], "../../<script>\"  Set-Cookie: x");
    let path = "/api/query/export?format=csv";
    let file = admin.post(path, &json!({ "source": id(&made) }));
    assert_eq!(file.header("set-cookie"), None);
    assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
    let disposition = file.header("content-disposition").unwrap();
    assert!(
        disposition.starts_with("attachment; filename=\"_______script____Set-Cookie"),
        "{disposition}"
    );
    assert!(file.text().contains("'@SUM(A1)") && file.text().contains("'=HYPERLINK"));
}
