//! Hostile requests: injection, foreign pages, stolen and fixed sessions, odd bodies and paths.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use self::support::{Client, PASSWORD, connect, read_reply, start};

const NASTY: &[&str] = &[
    "'; DROP TABLE users; --",
    "\" OR 1=1 --",
    "x'); DELETE FROM events; --",
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "{{7*7}}${7*7}",
    "../../../../etc/passwd",
    "%00%0a%0d",
    "run* OR facets:kindaudit",
    "NEAR(a b, 2) AND message:*",
    "\"unclosed",
    "()^-:*",
];

/// More events than a stream sends until it looks at its session.
const EVENTS_MAX: usize = 2_000;

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Whether the console still has its tables and its user.
fn is_whole(admin: &Client) {
    assert!(
        admin
            .get("/api/users")
            .text()
            .contains("\"name\":\"admin\"")
    );
    assert!(
        !admin.get("/api/logs").json()["entries"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert_eq!(admin.get("/health").status, 200);
}

#[test]
fn text_is_data_in_every_field() {
    let harness = start(|_| ());
    let admin = harness.admin();
    for (number, nasty) in NASTY.iter().enumerate() {
        let reply = admin.post(
            "/api/runs",
            &json!({ "name": nasty, "settings": { "messages": 1 } }),
        );
        assert_eq!(reply.status, 201, "{reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let run = reply.json();
        assert_eq!(run["name"], *nasty);
        admin.await_end(run["id"].as_i64().unwrap());
        for path in ["/api/runs", "/api/logs"] {
            let reply = admin.get(path);
            assert_eq!(reply.header("content-type"), Some("application/json"));
            assert!(
                reply
                    .json()
                    .to_string()
                    .contains(&json!(nasty).to_string()[1..5]),
                "{path}"
            );
        }
        let user = json!({ "name": nasty, "role": "viewer", "password": PASSWORD });
        let reply = admin.post("/api/users", &user);
        assert_eq!(reply.status, 201, "{reply:?}");
        assert_eq!(reply.json()["name"], *nasty);
        let wrong = json!({ "name": format!("{nasty}{number}"), "password": nasty });
        assert_eq!(
            harness.stranger().post("/api/session", &wrong).status,
            if number < 15 { 401 } else { 429 }
        );
        let export = format!("/api/runs/{}/export?format=csv", run["id"]);
        let place = admin.get(&export);
        let place = place.header("content-disposition").unwrap();
        assert_eq!(
            place,
            format!("attachment; filename=\"run-{}.csv\"", run["id"])
        );
    }
    is_whole(&admin);
}

#[test]
fn parameters_are_values_and_never_expressions() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let viewer = harness.user(&admin, "vera", "viewer");
    for nasty in NASTY {
        let text = percent(nasty);
        let reply = viewer.get(&format!("/api/logs?text={text}"));
        assert_eq!(reply.status, 200, "{nasty}: {reply:?}");
        let entries = reply.json()["entries"].clone();
        let is_audit = |entry: &Value| entry["kind"] == "audit";
        assert!(!entries.as_array().unwrap().iter().any(is_audit), "{nasty}");
        for path in [
            "/api/logs?run=",
            "/api/logs?before=",
            "/api/runs?state=",
            "/api/runs?limit=",
        ] {
            let reply = viewer.get(&format!("{path}{text}"));
            assert_eq!(
                (reply.status, reply.code().as_str()),
                (400, "malformed"),
                "{path}{nasty}"
            );
        }
        for path in ["/api/runs/", "/api/users/"] {
            let path = format!("{path}{text}");
            let reply = admin.send("DELETE", &path, "", b"");
            assert!(matches!(reply.status, 400 | 404 | 405), "{path}: {reply:?}");
        }
    }
    for limit in ["0", "-1", "501"] {
        let reply = viewer.get(&format!("/api/logs?limit={limit}"));
        assert_eq!(
            (reply.status, reply.field().as_str()),
            (422, "limit"),
            "{reply:?}"
        );
    }
    assert_eq!(viewer.get("/api/logs?unknown=1").status, 400);
    is_whole(&admin);
}

#[test]
fn every_answer_has_the_headers_of_a_careful_site() {
    let harness = start(|_| ());
    let stranger = harness.stranger();
    let wrong_host = stranger.send("GET", "/", "Host: evil.example.org\r\n", b"");
    let replies = [
        stranger.get("/"),
        stranger.get("/absent.js"),
        stranger.get("/api/session"),
        stranger.get("/api/absent"),
        stranger.send("PUT", "/api/runs", "", b""),
        wrong_host,
        harness.admin().get("/api/runs"),
    ];
    for reply in &replies {
        let policy = reply.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{reply:?}");
        }
    }
    assert_eq!(replies[6].header("cache-control"), Some("no-store"));
    assert_eq!(replies[4].status, 405);
    assert_eq!(replies[4].code(), "wrong_method");
}

#[test]
fn the_cookie_is_out_of_reach_of_pages_and_other_sites() {
    for is_behind_tls in [false, true] {
        let harness = start(|options| options.is_behind_tls = is_behind_tls);
        let mut client = harness.stranger();
        let reply = client.sign_in("admin", PASSWORD);
        let set = reply
            .headers
            .iter()
            .filter(|(name, _)| name == "set-cookie");
        let cookies: Vec<_> = set.map(|(_, cookie)| cookie).collect();
        let prefix = if is_behind_tls { "__Host-" } else { "" };
        for (cookie, name) in cookies.iter().zip(["session", "device"]) {
            let begin = format!("{prefix}farcore_{name}=");
            assert!(cookie.starts_with(&begin), "{cookie}");
            for word in ["HttpOnly", "SameSite=Strict", "Path=/"] {
                assert!(cookie.split("; ").any(|part| part == word), "{cookie}");
            }
            assert!(!cookie.contains("Domain"), "{cookie}");
            assert_eq!(cookie.contains("; Secure"), is_behind_tls, "{cookie}");
        }
        assert_eq!(cookies.len(), 2, "{cookies:?}");
        assert_eq!(client.cookie.as_ref().unwrap().len(), 43);
        let end = client.delete("/api/session");
        assert_eq!(end.status, 204);
        assert!(end.header("set-cookie").unwrap().contains("Max-Age=0"));
        assert_eq!(client.get("/api/session").status, 401);
    }
}

#[test]
fn a_session_cannot_be_fixed_before_the_sign_in() {
    let harness = start(|_| ());
    let chosen = "A".repeat(43);
    let mut victim = Client {
        cookie: Some(chosen.clone()),
        ..harness.stranger()
    };
    assert_eq!(victim.sign_in("admin", PASSWORD).status, 200);
    let first = victim.cookie.clone().unwrap();
    assert_ne!(first, chosen);
    let attacker = Client {
        cookie: Some(chosen),
        ..harness.stranger()
    };
    assert_eq!(attacker.get("/api/session").status, 401);
    // Another sign-in of the same browser ends the session that it had.
    assert_eq!(victim.sign_in("admin", PASSWORD).status, 200);
    let before = Client {
        cookie: Some(first),
        ..victim.clone()
    };
    assert_eq!(before.get("/api/session").status, 401);
    assert_eq!(victim.get("/api/session").status, 200);
}

#[test]
fn a_stolen_session_ends_with_the_password() {
    let harness = start(|options| options.limits.stream_check = Duration::from_millis(20));
    let owner = harness.admin();
    let thief = harness.admin();
    let run = owner.start_run("long", 1_000_000_000_000);
    let stream = thief.follow(run, 0);
    let new = "another good password";
    let wrong = owner.post("/api/password", &json!({ "current": "wrong", "new": new }));
    assert_eq!(
        (wrong.status, wrong.code().as_str()),
        (403, "wrong_password")
    );
    assert_eq!(thief.get("/api/session").status, 200);
    let change = owner.post("/api/password", &json!({ "current": PASSWORD, "new": new }));
    assert_eq!(change.status, 204, "{change:?}");
    assert_eq!(thief.get("/api/session").status, 401);
    // The stream that was open ends too, while the run goes on.
    assert!(stream.take(EVENTS_MAX).count() < EVENTS_MAX);
    assert_eq!(owner.get("/api/session").status, 200);
    assert_eq!(harness.stranger().sign_in("admin", PASSWORD).status, 401);
    assert_eq!(harness.stranger().sign_in("admin", new).status, 200);
    assert_eq!(
        owner
            .post(&format!("/api/runs/{run}/cancel"), &json!({}))
            .status,
        204
    );
}

#[test]
fn an_administrator_ends_the_sessions_of_a_user() {
    let harness = start(|_| ());
    let admin = harness.admin();
    for change in [
        json!({ "password": "another good password" }),
        json!({ "disabled": true }),
    ] {
        let name = format!(
            "user {}",
            change.as_object().unwrap().keys().next().unwrap()
        );
        let user = harness.user(&admin, &name, "viewer");
        let id = user.get("/api/session").json()["user"]["id"]
            .as_i64()
            .unwrap();
        let reply = admin.json("PATCH", &format!("/api/users/{id}"), &change);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(user.get("/api/session").status, 401);
        assert_eq!(harness.stranger().sign_in(&name, PASSWORD).status, 401);
    }
    assert_eq!(admin.get("/api/session").status, 200);
}

#[test]
fn an_old_or_idle_session_has_ended() {
    let harness = start(|options| options.limits.session_age = Duration::ZERO);
    let client = harness.admin();
    let reply = client.get("/api/runs");
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (401, "not_signed_in")
    );
    let harness = start(|options| options.limits.session_idle = Duration::ZERO);
    assert_eq!(harness.admin().get("/api/runs").status, 401);
}

