//! Which role may call which route: the table of expectations must name every route.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use farcore_console::{Access, routes};
use serde_json::json;

use self::support::{Client, Harness, PASSWORD, Reply, start};

use Access::{Administrator, Anyone, Operator, Viewer};

/// What every route needs. A new route fails the test until it has a line here.
const EXPECTED: &[(&str, &str, Access)] = &[
    ("GET", "/health", Anyone),
    ("GET", "/api/session", Anyone),
    ("POST", "/api/session", Anyone),
    ("DELETE", "/api/session", Viewer),
    ("POST", "/api/password", Viewer),
    ("GET", "/api/users", Administrator),
    ("POST", "/api/users", Administrator),
    ("PATCH", "/api/users/{id}", Administrator),
    ("DELETE", "/api/users/{id}", Administrator),
    ("GET", "/api/form", Viewer),
    ("GET", "/api/runs", Viewer),
    ("POST", "/api/runs", Operator),
    ("GET", "/api/runs/{id}", Viewer),
    ("DELETE", "/api/runs/{id}", Operator),
    ("POST", "/api/runs/{id}/cancel", Operator),
    ("GET", "/api/runs/{id}/series", Viewer),
    ("GET", "/api/runs/{id}/events", Viewer),
    ("GET", "/api/runs/{id}/export", Viewer),
    ("POST", "/api/runs/{id}/dataset", Operator),
    ("GET", "/api/fits", Viewer),
    ("POST", "/api/fits", Operator),
    ("GET", "/api/fits/{id}", Viewer),
    ("DELETE", "/api/fits/{id}", Operator),
    ("POST", "/api/fits/{id}/cancel", Operator),
    ("GET", "/api/fits/{id}/settings", Viewer),
    ("GET", "/api/fits/{id}/export", Viewer),
    ("GET", "/api/datasets", Viewer),
    ("POST", "/api/datasets", Operator),
    ("GET", "/api/datasets/{id}", Viewer),
    ("DELETE", "/api/datasets/{id}", Operator),
    ("GET", "/api/datasets/{id}/preview", Viewer),
    ("POST", "/api/query", Viewer),
    ("POST", "/api/query/save", Operator),
    ("POST", "/api/query/export", Viewer),
    ("GET", "/api/logs", Viewer),
    ("GET", "/api/live", Viewer),
    ("GET", "/api/live/events", Viewer),
];

#[test]
fn the_table_names_every_route() {
    let line = |method: &str, path: &str, access| format!("{method} {path} {access:?}");
    let expected = EXPECTED
        .iter()
        .map(|&(method, path, access)| line(method, path, access));
    let mut expected: Vec<_> = expected.collect();
    let found = routes();
    let found = found
        .iter()
        .map(|one| line(one.method.as_str(), one.path, one.access));
    let mut found: Vec<_> = found.collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

/// Sends a request that has nothing wrong but its contents.
fn call(client: &Client, method: &str, path: &str) -> Reply {
    let path = path.replace("{id}", "999999");
    match method {
        "GET" | "DELETE" => client.send(method, &path, "", b""),
        _ => client.json(method, &path, &json!({})),
    }
}

/// Users of every role, and the least access that each has.
fn callers(harness: &Harness) -> [(&'static str, Client, usize); 4] {
    let admin = harness.admin();
    let viewer = harness.user(&admin, "vera", "viewer");
    let operator = harness.user(&admin, "otto", "operator");
    [
        ("signed out", harness.stranger(), 0),
        ("vera", viewer, 1),
        ("otto", operator, 2),
        ("admin", admin, 3),
    ]
}

fn rank(access: Access) -> usize {
    match access {
        Anyone => 0,
        Viewer => 1,
        Operator => 2,
        Administrator => 3,
    }
}

#[test]
fn every_route_is_for_its_roles_alone() {
    let harness = start(|_| ());
    let mut callers = callers(&harness);
    for &(method, path, access) in EXPECTED {
        for (name, client, has) in &mut callers {
            let reply = call(client, method, path);
            let shown = format!("{name}: {method} {path}: {reply:?}");
            if *has >= rank(access) {
                let is_own = path == "/api/session" && *has == 0;
                assert!(is_own || reply.status != 401, "{shown}");
                assert_ne!(reply.status, 403, "{shown}");
                assert!(reply.status < 500, "{shown}");
            } else if *has == 0 {
                assert_eq!(
                    (reply.status, reply.code().as_str()),
                    (401, "not_signed_in"),
                    "{shown}"
                );
            } else {
                assert_eq!(
                    (reply.status, reply.code().as_str()),
                    (403, "forbidden"),
                    "{shown}"
                );
            }
            if (method, path) == ("DELETE", "/api/session") && *has > 0 {
                *client = harness.sign_in(name, PASSWORD);
            }
        }
    }
}

#[test]
fn changes_need_the_token_of_their_session() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let other = harness.admin();
    let changes = EXPECTED
        .iter()
        .filter(|&&(method, _, access)| method != "GET" && access != Anyone);
    for &(method, path, _) in changes {
        let wrong = "x".repeat(43);
        for csrf in [None, Some(String::new()), Some(wrong), other.csrf.clone()] {
            let client = Client {
                csrf,
                ..admin.clone()
            };
            let reply = call(&client, method, path);
            let shown = format!("{method} {path} {client:?}: {reply:?}");
            assert_eq!(
                (reply.status, reply.code().as_str()),
                (403, "wrong_csrf"),
                "{shown}"
            );
        }
    }
    assert_eq!(admin.get("/api/session").status, 200);
}

#[test]
fn a_changed_role_counts_at_once() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let operator = harness.user(&admin, "otto", "operator");
    let id = operator.get("/api/session").json()["user"]["id"]
        .as_i64()
        .unwrap();
    operator.start_run("mine", 1_000);
    let path = format!("/api/users/{id}");
    assert_eq!(
        admin
            .json("PATCH", &path, &json!({ "role": "viewer" }))
            .status,
        200
    );
    assert_eq!(operator.get("/api/session").status, 401);
    let viewer = harness.sign_in("otto", PASSWORD);
    let new = json!({ "name": "x", "settings": {} });
    assert_eq!(viewer.post("/api/runs", &new).code(), "forbidden");
    assert_eq!(viewer.get("/api/logs?kind=audit").code(), "forbidden");
    let entries = viewer.get("/api/logs").json()["entries"].clone();
    let kinds: Vec<_> = entries
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["kind"].clone())
        .collect();
    assert!(
        !kinds.is_empty() && !kinds.contains(&json!("audit")),
        "{kinds:?}"
    );
}

#[test]
fn the_last_administrator_stays() {
    let harness = start(|_| ());
    let admin = harness.admin();
    for (method, body) in [
        ("PATCH", json!({ "role": "viewer" })),
        ("PATCH", json!({ "disabled": true })),
        ("DELETE", json!(null)),
    ] {
        let reply = admin.json(method, "/api/users/1", &body);
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (409, "last_administrator"),
            "{reply:?}"
        );
    }
    harness.user(&admin, "anna", "administrator");
    assert_eq!(admin.delete("/api/users/1").status, 204);
    assert_eq!(admin.get("/api/session").status, 401);
}
