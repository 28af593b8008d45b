//! Sign-in: lock-out, users, passwords, the audit trail, the first start.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use farcore_console::{Console, is_first_start};
use serde_json::{Value, json};

use self::support::{PASSWORD, options, start};

fn messages(entries: &Value) -> Vec<String> {
    let entries = entries["entries"].as_array().unwrap();
    entries
        .iter()
        .map(|one| one["message"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_name_is_locked_after_wrong_passwords() {
    let harness = start(|_| ());
    let admin = harness.admin();
    harness.user(&admin, "vera", "viewer");
    let mut guesser = harness.stranger();
    for _ in 0..5 {
        let reply = guesser.sign_in("vera", "a wrong password");
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (401, "wrong_credentials")
        );
    }
    // The right password does not help, however the name is written.
    for name in ["vera", "VERA", " vera "] {
        let reply = guesser.sign_in(name, PASSWORD);
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (429, "locked"),
            "{reply:?}"
        );
        let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds), "{seconds}");
    }
    // An open session and other names go on.
    assert_eq!(admin.get("/api/session").status, 200);
    assert_eq!(harness.stranger().sign_in("admin", PASSWORD).status, 200);
    let trail = messages(&admin.get("/api/logs?kind=audit&level=warning").json());
    assert_eq!(trail.len(), 5, "{trail:?}");
    assert!(trail[0].contains("is locked"), "{trail:?}");
}

/// Behind a tunnel all clients have one address.
#[test]
fn strangers_do_not_lock_out_who_has_signed_in_before() {
    let harness = start(|_| ());
    let mut admin = harness.admin();
    let known = admin.device.clone().unwrap();
    assert_eq!(admin.delete("/api/session").status, 204);
    let mut guesser = harness.stranger();
    for _ in 0..5 {
        assert_eq!(guesser.sign_in("admin", "a wrong password").status, 401);
    }
    assert_eq!(harness.stranger().sign_in("admin", PASSWORD).status, 429);
    assert_eq!(admin.sign_in("admin", PASSWORD).status, 200);
    assert_ne!(admin.device.as_ref().unwrap(), &known);
    let change = json!({ "current": PASSWORD, "new": "another good password" });
    assert_eq!(admin.post("/api/password", &change).status, 204);
    // A token that no sign-in gave, and one from before the last sign-in, make no device known.
    for device in ["farcore_device=".to_owned() + &"A".repeat(43), known] {
        guesser.device = Some(device);
        assert_eq!(guesser.sign_in("admin", "a wrong password").status, 429);
    }
    // A device is locked by its own failures.
    for _ in 0..5 {
        assert_eq!(admin.sign_in("admin", PASSWORD).status, 401);
    }
    assert_eq!(admin.sign_in("admin", "another good password").status, 429);
}

#[test]
fn a_wrong_current_password_is_noted() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let change = json!({ "current": "a wrong password", "new": "another good password" });
    for _ in 0..5 {
        let reply = admin.post("/api/password", &change);
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (403, "wrong_password")
        );
    }
    assert_eq!(admin.post("/api/password", &change).code(), "locked");
    let trail = messages(&admin.get("/api/logs?kind=audit&level=warning").json());
    let failed = "change of the password as admin from 127.0.0.1 failed";
    assert_eq!(trail.len(), 5, "{trail:?}");
    assert_eq!(trail[0], format!("{failed} and is locked for a while"));
    assert!(
        trail[1..].iter().all(|message| message == failed),
        "{trail:?}"
    );
}

#[test]
fn an_address_is_locked_after_wrong_names() {
    let harness = start(|_| ());
    for number in 0..20 {
        let reply = harness
            .stranger()
            .sign_in(&format!("name {number}"), PASSWORD);
        assert_eq!(reply.status, 401, "{reply:?}");
    }
    assert_eq!(harness.stranger().sign_in("admin", PASSWORD).status, 429);
}

#[test]
fn answers_do_not_tell_whether_a_name_exists() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let vera = harness.user(&admin, "vera", "viewer");
    let id = vera.get("/api/session").json()["user"]["id"].clone();
    let path = format!("/api/users/{id}");
    assert_eq!(
        admin
            .json("PATCH", &path, &json!({ "disabled": true }))
            .status,
        200
    );
    let known = harness.stranger().sign_in("admin", "a wrong password");
    let absent = harness.stranger().sign_in("absent", "a wrong password");
    let disabled = harness.stranger().sign_in("vera", PASSWORD);
    assert_eq!(known.body, absent.body);
    assert_eq!(known.body, disabled.body);
    assert_eq!(known.status, absent.status);
}