#[test]
fn requests_for_other_hosts_are_refused() {
    let harness = start(|options| options.hosts.push("console.example.org".to_owned()));
    let admin = harness.admin();
    for host in ["localhost:1", "127.0.0.1", "[::1]:9", "console.example.org"] {
        let reply = admin.send("GET", "/api/session", &format!("Host: {host}\r\n"), b"");
        assert_eq!(reply.status, 200, "{host}");
    }
    for hosts in [
        "Host: evil.example.org\r\n",
        "Host: localhost.evil.org\r\n",
        "Host: localhost\r\nHost: evil.example.org\r\n",
        "Host: user@localhost\r\n",
        "Host:\r\n",
    ] {
        for path in ["/", "/api/session", "/health"] {
            let reply = admin.send("GET", path, hosts, b"");
            assert!(
                matches!(reply.status, 400 | 421),
                "{hosts} {path}: {reply:?}"
            );
            assert!(!reply.text().contains("csrf"), "{reply:?}");
        }
    }
    let absolute = admin.send(
        "GET",
        "http://evil.example.org/api/session",
        "Host: localhost\r\n",
        b"",
    );
    assert_eq!(absolute.code(), "wrong_host");
}

#[test]
fn changes_come_from_the_consoles_own_pages() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let address = harness.address();
    let kind = "Content-Type: application/json\r\n";
    let body = json!({ "name": "x", "settings": { "messages": 1 } }).to_string();
    for more in [
        "Origin: https://evil.example.org\r\n".to_owned(),
        "Origin: null\r\n".to_owned(),
        format!("Origin: http://{address}.evil.org\r\n"),
        "Sec-Fetch-Site: cross-site\r\n".to_owned(),
        "Sec-Fetch-Site: same-site\r\n".to_owned(),
    ] {
        let reply = admin.send(
            "POST",
            "/api/runs",
            &format!("{kind}{more}"),
            body.as_bytes(),
        );
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (403, "wrong_origin"),
            "{more}"
        );
        let sign_in = json!({ "name": "admin", "password": PASSWORD }).to_string();
        let more = format!("{kind}{more}");
        let reply = harness
            .stranger()
            .send("POST", "/api/session", &more, sign_in.as_bytes());
        assert_eq!(reply.code(), "wrong_origin", "{more}");
    }
    let own = format!("{kind}Origin: http://{address}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(
        admin
            .send("POST", "/api/runs", &own, body.as_bytes())
            .status,
        201
    );
    // A form of another site can send these kinds, and no others, without a question before.
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        let more = format!("Content-Type: {kind}\r\n");
        let reply = admin.send("POST", "/api/runs", &more, body.as_bytes());
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (415, "wrong_content_type"),
            "{kind}"
        );
    }
}

