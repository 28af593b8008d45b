//! Searches for what fits: progress, answers, points as runs, export, and what a stop leaves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::support::{Client, start};

/// Longer than any search of these tests takes.
const LONG: Duration = Duration::from_secs(300);
/// Between two looks at a search. Searches have a low priority: looking at them all the time would
/// take the processor from them.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks at a search until it is as wanted.
fn awaited(client: &Client, id: i64, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let search = client.get(&format!("/api/fits/{id}")).json();
        if wanted(&search) {
            return search;
        }
        let state = search["state"].as_str().unwrap().to_owned();
        assert!(["queued", "running"].contains(&&*state), "{search}");
        assert!(begun.elapsed() < LONG, "{search}");
        thread::sleep(PAUSE);
    }
}

fn begin(client: &Client, body: &Value) -> i64 {
    let reply = client.post("/api/fits", body);
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.json()["id"].as_i64().unwrap()
}

/// A search of a moment: the length of its runs says nothing about a card.
fn small() -> Value {
    json!({
        "policies": ["lru", "adaptive"],
        "repeats": 2,
        "settings": {
            "messages": 2_000,
            "warmup": 5_000,
            "workload": { "pattern": { "name": "uniform" }, "population": { "regions": 64 } }
        }
    })
}

/// A search that takes longer than any test.
fn endless() -> Value {
    json!({ "settings": { "messages": 64_000_000 }, "repeats": 100 })
}

#[test]
fn a_search_goes_from_the_queue_to_its_answers() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let id = begin(&admin, &small());
    let search = awaited(&admin, id, |search| search["state"] == "done");
    let curves = search["curves"].as_array().unwrap();
    assert_eq!(curves.len(), 2);
    for curve in curves {
        assert!(curve["points"].as_array().unwrap().len() >= 9, "{curve}");
        assert!(curve["answer"]["fits"].is_u64(), "{curve}");
    }
    assert_eq!(search["progress"]["done"], search["progress"]["total"]);
    assert_eq!(search["settings"]["kept"], 0.95);
    // A run that is not steady is extended to at most 16 times its length.
    assert_eq!(search["settings"]["messages_max"], 32_000);
    // A point is the settings of a run, which is taken.
    let path = format!("/api/fits/{id}/settings?policy=adaptive&count=2048");
    let settings = admin.get(&path).json();
    assert_eq!(settings["workload"]["population"]["queue_pairs"], 2_048);
    assert_eq!(settings["card"]["thresholds"]["adaptive"], true);
    let run = json!({ "name": "a point", "settings": settings });
    assert_eq!(admin.post("/api/runs", &run).status, 201);
    let wrong = admin.get(&format!("/api/fits/{id}/settings?policy=lru&count=99999"));
    assert_eq!((wrong.status, wrong.field().as_str()), (422, "count"));
    let csv = admin
        .get(&format!("/api/fits/{id}/export?format=csv"))
        .text();
    let points = curves
        .iter()
        .map(|one| one["points"].as_array().unwrap().len());
    assert_eq!(csv.lines().count(), 1 + points.sum::<usize>(), "{csv}");
    assert!(csv.starts_with("policy,count,messages_s,"), "{csv}");
    let whole = admin.get(&format!("/api/fits/{id}/export?format=json"));
    assert_eq!(whole.json()["curves"], search["curves"]);
    let listed = admin.get("/api/fits").json();
    assert_eq!(listed["fits"].as_array().unwrap().len(), 1);
    assert_eq!(admin.delete(&format!("/api/fits/{id}")).status, 204);
    assert_eq!(admin.get(&format!("/api/fits/{id}")).status, 404);
}

#[test]
fn searches_wait_their_turn_and_are_cancelled() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let first = begin(&admin, &endless());
    awaited(&admin, first, |search| search["state"] == "running");
    let second = begin(&admin, &small());
    let third = begin(&admin, &small());
    let refused = admin.delete(&format!("/api/fits/{first}"));
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (409, "not_ended")
    );
    for id in [third, first] {
        let path = format!("/api/fits/{id}/cancel");
        assert_eq!(admin.post(&path, &json!({})).status, 204);
    }
    awaited(&admin, first, |search| search["state"] == "cancelled");
    awaited(&admin, second, |search| search["state"] == "done");
    awaited(&admin, third, |search| search["state"] == "cancelled");
}

#[test]
fn a_stop_interrupts_a_search_and_a_later_one_goes_on() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let first = begin(&admin, &endless());
    awaited(&admin, first, |search| search["state"] == "running");
    let second = begin(&admin, &small());
    let harness = harness.restart();
    let admin = harness.admin();
    awaited(&admin, first, |search| search["state"] == "interrupted");
    awaited(&admin, second, |search| search["state"] == "done");
}

#[test]
fn wrong_searches_name_their_field() {
    let harness = start(|_| ());
    let admin = harness.admin();
    for (body, field) in [
        (json!({ "settings": {}, "kept": 3 }), "kept"),
        (json!({ "settings": {}, "repeats": 0 }), "repeats"),
        (json!({ "settings": {}, "policies": [] }), "policies"),
        (
            json!({ "settings": { "card": { "card_entries": 3 } } }),
            "settings.card.card_entries",
        ),
        (
            json!({ "settings": { "arrival": { "name": "open", "messages_s": 5e6 } } }),
            "settings.arrival.name",
        ),
        (
            json!({ "settings": { "messages": 65_000_000 } }),
            "settings.messages",
        ),
        (
            json!({ "settings": {}, "messages_max": 65_000_000 }),
            "messages_max",
        ),
        (
            json!({ "settings": { "messages": 10_000 }, "messages_max": 9_999 }),
            "messages_max",
        ),
    ] {
        let reply = admin.post("/api/fits", &body);
        assert_eq!(
            (reply.status, reply.field().as_str()),
            (422, field),
            "{body}"
        );
    }
    let unknown = json!({ "settings": {}, "policies": ["belady"] });
    assert_eq!(admin.post("/api/fits", &unknown).code(), "malformed");
}