#[test]
fn users_are_managed_and_every_change_is_noted() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let new = json!({ "name": "Vera", "role": "viewer", "password": PASSWORD });
    assert_eq!(admin.post("/api/users", &new).status, 201);
    let again = json!({ "name": "VERA", "role": "viewer", "password": PASSWORD });
    let reply = admin.post("/api/users", &again);
    assert_eq!(
        (reply.status, reply.code(), reply.field()),
        (409, "name_taken".into(), "name".into())
    );
    let short = json!({ "name": "otto", "role": "viewer", "password": "short" });
    let reply = admin.post("/api/users", &short);
    assert_eq!((reply.status, reply.field().as_str()), (422, "password"));
    let role = json!({ "name": "otto", "role": "root", "password": PASSWORD });
    assert_eq!(admin.post("/api/users", &role).status, 400);
    let users = admin.get("/api/users").json();
    let users = users["users"].as_array().unwrap();
    assert_eq!(users.len(), 2);
    assert!(users[0]["last_sign_in_ms"].is_i64() && users[1]["last_sign_in_ms"].is_null());
    let text = admin.get("/api/users").text();
    assert!(
        !text.contains("argon2") && !text.contains("password"),
        "{text}"
    );
    let path = format!("/api/users/{}", users[1]["id"]);
    let change =
        json!({ "role": "operator", "disabled": true, "password": "another good password" });
    let changed = admin.json("PATCH", &path, &change).json();
    assert_eq!(
        (&changed["role"], &changed["disabled"]),
        (&json!("operator"), &json!(true))
    );
    assert_eq!(admin.delete(&path).status, 204);
    assert_eq!(admin.delete(&path).status, 404);
    let trail = messages(&admin.get("/api/logs?kind=audit").json());
    for words in [
        "the first administrator was made",
        "signed in from 127.0.0.1",
        "added the user Vera as viewer",
        "gave Vera the role operator",
        "disabled the user Vera",
        "gave Vera another password",
        "removed the user Vera",
    ] {
        assert!(
            trail.iter().any(|message| message == words),
            "{words}: {trail:?}"
        );
    }
}

#[test]
fn the_first_start_makes_one_administrator() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("console");
    assert!(is_first_start(&path));
    let mut without = options(&folder);
    without.first_administrator = None;
    let error = Console::start(without.clone()).unwrap_err().to_string();
    assert!(error.contains("no user"), "{error}");
    assert!(is_first_start(&path));
    Console::start(options(&folder)).unwrap().stop();
    assert!(!is_first_start(&path));
    Console::start(without).unwrap().stop();
}

#[test]
fn a_console_in_use_and_a_newer_one_are_refused() {
    let harness = start(|_| ());
    let error = Console::start(options(&harness.folder))
        .unwrap_err()
        .to_string();
    assert!(error.contains("another console"), "{error}");
    harness.console.stop();
    let path = harness.folder.path().join("console/console.db");
    let newer = rusqlite::Connection::open(path).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    let error = Console::start(options(&harness.folder))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("version 99") && error.contains("newer farcore"),
        "{error}"
    );
}

#[test]
fn secrets_are_kept_as_hashes_and_sessions_outlive_a_restart() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let cookie = admin.cookie.clone().unwrap();
    let device = admin.device.clone().unwrap();
    let device = device.rsplit('=').next().unwrap().to_owned();
    let harness = harness.restart();
    let admin = support::Client {
        address: harness.address(),
        ..admin
    };
    assert_eq!(
        admin.get("/api/session").json()["csrf"],
        admin.csrf.clone().unwrap()
    );
    harness.console.stop();
    let folder = harness.folder.path().join("console");
    for name in ["console.db", "data.db"] {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            !text.contains(&cookie) && !text.contains(&device) && !text.contains(PASSWORD),
            "{name}"
        );
        assert!(!folder.join(format!("{name}-wal")).exists(), "{name}");
    }
}