#[test]
fn odd_bodies_are_refused_in_words() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let kind = "Content-Type: application/json\r\n";
    let deep = "[".repeat(30_000);
    let inner = format!(
        "{{\"name\":\"x\",\"settings\":{}1{}}}",
        "{\"a\":".repeat(5_000),
        "}".repeat(5_000)
    );
    for (body, status, code) in [
        ("", 400, "malformed"),
        ("{", 400, "malformed"),
        ("null", 400, "malformed"),
        ("{\"name\":\"x\"}", 400, "malformed"),
        (
            "{\"name\":\"x\",\"settings\":{},\"id\":1}",
            400,
            "malformed",
        ),
        ("{\"name\":1,\"settings\":{}}", 400, "malformed"),
        ("{\"name\":\"x\",\"settings\":1e999}", 400, "malformed"),
        ("{\"name\":\"x\",\"settings\":[]}", 422, "invalid"),
        ("{\"name\":\"\",\"settings\":{}}", 422, "invalid"),
        (
            "{\"name\":\"x\",\"settings\":{},\"trace\":1}",
            422,
            "invalid",
        ),
        ("{\"name\":\"\\ud800\",\"settings\":{}}", 400, "malformed"),
        (&deep, 400, "malformed"),
        (&inner, 400, "malformed"),
    ] {
        let reply = admin.send("POST", "/api/runs", kind, body.as_bytes());
        let shown: String = body.chars().take(60).collect();
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (status, code),
            "{shown}: {reply:?}"
        );
    }
    let not_text = [
        b"{\"name\":\"".as_slice(),
        &[0xff, 0xfe],
        b"\",\"settings\":{}}",
    ]
    .concat();
    assert_eq!(admin.send("POST", "/api/runs", kind, &not_text).status, 400);
    let large = format!("{{\"name\":\"{}\"", "x".repeat(64 << 10));
    let reply = admin.send("POST", "/api/runs", kind, large.as_bytes());
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (413, "too_large"),
        "{reply:?}"
    );
    // A body whose length is not given before is refused once it is too large.
    let mut stream = connect(admin.address);
    let head = admin.head(
        "POST",
        "/api/runs",
        &format!("{kind}Transfer-Encoding: chunked\r\n"),
    );
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    for _ in 0..8 {
        let _ = stream.write_all(chunk.as_bytes());
    }
    let reply = read_reply(stream).unwrap();
    assert_eq!(reply.code(), "too_large", "{reply:?}");
    is_whole(&admin);
}

#[test]
fn paths_lead_nowhere_but_to_pages() {
    let harness = start(|_| ());
    let stranger = harness.stranger();
    for path in [
        "/../Cargo.toml",
        "/%2e%2e/%2e%2e/etc/passwd.txt",
        "/..%2f..%2fconsole.db",
        "/assets/../../console.db",
        "//console.db",
        "/console.db",
        "/\\..\\console.db",
    ] {
        let reply = stranger.get(path);
        assert!(matches!(reply.status, 400 | 404), "{path}: {reply:?}");
        assert!(!reply.text().contains("SQLite"), "{path}");
    }
    for path in [
        "/",
        "/runs",
        "/runs/7",
        "/compare?runs=1,2",
        "/data/1",
        "/logs",
        "/account",
    ] {
        let reply = stranger.get(path);
        assert_eq!(
            reply.header("content-type"),
            Some("text/html; charset=utf-8"),
            "{path}"
        );
    }
    assert_eq!(stranger.send("POST", "/runs", "", b"").status, 405);
    assert_eq!(stranger.get("/api/absent").code(), "not_found");
    let page = stranger.get("/");
    let known = format!("If-None-Match: {}\r\n", page.header("etag").unwrap());
    let again = stranger.send("GET", "/", &known, b"");
    assert_eq!((again.status, again.body.len()), (304, 0));
}

#[test]
fn methods_that_are_not_served_are_refused() {
    let harness = start(|_| ());
    let admin = harness.admin();
    for method in ["PUT", "TRACE", "CONNECT", "OPTIONS", "BREW", "PATCH"] {
        let reply = admin.send(method, "/api/runs", "", b"");
        assert!(matches!(reply.status, 400 | 405), "{method}: {reply:?}");
    }
    let head = admin.send("HEAD", "/api/runs", "", b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
}
